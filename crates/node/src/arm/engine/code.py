"""Where a code object has its lines, and the search for code that is loaded.

The files of this folder are joined in the order code, line, engine, stop, serve, and run as one module in a worker of Ray.
"""
import bisect
import gc
import opcode
import os
import sys
import types
import weakref

# Limits of the search for code in a module: references to follow, objects to visit, and elements of a collection.
_MAX_STEPS, _MAX_OBJECTS, _MAX_COLLECTION = 10, 20000, 1000
# Set in `co_flags` of functions, whose variables are no dictionary (CO_OPTIMIZED).
_HAS_FAST_LOCALS = 1
# Code with such a name is no part of a statement, although it has no `def`.
_UNNAMED = ("<module>", "<lambda>")
# Missing in versions of Python without `sys.monitoring`.
_RESUME, _FOR_ITER = opcode.opmap.get("RESUME"), opcode.opmap.get("FOR_ITER")


class Code:
    """The lines of a code object, those of the code objects in it, and the armed ones."""

    def __init__(self, code):
        raw = code.co_code
        begins = next((at for at in range(0, len(raw), 2) if raw[at] == _RESUME), 0)
        # Python reports no LINE event up to the first RESUME.
        self.own = sorted({line for _, end, line in code.co_lines() if line is not None and end > begins + 2})
        self.starts_at = next((line for at, end, line in code.co_lines() if at <= begins < end), None)
        self.inner = [Code(one) for one in code.co_consts if type(one) is types.CodeType]
        self.first = code.co_firstlineno
        self.last = max([self.first] + self.own[-1:] + [one.last for one in self.inner])
        # A comprehension or generator expression belongs to the statement around it, whose variables its user names.
        self.is_def, self.is_part = code.co_name[:1] != "<", code.co_name[:1] == "<" and code.co_name not in _UNNAMED
        # A weak reference: the program may drop code that it made by exec(). The key is the identity: two may be equal.
        self.code, self.key, self.armed = weakref.ref(code), id(code), {}
        # Kept, because Python makes these tuples anew each time.
        variables = code.co_varnames + code.co_cellvars + code.co_freevars
        self.variables = variables if code.co_flags & _HAS_FAST_LOCALS else ()

    def line(self, number):
        """Returns where a line is armed here: at its own code, or else at the next line that has code. None if other code has
        it: the innermost function that spans the line. So a `def` line is armed at the function's first line."""
        if not self.first <= number <= self.last or self.is_part and number == self.first:
            return None
        exact = number in self.own
        if any(one.first <= number <= one.last and (one.is_def or not exact) for one in self.inner):
            return None
        at = bisect.bisect_left(self.own, number)
        return self.own[at] if at < len(self.own) else None

    def all(self):
        """Yields this and the code objects in it."""
        yield self
        for one in self.inner:
            yield from one.all()


def returns_to_line(code):
    """Returns the offsets where Python comes back to a line within one expression: to a call whose arguments are on further
    lines. It counts as one pass of the line."""
    positions, seen, found = list(code.co_positions()), {}, set()
    for at, _, line in code.co_lines():
        first, last, column, end = positions[at // 2]
        if line is None or end is None:
            continue
        # A `for` statement is passed again for each item.
        if last > first and code.co_code[at] != _FOR_ITER:
            inside = [one for one in seen.get(line, ()) if (first, column) <= one[:2] and one[2:] <= (last, end)]
            found |= {at} if inside else set()
        seen.setdefault(line, []).append((first, column, last, end))
    return found


def is_file(path, file):
    """Whether `file`, an absolute path or the end of one, names `path`."""
    path = os.path.normpath(path)
    return path == file or not file.startswith("/") and path.endswith("/" + file)


def running_frames():
    """Yields the frames of all threads, so that few of them are kept alive."""
    for frame in sys._current_frames().values():
        while frame is not None:
            yield frame
            frame = frame.f_back


def loaded_code(lines):
    """Returns the code in the files of `lines` that is loaded and may not run for a while: in modules, and next to functions
    that run now. Functions of the driver's script are in no module of a worker."""
    found, namespaces = [], {}
    for frame in running_frames():
        path = frame.f_code.co_filename
        if any(one.is_in(path) for one in lines):
            namespaces[id(frame.f_globals)] = frame.f_globals
    for module in list(sys.modules.values()):
        if issubclass(type(module), types.ModuleType):
            # Read as a dictionary: some modules import when they are read.
            names = types.ModuleType.__dict__["__dict__"].__get__(module)
            file = names.get("__file__")
            if type(file) is str and any(one.is_in(file) for one in lines):
                namespaces[id(names)] = names
    for names in namespaces.values():
        found += _code_in(names)
    return found


def _code_in(names):
    """Finds the code objects within a few references of a namespace: functions, methods, and what decorators wrap."""
    found, seen, level = [], {id(names)}, [names]
    for _ in range(_MAX_STEPS):
        below = []
        for one in gc.get_referents(*level):
            if type(one) is types.CodeType:
                found.append(one)
            elif id(one) not in seen and len(seen) < _MAX_OBJECTS and gc.is_tracked(one) and _is_followed(one, names):
                seen.add(id(one))
                below.append(one)
        level = below
    return found


def _is_followed(one, names):
    """Whether to search an object: not other modules, their classes, or data."""
    kind = type(one)
    if kind in (dict, list, tuple, set):
        return len(one) <= _MAX_COLLECTION and not (kind is dict and ("__builtins__" in one or "__spec__" in one))
    if issubclass(kind, type):
        return type.__dict__["__dict__"].__get__(one).get("__module__") == names.get("__name__")
    return not issubclass(kind, (types.ModuleType, types.FrameType))
