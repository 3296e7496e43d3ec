"""A small client of the Debug Adapter Protocol."""
import json, socket, time


class Dap:
    def __init__(self, port, host="127.0.0.1"):
        self.socket, self.received, self.seq, self.messages = socket.create_connection((host, port), 30), b"", 0, []

    def attach(self, just_my_code=False):
        self.ask("initialize", {"adapterID": "debugpy", "pathFormat": "path", "linesStartAt1": True, "columnsStartAt1": True})
        attaching = self.send("attach", {"justMyCode": just_my_code})
        self.wait(lambda one: one.get("event") == "initialized")
        self.ask("configurationDone")
        self.answer(attaching)

    def send(self, command, arguments=None):
        self.seq += 1
        message = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments or {}}
        body = json.dumps(message).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self.seq

    def answer(self, seq):
        return self.wait(lambda one: one.get("type") == "response" and one.get("request_seq") == seq)

    def ask(self, command, arguments=None):
        return self.answer(self.send(command, arguments))

    def wait(self, is_it, seconds=60):
        """The first message that is it, which is taken; None when the time is up. The others are kept."""
        until = time.monotonic() + seconds
        while True:
            for at, one in enumerate(self.messages):
                if is_it(one):
                    return self.messages.pop(at)
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                more = self.socket.recv(1 << 16)
            except socket.timeout:
                return None
            if not more:
                raise EOFError("the debugger has closed the connection")
            self.received += more
            self._split()

    def _split(self):
        while b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(rest) < size:
                return
            self.messages.append(json.loads(rest[:size]))
            self.received = rest[size:]

    def stack(self, thread):
        return self.ask("stackTrace", {"threadId": thread})["body"]["stackFrames"]

    def evaluate(self, thread, text):
        answer = self.ask("evaluate", {"expression": text, "frameId": self.stack(thread)[0]["id"], "context": "repl"})
        return answer.get("body", {}).get("result", answer.get("message"))

    def resume(self, thread):
        return self.ask("continue", {"threadId": thread})

    def close(self):
        self.socket.close()
