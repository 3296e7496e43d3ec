"""Serves a connection of the node's agent: arms its lines, sends reports, and disarms the lines when the connection ends.

The other side sends a line feed now and then, which renews the lease. Each report is one line of JSON.
"""
import atexit
import collections
import json
import os
import select
import time

# Seconds: how long the other side may send nothing, or take nothing, before the lease is over; between two polls; between two
# reports of the lines' status; and how long the end of the process waits for messages to be sent.
_LEASE_SECONDS, _POLL_SECONDS, _STATUS_SECONDS, _FLUSH_SECONDS = 15, 0.1, 1, 1
_MAX_LINES = 64
# Bytes of reports that wait for the other side to read, before messages wait in their queue.
_MAX_UNSENT = 1 << 20
_CHUNK = 1 << 16


class _Client:
    """The other side of a connection."""

    def __init__(self, connection, messages):
        connection.setblocking(False)
        self.connection, self.messages, self.takes, self.unsent = connection, messages, False, bytearray()
        self.received = self.sent = time.monotonic()

    def put(self, report):
        self.unsent += json.dumps(report, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def put_messages(self):
        self.takes = True
        while self.messages and len(self.unsent) < _MAX_UNSENT:
            self.put(self.messages.popleft())
        self.takes = False

    def has_more(self):
        """Whether messages are not sent yet, for another thread: in the order in which they pass through."""
        return bool(self.messages) or self.takes or bool(self.unsent)

    def is_alive(self):
        """Sends and receives for a short time. Whether the lease goes on."""
        until = time.monotonic() + _POLL_SECONDS
        try:
            while self._exchange(until):
                # Once more: what came while the program held the GIL has not been read.
                if self._is_silent() and (not self._exchange(0) or self._is_silent()):
                    return False
                if time.monotonic() >= until:
                    return True
        except OSError:
            pass
        return False

    def _is_silent(self):
        now = time.monotonic()
        return now - self.received >= _LEASE_SECONDS or now - self.sent >= _LEASE_SECONDS

    def _exchange(self, until):
        """Waits until bytes can be sent or received, and does that. False if the other side has closed the connection."""
        poll, is_open = select.poll(), True
        poll.register(self.connection, select.POLLIN | (select.POLLOUT if self.unsent else 0))
        for _, event in poll.poll(max(0, until - time.monotonic()) * 1000):
            try:
                if event & select.POLLOUT:
                    del self.unsent[:self.connection.send(self.unsent[:_CHUNK])]
                    self.sent = time.monotonic()
                if event & ~select.POLLOUT:
                    is_open = bool(self.connection.recv(_CHUNK))
                    self.received = time.monotonic()
            except BlockingIOError:
                pass
        if not self.unsent:
            self.sent = time.monotonic()
        return is_open


_CLIENTS = set()
# One for the process, whichever connection arms lines; `serve` sets what it calls.
_ENGINE = Engine(None, None)


def _close_in_child():
    """Closes a forked child's copies, which would hide from the other side that the worker has closed them."""
    for client in _CLIENTS:
        client.connection.close()
    _CLIENTS.clear()


os.register_at_fork(after_in_child=_close_in_child)


@atexit.register
def _flush():
    """Gives messages a moment to be sent: a worker may end right behind the line."""
    until = time.monotonic() + _FLUSH_SECONDS
    while any(client.has_more() for client in list(_CLIENTS)) and time.monotonic() < until:
        time.sleep(0.01)


def serve(connection, lines, rank, worker, when_armed=lambda: None):
    """Arms `lines` until the other side closes the connection or is silent. `rank` is a function that returns the rank of this
    process, `worker` is Ray's, and `when_armed` is called when the lines are armed."""
    messages, armed = collections.deque(), []
    client = _Client(connection, messages)
    _CLIENTS.add(client)
    _ENGINE.rank = rank
    _ENGINE.stop = lambda frame, line: stop_here(frame, lambda: wait_for_client(worker, lambda: _ENGINE.put_stop(line)))
    try:
        try:
            armed = _lines(lines, messages)
            _ENGINE.arm(armed)
        except (NotPossible, ValueError) as why:
            client.put({"type": "refused", "reason": shortened(str(why))})
            while client.unsent and client.is_alive():
                pass
            return
        when_armed()
        _report(client, armed)
    finally:
        _ENGINE.disarm(armed)
        _CLIENTS.discard(client)


def _lines(requested, messages):
    if type(requested) is not list or not 1 <= len(requested) <= _MAX_LINES:
        raise ValueError("a request arms 1 to %d lines" % _MAX_LINES)
    found = []
    for about in requested:
        try:
            found.append(Line(about, messages))
        except ValueError as why:
            is_named = type(about) is dict and type(about.get("file")) is str
            where = "%.100s:%s: " % (os.path.basename(about["file"]), about.get("line")) if is_named else ""
            raise ValueError(where + str(why)) from None
    if len({line.id for line in found}) != len(found):
        raise ValueError("two lines have the same id")
    if not any(line.is_armed for line in found):
        raise ValueError("%s:%d: %s" % (os.path.basename(requested[0]["file"]), found[0].line, found[0].error))
    return found


def _report(client, lines):
    """Sends reports until the lease is over."""
    ended, reported, due = 0, None, 0
    while True:
        now, ended_before = time.monotonic(), ended
        ended = sum(not line.is_armed for line in lines)
        # Read before the messages are taken, and sent after them: the messages of a line come before its end.
        status = _ENGINE.status(lines) if now >= due or ended != ended_before else reported
        if reported is not None:
            client.put_messages()
        if status != reported:
            client.put({"type": "status", "lines": status})
        due, reported = now + _STATUS_SECONDS if now >= due else due, status
        if not client.is_alive():
            return
