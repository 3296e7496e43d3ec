"""An armed line: its condition, hit count and log message, evaluated in the program's frame."""
import ast
import collections
import operator
import os
import re
import signal
import sys
import threading
import time
import types

# Limits: characters of an expression and of a message, bytes of an error, and messages of one line in a second.
_MAX_EXPRESSION, _MAX_TEXT, _MAX_ERROR_BYTES, _MAX_RATE = 4000, 2000, 300, 50
# Limits of the other fields: characters of a path, of a hit count and of a counter's name, numbers, and the count of ranks.
_MAX_PATH, _MAX_HIT, _MAX_NAME, _MAX_NUMBER, _MAX_RANKS = 4096, 32, 64, 0xFFFFFFFF, 65536
# The counters by their names, the last used ones last.
_COUNTERS, _MAX_COUNTERS = collections.OrderedDict(), 4096
# The folder that the worker was started in, as the hook sets it: a program may change the present one, as Ray Train does.
STARTED_IN = None
_RANK_NAME = "_ray_relay_rank_"
_COMPARES = {"==": operator.eq, "=": operator.eq, "": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt,
             "<=": operator.le, "%": lambda hits, number: number > 0 and hits % number == 0}
# The fields of a line in a request: type, and whether it is required.
_FIELDS = {"id": (int, True), "file": (str, True), "or_file": (str, False), "counter": (str, False), "line": (int, True), "condition": (str, False),
           "log": (str, False), "hit": (str, False), "once": (bool, False), "ranks": (list, False)}


class _Rank(ast.NodeTransformer):
    """Replaces `ray.rank`: in most programs `ray` is the module, which has no rank."""

    def visit_Attribute(self, node):
        if node.attr == "rank" and type(node.value) is ast.Name and node.value.id == "ray":
            return ast.Name(_RANK_NAME, ast.Load())
        return self.generic_visit(node)


