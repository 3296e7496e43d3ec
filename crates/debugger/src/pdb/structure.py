# Shows and compares paused tasks, in the probe only: the contents of values, and checksums. As in `<structure>`, which
# comes before this, none of the program's code runs.


import re
import time


class _Index(int):
    """The index of a value in a sequence: neither text nor a number of the program."""


def _inside(value, start=0, end=None):
    """The contents of a value from `start` to `end`, as pairs of a name or key and a value."""
    if _is_a(value, dict):
        return list(islice(dict.items(value), start, end))
    for base, items in _SEQUENCES:
        if _is_a(value, base):
            return [(_Index(start + at), one) for at, one in enumerate(islice(items(value), start, end))]
    found = list((_attributes(value) or {}).items())
    if _is_a(value, BaseException):
        found.insert(0, ("args", BaseException.__dict__["args"].__get__(value)))
    elif _is_a(value, type) or any(type(value) is one for one in _DEFINED_KINDS):
        found = []
    else:
        found += _slots(value)
    return found[start:end]


def _count(value):
    """The number of values inside, and whether they are indexed instead of named."""
    if _is_a(value, dict):
        return dict.__len__(value), False
    for base, _ in _SEQUENCES:
        if _is_a(value, base):
            return base.__len__(value), True
    return len(_inside(value)), False


# Of a frame's variables from Python 3.13 on.
_PROXY = type((lambda: sys._getframe().f_locals)())


def _variables(names):
    """The variables of a frame or a module, by name. A namespace object of the program is not read."""
    known = dict.items(names) if _is_a(names, dict) else names.items() if type(names) is _PROXY else ()
    return {name: value for name, value in list(known) if type(name) is str}


def _state(names, is_module=True):
    """Variables of a frame or a module; of a module without what it defines and imports."""
    pairs = []
    for name, value in _variables(names).items():
        if not name[:2] == "__" == name[-2:] and not name.startswith("__pydevd"):
            if not is_module or not (_is_a(value, type) or any(type(value) is one for one in _DEFINED_KINDS)):
                pairs.append((name, value))
    return pairs


_DEFINED_KINDS = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
# The limit of values in one answer.
_MOST = 1000


class _Shown:
    """Renders values as the relay requests: `visible` is "structure", or "text" where a rule shows text as well;
    `show`: patterns of names whose text is shown; `key`: of the checksums, if values are to be compared."""

    def __init__(self, ask):
        self.values = _Values(ask.get("visible") == "structure", ask.get("show") or ())
        self.digests = _Digests(bytes.fromhex(ask["key"])) if ask.get("key") else None
        self.expansion = _Expansion(self.values, self.inner, ask.get("inside", _OF_ALL))

    def begin(self):
        """Begins with the variables of another stack."""
        self.expansion = _Expansion(self.values, self.inner, self.expansion.left)

    def clear(self):
        """Releases the values."""
        self.expansion.seen.clear()
        if self.digests is not None:
            self.digests.done.clear()

    def inner(self, name, value, numbers=True):
        entry = self.entry(name, value, numbers)
        del entry["hid"]
        return entry

    def entry(self, name, value, numbers=True):
        entry = self.values.named(name, value, numbers)
        hid = self.values.hid or entry["cut"]
        if type(name) is _Index:
            entry["name"] = "%d" % name
        found = self.digests.of(value, name) if self.digests is not None else None
        if found is not None:
            entry["digest"], entry["partial"] = found[0], not found[1]
        entry["hid"] = hid
        return entry

    def all(self, pairs, expands=False):
        entries = [(name, self.inner(name, value), value) for name, value in pairs]
        if expands:
            self.expansion.frame(entries)
        return [entry for _, entry, _ in entries]

    def exception(self, error):
        self.values.hid = False
        text = self.values.value(error, _VALUE, 0)[:_VALUE]
        found = self.digests.of(error) if self.digests and self.values.hid else None
        return text + (", checksum %s" % found[0] if found else "")

    def opened(self, ask, scopes):
        """The values inside the one at `path`, or the one called `name`, in the `scopes` of a frame."""
        scopes = [_variables(names) for names in scopes]
        if "name" in ask:
            for at, names in enumerate(scopes):
                if ask["name"] in names:
                    value = names[ask["name"]]
                    return {"scope": at, "variables": [self.openable(ask["name"], ask["name"], value, True)]}
            return {"scope": 0, "variables": []}
        path, names, numbers = ask["path"], scopes[ask["scope"]], True
        if not path:
            pairs = [(name, name, value) for name, value in _state(names, ask["scope"] == 1)[:_MOST]]
        else:
            name, value = path[0], names[path[0]]
            for at in path[1:]:
                self.step(name)
                numbers = numbers and not _is_many(value)
                name, value = _inside(value, at, at + 1)[0]
            self.step(name)
            numbers = numbers and not _is_many(value)
            first = ask.get("start", 0)
            some = _inside(value, first, first + min(ask.get("count") or _MOST, _MOST))
            only, indexed = ask.get("filter"), _count(value)[1]
            if only and indexed != (only == "indexed"):
                some = []
            pairs = [(first + at, key, one) for at, (key, one) in enumerate(some)]
        return {"scope": ask["scope"], "variables": [self.openable(*pair, numbers) for pair in pairs]}

    def step(self, name):
        """Text inside a value that a rule shows is shown too."""
        self.values.hides = self.values.hides and not self.values.shows(name)

    def openable(self, step, name, value, numbers):
        entry = self.entry(name, value, numbers)
        if entry.pop("hid") and self.digests is not None:
            whole = "not compared" if "digest" not in entry else "checksum %s" % entry["digest"]
            entry["value"] += ", %s%s" % (whole, " of a part" if entry.get("partial") else "")
        entry["step"], (entry["inside"], entry["indexed"]) = step, _count(value)
        return entry


