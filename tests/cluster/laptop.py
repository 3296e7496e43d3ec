"""A listening debugger, as on a user's laptop: `laptop.py pydevd|debugpy PORT VALUE`.

`pydevd` plays PyCharm's debug server; `debugpy` starts debugpy's own adapter and has it listen, as VS Code does with
"listen". Each program that dials is stopped, has its variable `x` set to VALUE, and runs on; with VALUE `hold` it is left where
it stands. Says `listening`, `stopped FUNCTION` and `gone`.
"""
import json
import re
import socket
import subprocess
import sys
import threading
from urllib.parse import unquote


def say(line):
    print(line, flush=True)


def pydevd(port, value):
    server = socket.create_server(("127.0.0.1", port))
    say("listening")
    while True:
        connection, _ = server.accept()
        threading.Thread(target=session, args=(connection, value), daemon=True).start()


def session(connection, value):
    lines, seq = connection.makefile("rb"), 1

    def send(command, text=""):
        nonlocal seq
        connection.sendall(f"{command}\t{seq}\t{text}\n".encode())
        seq += 2

    # Sends the version, then run.
    send(501, "0.1\tUNIX")
    send(101)
    for line in lines:
        command, _, text = line.decode().rstrip("\n").split("\t", 2)
        text = unquote(text)
        if command == "105":
            thread = re.search(r'<thread id="([^"]+)"', text).group(1)
            frame, name = re.search(r'<frame id="([^"]+)" name="([^"]+)"', text).groups()
            say(f"stopped {name}")
            if value != "hold":
                send(117, f"{thread}\t{frame}\tFRAME\tx\t{value}")
        if command == "502":
            # The response to setting the variable.
            send(106, thread)
    say("gone")


def debugpy(port, value):
    adapter = subprocess.Popen([sys.executable, "-m", "debugpy.adapter"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    seq = 0

    def send(command, **arguments):
        nonlocal seq
        seq += 1
        body = json.dumps({"seq": seq, "type": "request", "command": command, "arguments": arguments}).encode()
        adapter.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        adapter.stdin.flush()

    send("initialize", clientID="vscode", adapterID="debugpy", pathFormat="path", linesStartAt1=True, columnsStartAt1=True)
    while header := adapter.stdout.readline():
        adapter.stdout.readline()
        message = json.loads(adapter.stdout.read(int(header.split(b":")[1])))
        what, body = message.get("event") or message.get("command"), message.get("body") or {}
        if what == "initialize":
            send("attach", listen={"host": "127.0.0.1", "port": port}, justMyCode=False)
        elif what == "debugpyWaitingForServer":
            say("listening")
        elif what == "initialized":
            send("configurationDone")
        elif what == "stopped":
            thread = body["threadId"]
            send("stackTrace", threadId=thread)
        elif what == "stackTrace":
            frame = next(frame for frame in body["stackFrames"] if frame["name"] == "dials")
            say(f"stopped {frame['name']}")
            if value != "hold":
                send("setExpression", expression="x", value=value, frameId=frame["id"])
        elif what == "setExpression":
            send("continue", threadId=thread)
        elif what == "terminated":
            break
    say("gone")


if __name__ == "__main__":
    {"pydevd": pydevd, "debugpy": debugpy}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