class _Expression:
    def __init__(self, source, what):
        try:
            tree = ast.fix_missing_locations(_Rank().visit(ast.parse(source, "<%s>" % what, "eval")))
            self.code = compile(tree, "<%s>" % what, "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
            raise ValueError("the %s is not valid: %s" % (what, why)) from None
        self.names = frozenset(node.id for node in ast.walk(tree) if type(node) is ast.Name)
        # Code inside of it, such as a generator, finds names among the globals only.
        self.is_nested = any(type(one) is types.CodeType for one in self.code.co_consts)

    def value(self, frame, rank, variables):
        """Evaluates it in a frame. `variables` are those of a function's code."""
        values, names = _values(frame, self.names, variables), frame.f_globals
        if _RANK_NAME in self.names:
            values[_RANK_NAME] = rank()
        return eval(self.code, {**names, **values} if self.is_nested else names, values)


def _values(frame, names, variables):
    """Returns a copy, so that `:=` in an expression changes nothing in the program."""
    if not names:
        return {}
    scope = frame.f_locals
    found = {name: scope[name] for name in names if name in scope}
    # Before 3.13 the frame would keep every value in this dictionary. It is emptied unless the program has it too (3: the
    # frame, this call, and the count), or a trace function, after which Python sets the variables from it.
    if type(scope) is dict and variables and frame.f_trace is None and sys.getrefcount(scope) <= 3:
        for name in variables:
            scope.pop(name, None)
    return found


def _template(text):
    """Compiles a log message as a raw f-string. Its last character is cut later: the text may end in a quote or `\\`."""
    quotes = next((one for one in ('"""', "'''") if one not in text), None)
    if quotes is None:
        raise ValueError("the log message has both kinds of triple quotes")
    return _Expression("rf%s%s %s" % (quotes, text, quotes), "log message")


def _require_valid(about):
    """Raises ValueError for a field of another type or beyond its limits."""
    if type(about) is not dict:
        raise ValueError("a line is no object")
    for name, (kind, is_required) in _FIELDS.items():
        value = about.get(name)
        if type(value) is not kind and (is_required or value is not None):
            raise ValueError("the field `%s` of a line is no %s" % (name, kind.__name__))
    for name, limit in (("file", _MAX_PATH), ("or_file", _MAX_PATH), ("counter", _MAX_NAME), ("condition", _MAX_EXPRESSION), ("log", _MAX_EXPRESSION), ("hit", _MAX_HIT)):
        if len(about.get(name) or "") > limit:
            raise ValueError("the field `%s` of a line has more than %d characters" % (name, limit))
    ranks = about.get("ranks") or []
    if len(ranks) > _MAX_RANKS or not all(type(one) is int for one in ranks):
        raise ValueError("the field `ranks` of a line is no list of at most %d numbers" % _MAX_RANKS)
    if not (0 <= about["id"] <= _MAX_NUMBER and 1 <= about["line"] <= _MAX_NUMBER):
        raise ValueError("a number of a line is out of range")
    for path in (about["file"], about.get("or_file") or about["file"]):
        if os.path.basename(path) in ("", ".", ".."):
            raise ValueError("a line has no name of a file")
    if about.get("log") == "":
        raise ValueError("the log message is empty")


class _Counter:
    """The passes of a line, and one element until its first hit, for a line that hits once."""

    def __init__(self):
        self.passed, self.unclaimed = 0, [True]


def _counter(name):
    """Returns a counter. One with a name goes on when its line is armed again, with others."""
    if name is None:
        return _Counter()
    found = _COUNTERS[name] = _COUNTERS.pop(name, None) or _Counter()
    while len(_COUNTERS) > _MAX_COUNTERS:
        _COUNTERS.popitem(last=False)
    return found


def _paths(path):
    """Returns the absolute paths, or the ends of some, that a path of a request stands for. `./` is the folder that the worker
    runs in: Ray's copy of the job's `working_dir`, if the job has one."""
    if not path.startswith("./"):
        return {os.path.normpath(path)}
    try:
        here = STARTED_IN or os.getcwd()
    except OSError:  # It has been removed.
        return set()
    # Files are imported by a path as in `sys.path`, which may have symbolic links.
    folders = [one for one in list(sys.path) if type(one) is str and one and os.path.realpath(one) == here]
    return {os.path.normpath(os.path.join(folder, path)) for folder in [here] + folders}


class Line:
    """A line to arm, from a request: `file` and `or_file` are matched from the end, by whole components. `messages` takes its
    log messages. Raises ValueError if a field is missing or beyond its limits. With an expression that is not valid the line has
    an error and is never armed, so that the others of a request are."""

    def __init__(self, about, messages):
        _require_valid(about)
        self.id, self.line, self.messages = about["id"], about["line"], messages
        self.files = set().union(*map(_paths, filter(None, (about["file"], about.get("or_file")))))
        self.names = tuple({one.rpartition("/")[2] for one in self.files})
        ranks = about.get("ranks")
        self.once, self.ranks = about.get("once") is True, None if ranks is None else frozenset(ranks)
        self.is_armed, self.error, self.hits, self.dropped = True, None, 0, 0
        try:
            self._compile(about.get("condition"), about.get("log"), about.get("hit"))
        except ValueError as why:
            self.is_armed, self.error = False, shortened(str(why))
        self.counter, self.second, self.in_second = _counter(about.get("counter")), 0, 0

    def _compile(self, condition, log, hit):
        self.condition = _Expression(condition.strip(), "condition") if condition else None
        self.log = _template(log) if log else None
        found = re.fullmatch(r"\s*(==?|>=?|<=?|%|)\s*([0-9]{1,18})\s*", hit) if hit else None
        if hit and not found:
            raise ValueError("the hit count is not valid: write 5, == 5, >= 5, < 5 or % 5")
        self.counts, self.number = found and _COMPARES[found[1]], found and int(found[2])

    def is_in(self, path):
        """Whether it is a line of the file at an absolute path."""
        return path.endswith(self.names) and any(is_file(path, one) for one in self.files)

    def is_for(self, rank):
        """Whether it is armed on a rank. A process without a rank has every line."""
        return rank is None or rank in self.ranks

    def is_due(self):
        """Counts a pass. Exact between threads: CPython switches them at calls and jumps back, not inside of `+= 1`."""
        self.counter.passed = passed = self.counter.passed + 1
        if self.counts is not None and not self.counts(passed, self.number):
            return False
        if self.once:
            try:
                self.counter.unclaimed.pop()  # Only one thread gets it.
            except IndexError:
                return False
        self.hits += 1
        return True

    def is_in_rate(self):
        now = time.monotonic()
        if now - self.second >= 1:
            self.second, self.in_second = now, 0
        self.in_second += 1
        if self.in_second > _MAX_RATE:
            self.dropped += 1
        return self.in_second <= _MAX_RATE

    def text(self, frame, rank, variables):
        text = self.log.value(frame, rank, variables)[:-1]
        return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT - 1] + "\u2026"


def attributes_of_thread(ident):
    """Returns the dictionary of a thread, read without the program's code. Empty if `threading` does not know it."""
    thread = threading._active.get(ident)
    return threading.Thread.__dict__["__dict__"].__get__(thread) if issubclass(type(thread), threading.Thread) else {}


def shortened(text):
    """Cuts an error to its limit, and replaces line feeds and the like."""
    text = "".join(one if one.isprintable() else " " for one in text[:_MAX_ERROR_BYTES])
    return text.encode("utf-8", "replace")[:_MAX_ERROR_BYTES].decode("utf-8", "ignore")


def described(error):
    """The type and the text of an error of an expression; its `__str__` may fail."""
    name = type.__dict__["__name__"].__get__(type(error))
    try:
        return shortened("%s: %s" % (name, error))
    except BaseException as why:
        if is_of_signal(why):
            raise
        return name


def is_of_signal(error):
    """Whether an exception comes from a signal handler of the program that ran in a callback, and not from an expression."""
    if issubclass(type(error), KeyboardInterrupt):
        return True
    handlers = [signal.getsignal(one) for one in signal.valid_signals()]
    codes = {id(one.__code__) for one in handlers if type(one) in (types.FunctionType, types.MethodType)}
    trace = error.__traceback__
    while trace is not None:
        if id(trace.tb_frame.f_code) in codes:
            return True
        trace = trace.tb_next
    return False
