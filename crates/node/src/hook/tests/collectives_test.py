# Prints what the hook reports wrongly of planted process groups of PyTorch: HOOK.
import json, os, sys, types

hook = {"__name__": "ray_relay_hook"}
with open(sys.argv[1]) as source:
    exec(source.read(), hook)
failed, tried, called = [], [0], []


def check(right, *what):
    tried[0] += 1
    if not right:
        failed.append(" ".join(str(one) for one in what)[:600])


def told():
    return hook["_defined"]("_look")(False).get("collectives")


class Group:
    """A process group, which the hook may compare by identity alone."""

    def __hash__(self):
        asked.append("hash")
        return id(self)

    def __eq__(self, other):
        asked.append("eq")
        return self is other


asked = []


def module(name, **attributes):
    made = types.ModuleType(name)
    made.__dict__.update(attributes)
    sys.modules[name] = made
    return made


def entry(group, number, operation="gloo:all_reduce", sizes=((4, 8),), kinds=("Float",), p2p=False):
    return {"pg_id": group, "process_group": [str(group), "default_pg" if group == 0 else "left"], "collective_seq_id": number,
            "profiling_name": operation, "input_sizes": sizes, "input_dtypes": kinds, "is_p2p": p2p}


def status(enqueued, completed):
    return {"last_enqueued_collective": str(enqueued), "last_completed_collective": str(completed), "last_started_collective": "-1"}


def recorder(name, *recorded):
    """A builtin, as PyTorch's are: one of a dictionary, by the first argument. Without entries, if that is False."""
    pg_status, entries = recorded
    dump = {"version": "2.10", "pg_config": {}, "pg_status": pg_status}
    setattr(c10d, name, {True: json.dumps(dict(dump, entries=entries)).encode(), False: json.dumps(dump).encode()}.get)


# The rank is that of now.
check("rank" not in hook["_defined"]("_look")(False), "rank")
for text, wanted in (("3", 3), ("x", None), ("-1", None), ("\u0663", None), ("1" * 10, None), ("", None)):
    os.environ["RANK"] = os.environ["WORLD_SIZE"] = text
    has = hook["_look"](False)
    check([has.get("rank"), has.get("world_size")] == [wanted, wanted], text, has.get("rank"))
# Without PyTorch, and before a group is made: the first question decides whether the recorder is on.
check(told() is None, told())
c10d = module("torch._C._distributed_c10d")
c10d._dump_fr_trace_json = called.append
check(told() is None, told())
world, left = Group(), Group()
known = module("torch.distributed.distributed_c10d", _pg_names={world: "0", left: "1"},
               _pg_group_ranks={left: {0: 0, 1: 1}, world: {3: 3, 0: 0, 1: 1, 2: 2}})
del asked[:]
# No builtin: the program's own, which is not called.
c10d._dump_fr_trace_json = lambda *args: called.append(args)
check(told() is None, told())
entries = [entry(0, number) for number in range(1, 13)] + [entry(0, 99, p2p=True), entry(1, 1, "gloo:broadcast", ((),), ("Int",))]
recorder("_dump_fr_trace_json", {"0": status(12, 11), "1": status(1, 1), "2": status(-1, -1), "9": status(3, 3)}, entries)
groups = told()
check(len(groups) == 2, groups)
check({name: of for name, of in groups[0].items() if name != "last"} == {
    "backend": "gloo", "name": "0", "description": "default_pg", "ranks": [0, 1, 2, 3], "begun": 12, "done": 11}, groups[0])
check([one["number"] for one in groups[0]["last"]] == list(range(5, 13)), groups[0])
check(groups[0]["last"][-1] == {"number": 12, "operation": "all_reduce", "sizes": [[4, 8]], "types": ["Float"]}, groups[0])
check(groups[1]["ranks"] == [0, 1] and groups[1]["last"] == [
    {"number": 1, "operation": "broadcast", "sizes": [[]], "types": ["Int"]}], groups[1])
# Of NCCL's recorder the numbers of the default group alone, without its entries: these ask the device.
recorder("_dump_nccl_trace_json", {"0": status(7, 6), "1": status(2, 2)}, [entry(0, 7, "nccl:all_reduce")])
groups = told()
check([one["backend"] for one in groups] == ["nccl", "gloo", "gloo"], groups)
check(groups[0] == {"backend": "nccl", "name": "0", "description": "default_pg", "ranks": [0, 1, 2, 3], "begun": 7, "done": 6, "last": []},
      groups[0])
del c10d._dump_nccl_trace_json
# A recorder that keeps more than is read, one that is off, and what another version may say.
os.environ["TORCH_FR_BUFFER_SIZE"] = "999999"
groups = told()
check([(one["name"], one["begun"], one["last"]) for one in groups] == [("0", 12, [])], groups)
del os.environ["TORCH_FR_BUFFER_SIZE"]
recorder("_dump_fr_trace_json", {}, [])
check(told() is None, told())
for wrong in (b"", b"[]", b"{", b'{"pg_status": 5}', b'{"pg_status": {"0": {}}}', b'{"pg_status": {"0": []}, "entries": [3]}', None, 7):
    c10d._dump_fr_trace_json = {True: wrong}.get
    check(told() is None, wrong, told())
recorder("_dump_fr_trace_json", {str(number): status(1, 1) for number in range(99)}, [
    entry(number, 1, "gloo:" + "x" * 999, ((1,) * 99,) * 99, ("y" * 999,) * 99) for number in range(99)])
groups = told()
check(len(groups) == 16 and len(json.dumps(groups)) < 64000, len(groups), len(json.dumps(groups)))
check(not asked, asked)
# Ranks and names of other types.
known._pg_group_ranks, known._pg_names = {world: {"a": 1, 2: 2}, left: 5}, {world: "0", left: 5}
check(hook["_process_groups"]() == {"0": [2]}, hook["_process_groups"]())
known._pg_group_ranks = {world: dict.fromkeys(range(513))}
check(hook["_process_groups"]() == {"0": []}, hook["_process_groups"]())
print(json.dumps({"failed": failed[:20], "tried": tried[0], "called": called}))