# What differs between any two processes that run the same: addresses, and names of temporary files. The relay leaves the same
# out of texts (`without_noise`).
_NOISE = re.compile(
    r" at 0x[0-9A-Fa-f]+\b|\b0x(?:7f|55|56)[0-9A-Fa-f]{10}\b|(?<=/)tmp(?:[a-z0-9_]{8}|\.[A-Za-z0-9]{10})\b")
_NOISY_CHARS = 4096
# Names of process and thread ids, of times, and of readings of a clock that begins anywhere.
_IDS = frozenset("pid ppid tid native_id thread_id ident".split())
_TIMES = frozenset("begin began clock created date deadline heartbeat modified started time timestamp ts updated".split())
_CLOCKS = frozenset("began begin_time heartbeat last_heartbeat last_seen start_time start_ts started started_at t0 tic timestamp".split())
# Seconds around now, in which a number is a time: a job may have begun some weeks ago.
_BEFORE, _AFTER = 30 * 86400, 3600


def _own_start():
    """When this process began, by the clock of `time.monotonic`."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read(4096).rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.monotonic() - age - 1
    except Exception:
        return float("inf")


_BEGAN = _own_start()


def _quiet(text):
    """A text without what differs between any two processes."""
    if len(text) > _NOISY_CHARS or "0x" not in text and "/tmp" not in text:
        return text
    # A short number may be another one.
    if os.getpid() > 999 and "/tmp/" in text:
        text = re.sub(r"(?<!\d)%d(?!\d)" % os.getpid(), "\u2026", text)
    return _NOISE.sub("\u2026", text)


def _noise_of(name, value):
    """What stands for a number that differs between any two processes, by the name that it has; None: it may tell something."""
    kind = type(value)
    if kind is not int and kind is not float:
        return b"time" if _is_datetime(kind) and _is_now(_seconds_before(value)) else None
    name = name.lower() if _is_identifier(name) else ""
    words = name.split("_")
    if kind is int and (name in _IDS or words[-1] in ("pid", "ppid")):
        return b"process"
    now = time.time()
    if kind is float and not value.is_integer() and _is_now(now - value):
        return b"time"
    if not _TIMES.isdisjoint(words) and any(_is_now(now - value / scale) for scale in (1, 10**3, 10**6, 10**9) if abs(value) < 10**20):
        return b"time"
    return b"time" if kind is float and name in _CLOCKS and _BEGAN <= value <= time.monotonic() else None


def _is_now(before):
    return -_AFTER < before < _BEFORE


def _is_datetime(kind):
    return _type_name(kind) == "datetime.datetime" and _of_module(kind, "datetime", "datetime")


def _seconds_before(value):
    """How long ago a datetime was. It is read without its time zone, which may be the program's."""
    return (type(value).fromtimestamp(time.time()) - value.replace(tzinfo=None)).total_seconds()


