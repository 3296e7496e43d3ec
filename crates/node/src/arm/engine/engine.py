"""Arms lines of this process by `sys.monitoring` (CPython 3.12 and newer).

The engine has a tool id of its own while a line is armed. PY_START and PY_RESUME find the code objects of armed files, and are
disabled everywhere else. LINE is on only in code objects with an armed line. After the last disarm Python calls nothing here.
"""
import bisect
import collections
import functools
import os
import sys
import threading
import time
import weakref

_TOOL_NAME, _TOOL_IDS = "ray-relay", (4, 3)
# Log messages of one connection that wait to be sent.
_MAX_MESSAGES = 2000
# Lines of the source in the status of one armed line: several versions of a file may be loaded.
_MAX_PLACES = 16
# Characters of a thread's name.
_MAX_THREAD_NAME = 64


class NotPossible(Exception):
    """Lines cannot be armed in this process; the text says why."""


class Engine:
    """Arms lines in this process, for several connections. `stop(frame, line)` is called at a hit of a line without a log
    message. `rank()` is the rank of the process, or None."""

    def __init__(self, stop, rank):
        self.stop, self.rank, self.tool = stop, rank, None
        self.lines, self.by_name, self.codes = {}, {}, {}
        # The threads that are in a hit, and exceptions that are no error of an expression.
        self.busy, self.failures = set(), 0
        self.lock, self.jobs = threading.RLock(), collections.deque()
        os.register_at_fork(after_in_child=self._forked)

    # Called by the hook's threads.

    def arm(self, lines):
        with self.lock:
            if self.tool is None:
                self._acquire()
            self.lines.update(dict.fromkeys(lines))
            self._index()
            self._refresh(lines)
            # LINE has been disabled at lines that were not armed, so all events are reported once more. The frames are last:
            # PY_START reports what starts from here on.
            sys.monitoring.restart_events()
            for code in loaded_code(lines) + [frame.f_code for frame in running_frames()]:
                self._watch(code)
        self._work()

    def disarm(self, lines):
        """Disarms lines. A hit that is under way ends by itself; its log message is dropped."""
        with self.lock:
            for line in lines:
                self.lines.pop(line, None)
            self._drop(lines)
        self._work()

    def status(self, lines):
        """Returns a report of each line, in their order."""
        found = {line: {"codes": 0, "at": set()} for line in lines}
        for known in list(self.codes.values()):
            for at, here in known.armed.items():
                for about in [found[line] for line in here if line in found]:
                    about["codes"] += 1
                    about["at"].add(at)
        for line, about in found.items():
            state = "armed" if about["codes"] else "not_loaded"
            about.update(id=line.id, state=state if line.is_armed else "ended", at=sorted(about["at"])[:_MAX_PLACES],
                         hits=line.hits, dropped=line.dropped, error=line.error)
        return list(found.values())

    # Called with the lock held.

    def _acquire(self):
        if not hasattr(sys, "monitoring"):
            raise NotPossible("armed lines need Python 3.12 or newer, and this worker runs %d.%d" % sys.version_info[:2])
        monitoring = sys.monitoring
        for tool in _TOOL_IDS:
            self.tool = tool  # Before the id is taken: a forked child frees it, whenever the fork is.
            try:
                monitoring.use_tool_id(tool, _TOOL_NAME)
                break
            except ValueError:
                self.tool = None
        if self.tool is None:
            owners = " and ".join("%d (%s)" % (tool, monitoring.get_tool(tool)) for tool in _TOOL_IDS)
            raise NotPossible("other tools in this worker use the ids %s of sys.monitoring" % owners)
        events = monitoring.events
        for event, do in ((events.LINE, self._line), (events.PY_START, self._start), (events.PY_RESUME, self._start)):
            monitoring.register_callback(self.tool, event, do)
        monitoring.set_events(self.tool, events.PY_START | events.PY_RESUME)

    def _release(self):
        monitoring, tool = sys.monitoring, self.tool
        # Python 3.12 and 3.13 leave events to the next owner of a tool id.
        monitoring.set_events(tool, 0)
        for known in list(self.codes.values()):
            self._forget(known)
        for event in (monitoring.events.LINE, monitoring.events.PY_START, monitoring.events.PY_RESUME):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
        self.tool = None

    def _index(self):
        """Makes a new dictionary each time: callbacks read it without the lock."""
        by_name = {}
        for line in sorted((one for one in self.lines if one.is_armed), key=lambda one: one.line):
            for file in line.files:
                by_name.setdefault(file.rpartition("/")[2], {}).setdefault(file, []).append(line)
        self.by_name = by_name

    def _drop(self, lines):
        for line in lines:
            line.is_armed = False
        self._index()
        if self.tool is not None and not self.by_name:
            self._release()
        elif lines:
            self._refresh(lines)

    def _refresh(self, lines):
        """Updates the code objects in which lines have been armed or disarmed."""
        names = {name for one in lines for name in one.names}
        for known in list(self.codes.values()):
            code = known.code()
            if code is not None and code.co_filename.rpartition("/")[2] in names:
                self._apply(known, code, self._candidates(code))

    def _candidates(self, code):
        """Returns the armed lines of a code object's file, in order."""
        found, path = [], code.co_filename
        for file, lines in self.by_name.get(path.rpartition("/")[2], {}).items():
            if is_file(path, file):
                found.append(lines)
        return found[0] if len(found) == 1 else sorted(dict.fromkeys(sum(found, [])), key=lambda one: one.line)

    def _watch(self, code):
        """Sets LINE in a code object and in those inside of it, where lines are armed."""
        if id(code) in self.codes or self.tool is None:
            return
        candidates = self._candidates(code)
        for known in Code(code).all() if candidates else ():
            one = known.code()
            if known.key not in self.codes:
                self._apply(known, one, candidates)

    def _apply(self, known, code, candidates):
        armed = {}
        for line in candidates[bisect.bisect_left(candidates, known.first, key=lambda one: one.line):]:
            if line.line > known.last:
                break
            at = known.line(line.line)
            if at is not None:
                armed[at] = armed.get(at, ()) + (line,)
        known.armed = armed
        if not armed:
            self._forget(known)
        elif known.key not in self.codes:
            known.returns = returns_to_line(code)
            known.code = weakref.ref(code, functools.partial(self._died, known.key))
            self.codes[known.key] = known  # Before LINE is set: the callback disables a line that it does not find.
            sys.monitoring.set_local_events(self.tool, code, sys.monitoring.events.LINE)

    def _forget(self, known):
        code = known.code()
        if self.codes.pop(known.key, None) is not None and code is not None:
            sys.monitoring.set_local_events(self.tool, code, 0)

    def _died(self, key, _):
        self.codes.pop(key, None)

    def _work(self, job=None):
        """Does a job, or leaves it to the thread that has the lock, since a callback must not wait. Whether it is done."""
        if job is not None:
            self.jobs.append(job)
        if self.lock._is_owned():
            return False
        while self.jobs:
            try:
                if not self.lock.acquire(blocking=False):
                    return False
                while self.jobs:
                    one = self.jobs.popleft()
                    self._drop([one]) if type(one) is Line else self._watch(one)
            finally:
                if self.lock._is_owned():  # A signal handler may raise before or after `acquire`.
                    self.lock.release()
        return True

    def _forked(self):
        """Clears a forked child, where no thread of the hook runs."""
        self.lock = threading.RLock()
        if self.tool is not None and sys.monitoring.get_tool(self.tool) != _TOOL_NAME:
            self.tool = None  # The fork was before the id was taken.
        for one in [self.jobs, self.busy] + [line.messages for line in self.lines]:
            one.clear()
        self.disarm(list(self.lines))

    # Called by Python in the program's threads. No exception of these may reach the program.

    def _start(self, code, offset):
        try:
            if code.co_filename.rpartition("/")[2] not in self.by_name:
                return sys.monitoring.DISABLE
            done, known = self._work(code), self.codes.get(id(code))
            # On 3.13 a line that begins with the function itself (a lambda) has LINE only while this event is enabled.
            return sys.monitoring.DISABLE if done and (known is None or known.starts_at not in known.armed) else None
        except RecursionError:
            return None
        except BaseException as error:
            if is_of_signal(error):
                raise
            self.failures += 1

    def _line(self, code, number):
        try:
            known = self.codes.get(id(code))
            lines = known.armed.get(number) if known is not None else None
            if lines is None:
                return sys.monitoring.DISABLE
            ident = threading.get_ident()
            frame = sys._getframe(1)
            if frame.f_lasti in known.returns:
                return None
            if ident in self.busy:  # CPython sends no events to callbacks in callbacks; this does not depend on it.
                return None
            stopped = False
            try:
                self.busy.add(ident)  # Inside: a signal handler may raise right after it.
                for line in lines:
                    if line.is_armed:
                        stopped = self._reached(frame, line, ident, known.variables, stopped)
            finally:
                self.busy.discard(ident)
        except RecursionError:
            self.failures += 1  # The program is near its limit: nothing can be called here.
        except BaseException as error:
            if is_of_signal(error):
                raise
            self.failures += 1

    def _reached(self, frame, line, ident, variables, stopped):
        """Does what a line is for. Returns whether this pass has stopped, for this line or one before it."""
        try:
            if line.ranks is not None and not line.is_for(self.rank()):
                return stopped
            if line.condition is not None and not line.condition.value(frame, self.rank, variables):
                return stopped
            thread = attributes_of_thread(ident)
            # A thread of debugpy or of the hook must not stop.
            if thread.get("is_pydev_daemon_thread") is True or not line.is_due():
                return stopped
            if line.log is None:
                if not stopped:
                    self.stop(frame, line)
                stopped = True
            elif line.is_in_rate():
                self._put(line, ident, thread, line.text(frame, self.rank, variables))
            if line.once:
                self._work(line)
        except BaseException as error:
            if is_of_signal(error):
                raise
            if issubclass(type(error), NameError) and frame.f_code.co_name == "<lambda>":
                return stopped  # The expression is meant for the function around it, which has the line as well.
            line.error = line.error or described(error)
            self._work(line)
        return stopped

    def _put(self, line, ident, thread, text):
        if not line.is_armed:
            return
        if len(line.messages) >= _MAX_MESSAGES:
            line.dropped += 1
            return
        name = thread.get("_name")
        is_named = type(name) is str and ident != threading.main_thread().ident
        line.messages.append({"type": "hit", "id": line.id, "time_ms": int(time.time() * 1000), "rank": self._rank_number(),
                              "thread": name[:_MAX_THREAD_NAME] if is_named else None, "text": text})

    def put_stop(self, line):
        """Reports that a thread is about to stop on a line. Beyond the limit of messages too: a stop is never dropped."""
        line.messages.append({"type": "stop", "id": line.id, "rank": self._rank_number()})

    def _rank_number(self):
        rank = self.rank()
        return rank if type(rank) is int and 0 <= rank <= _MAX_NUMBER else None
