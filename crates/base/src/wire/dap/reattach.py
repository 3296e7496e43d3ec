# Runs in a process whose debugger is attached, within one `evaluate` request. In: `ask` (a dict). Out: `answer` (a dict).
# Works on debugpy 1.8.0 and later.
_debugger = __import__("pydevd").get_global_debugger()
_commands = _debugger.reader.process_net_command_json.__self__
_to_server = __import__("pydevd_file_utils").map_file_to_server
# debugpy clears this table at a disconnect, so no list reaches the next user.
_table = _debugger.file_to_id_to_plugin_breakpoint


def _left():
    kept = _table.get("<ray-relay>", {})
    # Each as it was requested: the client's file, type, id, line, condition, and last whether it only logs.
    requested = sorted((one for _, one in _debugger.api_received_breakpoints.values()), key=lambda one: one[2])
    lines = [[_to_server(one[0]), one[3], one[4]] for one in requested if one[1] == "python-line" and not one[9]]
    return {"list": kept.get("list"), "lines": kept.get("lines", []) + lines}


answer = {}
if ask["op"] == "left":
    answer = _left()
elif ask["op"] == "keep":
    _table["<ray-relay>"] = {"list": ask["list"]}
else:
    left = _left()
    # It finds breakpoints by the client's name of their file, so another client could never remove them.
    _commands.api.remove_all_breakpoints(_debugger, "*")
    if ask["op"] == "attach":
        _table["<ray-relay>"] = left
    _commands._options.__init__()
    _commands._set_debug_options(_debugger, ask["arguments"], start_reason="attach")