class _Digests:
    """Checksums of values with a `key`, by which equal values are found without showing them.

    `of(value, name)` gives (checksum, whole), or None where nothing of the value can be compared. Of one that is not `whole`, a
    part was not compared: another checksum is another value, the same checksum says nothing. A checksum is of types and content
    and never of an address, nor of what else differs between processes (`_noise_of`). Numbers are equal by value: 1 and 1.0. At
    most so many values and bytes are gone through for one, and some times that for all, in so many `seconds` of processor time
    for all. None of the program's code is run.
    """

    def __init__(self, key, values=400000, size=1 << 28, seconds=2.0):
        import hashlib

        self.hash = hashlib.blake2b
        self.key, self.most, self.left, self.seconds = key, (values, size), [2 * values, 4 * size], seconds
        # Of what was gone through: each itself, so that no other has its address, what came of it, and whether that is the whole.
        # Of those that hold each other, by which cycle they belong together.
        self.done, self.cycles, self.loose = {}, {}, []

    def of(self, value, name=None):
        noise = _noise_of(name, value)
        if noise is not None:
            return self.hash(noise, key=self.key, digest_size=8).hexdigest(), True
        self.values, self.size = first = [min(pair) for pair in zip(self.most, self.left)]
        self.whole, self.within, self.known, self.outermost, self.deepest = True, {}, False, self.NONE, 0
        self.loose.clear()
        self.is_cut = False
        self.until = time.thread_time() + self.seconds
        try:
            text = self.fold(value)
        except Exception:  # Changed concurrently, too deep, or too late.
            return None
        finally:
            self.seconds = self.until - time.thread_time()
            self.left = [left - was + now for left, was, now in zip(self.left, first, (self.values, self.size))]
        # What others have used up is no property of this value.
        if not self.known or self.is_cut and first != list(self.most):
            return None
        return self.hash(text, key=self.key, digest_size=8).hexdigest(), self.whole

    def part(self, tag, data):
        self.known = True
        data = memoryview(data).cast("B") if len(data) else b""
        if len(data) > self.size:
            return self.too_large(tag, len(data))
        self.size -= len(data)
        text = bytes(data) if len(data) <= 64 else b"#" + self.hash(data, digest_size=16).digest()
        return b"%d:%s%d:%s" % (len(tag), tag, len(text), text)

    def too_large(self, tag, count):
        self.known, self.whole, self.is_cut, self.size = True, False, True, 0
        return b"%d:%sof %d" % (len(tag), tag, count)

    def unknown(self, tag):
        self.whole = False
        return b"?%d:%s" % (len(tag), tag)

    def fold(self, value):
        kind, self.values = type(value), self.values - 1
        if kind is float and value.is_integer() and abs(value) < 1 << 63:
            value, kind = int(value), int
        if kind is str:
            value = _quiet(value)
        # A fast path: most values are short and of these types.
        if kind is str and len(value) <= 64 or kind is float or kind is int and -1 << 63 <= value < 1 << 63:
            data = value.encode("utf-8", "surrogatepass") if kind is str else b"%d" % value if kind is int else repr(value).encode()
            if len(data) <= 64 and len(data) <= self.size and self.values > 0:
                self.known, self.size = True, self.size - len(data)
                return b"%s%d:%s" % (b"s" if kind is str else b"i" if kind is int else b"f", len(data), data)
        tag = _type_name(kind).encode("utf-8", "replace")
        if value is None or value is Ellipsis or kind is bool:
            return self.part(tag, repr(value).encode())
        if self.values <= 0:
            self.is_cut = True
            return self.unknown(tag)
        for base, data in self.SCALARS:
            if _is_a(value, base):
                count = base.__len__(value) if base in self.SIZED else int.bit_length(value) // 8 if base is int else 0
                # Not copied if it is too large.
                text = self.part(tag, data(value)) if count <= self.size else self.too_large(tag, count)
                return text if kind is base else self.nested(tag, value, lambda: text + self.members(value, kind, base))
        for base, content in self.CONTAINERS:
            if _is_a(value, base):
                made = content(self, value)
                return self.nested(tag, value, made if kind is base else lambda: made() + self.members(value, kind, base))
        if _is_a(value, type):
            return self.part(b"type", _type_name(value).encode("utf-8", "replace"))
        number = _number(value, kind, _type_name(kind))
        if number is not None:
            return self.fold(number)
        if _is_datetime(kind):
            self.whole = self.whole and value.tzinfo is None
            return self.part(tag, value.replace(tzinfo=None).isoformat().encode())
        known = self.array_once(value, kind, tag)
        if known is not None:
            return known
        if kind is types.FunctionType and not value.__closure__:
            return self.nested(tag, value, lambda: self.of_function(value))
        if _is_plumbing(kind) or not _is_of_python(kind):
            return self.unknown(tag)
        return self.nested(tag, value, lambda: self.members(value, kind))

    def array_once(self, value, kind, tag):
        """What comes of an array; None: it is none."""
        if id(value) in self.done and id(value) not in self.cycles:
            return self.again(value)
        before, self.whole = self.whole, True
        try:
            data = self.array(value, kind, _type_name(kind))
        except Exception:
            return self.unknown(tag)
        text = None if data is None else self.part(tag, data)
        return self.keep(value, text, before, text is not None)

    def nested(self, tag, value, make):
        """Handles values that contain themselves."""
        if time.thread_time() > self.until:
            raise TimeoutError
        cycle = self.cycles.get(id(value))
        depth = len(self.within)
        # Inside of its own cycle it comes out otherwise.
        is_apart = cycle is None or not any(self.cycles.get(one) is cycle for one in self.within)
        if id(value) in self.done and is_apart and depth + self.done[id(value)][3] < self.DEEPEST:
            return self.again(value)
        if id(value) in self.within:
            self.outermost = min(self.outermost, self.within[id(value)])
            return self.part(b"again", b"%d" % (depth - self.within[id(value)]))
        if depth == self.DEEPEST:
            self.deepest = depth
            return self.unknown(tag)
        before, outermost, deepest, loose = self.whole, self.outermost, self.deepest, len(self.loose)
        self.whole, self.outermost, self.deepest, self.within[id(value)] = True, self.NONE, depth, depth
        try:
            text = self.part(tag, make())
        finally:
            del self.within[id(value)]
        self.loose.append(id(value))
        is_apart = self.outermost >= depth
        if self.outermost == depth:
            cycle = cycle or object()
            self.cycles.update((one, cycle) for one in self.loose[loose:])
        if is_apart:
            self.outermost = self.NONE
            del self.loose[loose:]
        self.outermost = min(outermost, self.outermost)
        text = self.keep(value, text, before, is_apart and self.deepest < self.DEEPEST, self.deepest - depth)
        self.deepest = max(deepest, self.deepest)
        return text

    def keep(self, value, text, before, keeps, height=0):
        if keeps and self.values > 0 and self.size > 0 and len(self.done) < self.KEPT:
            self.done[id(value)] = value, text, self.whole, height
        self.whole = self.whole and before
        return text

    def again(self, value):
        _, text, whole, height = self.done[id(value)]
        self.deepest = max(self.deepest, len(self.within) + height)
        self.known, self.whole = True, self.whole and whole
        return text

    def of_list(self, value):
        base = list if _is_a(value, list) else tuple

        def make():
            if base.__len__(value) > self.values:
                self.whole, self.is_cut = False, True
                return b"%d" % base.__len__(value)
            return b"".join(self.fold(one) for one in list(base.__iter__(value)))

        return make

    def of_set(self, value):
        base = set if _is_a(value, set) else frozenset
        return self.unordered(base.__len__(value), lambda: [(one,) for one in list(base.__iter__(value))])

    def of_dict(self, value):
        ordered = getattr(sys.modules.get("collections"), "OrderedDict", None)
        if type(value) is ordered:
            return self.unordered(2 * dict.__len__(value), lambda: list(ordered.items(value)), list)
        return self.unordered(2 * dict.__len__(value), lambda: list(dict.items(value)))

    def unordered(self, count, items, order=sorted):
        def make():
            # Unordered, so beyond the limits only the count is comparable.
            if count > self.values:
                self.whole, self.is_cut = False, True
                return b"%d" % count
            text = b"".join(order(self.pair(*item) for item in items()))
            return text if self.values > 0 and self.size > 0 else b"%d" % count

        return make

    def pair(self, key, *value):
        noise = _noise_of(key, value[0]) if value else None
        return self.fold(key) + (noise or b"".join(self.fold(one) for one in value))

    def of_error(self, value):
        return lambda: self.fold(BaseException.__dict__["args"].__get__(value))

    def of_function(self, value):
        name = _text(dict.get(value.__globals__, "__name__")).encode("utf-8", "replace")
        inside = self.fold(value.__defaults__) + self.fold(value.__kwdefaults__)
        return self.part(b"module", name) + self.of_code(value.__code__) + inside

    def of_code(self, code):
        consts = [one for one in code.co_consts if type(one) is not types.CodeType]
        names = " ".join((code.co_name,) + code.co_names).encode("utf-8", "replace")
        inside = [self.of_code(one) for one in code.co_consts if type(one) is types.CodeType]
        return self.part(b"code", names) + self.part(b"", code.co_code) + b"".join([self.fold(one) for one in consts] + inside)

    def members(self, value, kind, base=object):
        if not _is_of_python(kind, base):
            self.whole = False
        found = list((_attributes(value) or {}).items()) + _slots(value)
        return self.unordered(2 * len(found), lambda: found)()

    def array(self, value, kind, name):
        """The content of an array in this process's memory; None for other values."""
        if name == "numpy.ndarray" and _of_module(kind, "numpy", "ndarray"):
            about = ("%r %s " % (tuple(value.shape), value.dtype.str)).encode()
            plain = value.dtype.kind in "biufcSUmM" and value.nbytes <= self.size
            self.is_cut |= value.nbytes > self.size
            return about + (value.tobytes() if plain else self.unknown(b""))
        if not _is_tensor(kind, name):
            text = _array(value, kind, name)
            return text.encode() if text is not None else None
        torch = sys.modules["torch"]
        about = ("%r %s " % (tuple(value.shape), value.dtype)).encode()
        bytes_of = value.numel() * value.element_size()
        self.is_cut |= bytes_of > self.size
        # Reading other devices or distributed tensors could block.
        if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized or bytes_of > self.size:
            return about + self.unknown(b"")
        plain = value.detach().contiguous().reshape(-1)
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj()).contiguous().reshape(-1)
        return about + (plain.view(torch.uint8).numpy().tobytes() if bytes_of else b"")

    # The limits of values that are kept, and of values in each other. What is deeper is not compared: Python's stack ends.
    SIZED = (str, bytes, bytearray)
    KEPT, DEEPEST, NONE = 20000, 64, 1 << 30
    SCALARS = (
        (int, lambda value: int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True)),
        (float, lambda value: float.__repr__(value).encode()), (complex, lambda value: complex.__repr__(value).encode()),
        (str, lambda value: str.encode(value, "utf-8", "surrogatepass")), (bytes, lambda value: bytes.__getitem__(value, slice(None))),
        (bytearray, lambda value: bytearray.__getitem__(value, slice(None))), (range, lambda value: b"%x %x %x" % (value.start, value.stop, value.step)),
    )
    CONTAINERS = (
        (list, of_list), (tuple, of_list), (set, of_set), (frozenset, of_set), (dict, of_dict), (BaseException, of_error),
    )


def _is_of_python(kind, base=object):
    """Whether its values hold their data beyond `base` in attributes and slots, as classes defined in Python do."""
    ordered = getattr(sys.modules.get("collections"), "OrderedDict", None)
    if any(one is ordered for one in _mro(kind)):
        base = ordered
    own = [one for one in _mro(kind) if not any(one is known for known in _mro(base))]
    members = sum(type(one) is types.MemberDescriptorType for known in own for one in list(_dict(known).values()))
    words = members + (_dictoffset(kind) not in (0, -1, _dictoffset(base))) + (_weakrefoffset(kind) > max(0, _weakrefoffset(base)))
    return _basicsize(kind) <= _basicsize(base) + 8 * words and _itemsize(kind) == _itemsize(base) and _attributes_known(kind)


_basicsize, _itemsize, _dictoffset, _weakrefoffset = (
    type.__dict__["__%s__" % name].__get__ for name in ("basicsize", "itemsize", "dictoffset", "weakrefoffset")
)


def _attributes_known(kind):
    """Whether its `__dict__` is Python's own, if it has one."""
    for base in _mro(kind):
        found = _dict(base).get("__dict__")
        if found is not None:
            return type(found) is types.GetSetDescriptorType
    return True
