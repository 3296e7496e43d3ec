# Shows and compares paused tasks, in the probe only: the contents of values, and checksums. As in `<structure>`, which
# comes before this, none of the program's code runs.


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
    elif _is_a(value, type) or type(value) in (types.ModuleType, types.FunctionType):
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


# The limit of values in one answer.
_MOST = 1000


class _Shown:
    """Renders values as the relay requests: `visible` is "structure", or "text" where a rule shows text as well;
    `show`: patterns of names whose text is shown; `key`: of the checksums, if values are to be compared."""

    def __init__(self, ask):
        self.values = _Values(ask["visible"] == "structure", ask.get("show") or ())
        self.digests = _Digests(bytes.fromhex(ask["key"])) if ask.get("key") else None

    def entry(self, name, value, numbers=True):
        entry = self.values.named(name, value, numbers)
        hid = self.values.hid or entry["cut"]
        if type(name) is _Index:
            entry["name"] = "%d" % name
        found = self.digests.of(value) if self.digests is not None else None
        if found is not None:
            entry["digest"], entry["partial"] = found[0], not found[1]
        entry["hid"] = hid
        return entry

    def all(self, pairs):
        entries = [self.entry(name, value) for name, value in pairs]
        for entry in entries:
            del entry["hid"]
        return entries

    def exception(self, error):
        self.values.hid = False
        text = self.values.value(error, _VALUE, 0)[:_VALUE]
        found = self.digests.of(error) if self.digests and self.values.hid else None
        return text + (", checksum %s" % found[0] if found else "")

    def opened(self, ask, scopes):
        """The values inside the one at `path`, or the one called `name`, in the `scopes` of a frame."""
        if "name" in ask:
            for at, names in enumerate(scopes):
                if ask["name"] in names:
                    value = names[ask["name"]]
                    return {"scope": at, "variables": [self.openable(ask["name"], ask["name"], value, True)]}
            return {"scope": 0, "variables": []}
        path, names, numbers = ask["path"], scopes[ask["scope"]], True
        if not path:
            is_module, pairs = ask["scope"] == 1, []
            for name, value in list(names.items()):
                if type(name) is str and not name[:2] == "__" == name[-2:] and not name.startswith("__pydevd"):
                    if not is_module or not (_is_a(value, type) or type(value) in (types.ModuleType, types.FunctionType)):
                        pairs.append((name, value))
            pairs = [(name, name, value) for name, value in pairs[:_MOST]]
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


def _slots(value):
    """The values in the slots of an instance."""
    found = []
    for base in _mro(type(value)):
        for name, slot in list(_dict(base).items()):
            if type(slot) is types.MemberDescriptorType and type(name) is str:
                try:
                    found.append((name, slot.__get__(value)))
                except AttributeError:
                    pass  # The slot is empty.
    return found


class _Digests:
    """Checksums of values with a `key`, by which equal values are found without showing them.

    `of(value)` gives (checksum, whole), or None where nothing of the value can be compared. Of one that is not `whole`, a part
    was not compared: another checksum is another value, the same checksum says nothing. A checksum is of types and content
    and never of an address; at most so many values and bytes are gone through for one, and four times that for all. None of the
    program's code is run.
    """

    def __init__(self, key, values=400000, size=1 << 28):
        import hashlib

        self.hash = hashlib.blake2b
        self.key, self.most, self.left = key, (values, size), [4 * values, 4 * size]

    def of(self, value):
        self.values, self.size = first = [min(pair) for pair in zip(self.most, self.left)]
        self.whole, self.within, self.known = True, {}, False
        try:
            text = self.fold(value)
        except Exception:  # Changed concurrently, or too deep.
            return None
        finally:
            self.left = [left - was + now for left, was, now in zip(self.left, first, (self.values, self.size))]
        return (self.hash(text, key=self.key, digest_size=8).hexdigest(), self.whole) if self.known else None

    def part(self, tag, data):
        self.known = True
        data = memoryview(data).cast("B") if len(data) else b""
        if len(data) > self.size:
            self.whole, self.size, data = False, 0, b"of %d" % len(data)
        self.size -= min(self.size, len(data))
        text = bytes(data) if len(data) <= 64 else b"#" + self.hash(data, digest_size=16).digest()
        return b"%d:%s%d:%s" % (len(tag), tag, len(text), text)

    def unknown(self, tag):
        self.whole = False
        return b"?%d:%s" % (len(tag), tag)

    def fold(self, value):
        kind, self.values = type(value), self.values - 1
        # A fast path: most values are short and of these types.
        if kind is str or kind is float or kind is int and -1 << 63 <= value < 1 << 63:
            data = value.encode("utf-8", "surrogatepass") if kind is str else b"%d" % value if kind is int else repr(value).encode()
            if len(data) <= 64 and len(data) <= self.size and self.values > 0:
                self.known, self.size = True, self.size - len(data)
                return b"%s%d:%s" % (b"s" if kind is str else b"i" if kind is int else b"f", len(data), data)
        tag = _type_name(kind).encode("utf-8", "replace")
        if value is None or value is Ellipsis or kind is bool:
            return self.part(tag, repr(value).encode())
        if self.values <= 0:
            return self.unknown(tag)
        for base, data in self.SCALARS:
            if _is_a(value, base):
                text = self.part(tag, data(value))
                return text if kind is base else self.nested(tag, value, lambda: text + self.members(value, kind, base))
        for base, content in self.CONTAINERS:
            if _is_a(value, base):
                made = content(self, value)
                return self.nested(tag, value, made if kind is base else lambda: made() + self.members(value, kind, base))
        if _is_a(value, type):
            return self.part(b"type", _type_name(value).encode("utf-8", "replace"))
        known = self.array(value, kind, _type_name(kind))
        if known is not None:
            return self.part(tag, known)
        if kind is types.FunctionType and not value.__closure__:
            return self.part(tag, ("%s.%s" % (value.__globals__.get("__name__"), value.__code__.co_name)).encode("utf-8", "replace"))
        if not _is_of_python(kind):
            return self.unknown(tag)
        return self.nested(tag, value, lambda: self.members(value, kind))

    def nested(self, tag, value, make):
        """Handles values that contain themselves."""
        if id(value) in self.within:
            return self.part(b"again", b"%d" % (len(self.within) - self.within[id(value)]))
        self.within[id(value)] = len(self.within)
        try:
            return self.part(tag, make())
        finally:
            del self.within[id(value)]

    def of_list(self, value):
        base = list if _is_a(value, list) else tuple
        return lambda: b"".join(self.fold(one) for one in list(base.__iter__(value)))

    def of_set(self, value):
        base = set if _is_a(value, set) else frozenset
        return self.unordered(base.__len__(value), lambda: [(one,) for one in list(base.__iter__(value))])

    def of_dict(self, value):
        return self.unordered(2 * dict.__len__(value), lambda: list(dict.items(value)))

    def unordered(self, count, items):
        def make():
            # Unordered, so beyond the limits only the count is comparable.
            if count > self.values:
                self.whole = False
                return b"%d" % count
            text = b"".join(sorted(b"".join(self.fold(one) for one in item) for item in items()))
            return text if self.values > 0 and self.size > 0 else b"%d" % count

        return make

    def of_error(self, value):
        return lambda: self.fold(BaseException.__dict__["args"].__get__(value))

    def members(self, value, kind, base=object):
        if not _is_of_python(kind, base):
            self.whole = False
        found = list((_attributes(value) or {}).items()) + _slots(value)
        return self.unordered(2 * len(found), lambda: found)()

    def array(self, value, kind, name):
        """The content of an array in this process's memory; None for other values."""
        number = _number(value, kind, name)
        if number is not None:
            return repr(number).encode()
        if name == "numpy.ndarray" and _of_module(kind, "numpy", "ndarray"):
            about = ("%r %s " % (tuple(value.shape), value.dtype.str)).encode()
            plain = value.dtype.kind in "biufcSUmM" and value.nbytes <= self.size
            return about + (value.tobytes() if plain else self.unknown(b""))
        if not _is_tensor(kind, name):
            text = _array(value, kind, name)
            return text.encode() if text is not None else None
        torch = sys.modules["torch"]
        about = ("%r %s " % (tuple(value.shape), value.dtype)).encode()
        bytes_of = value.numel() * value.element_size()
        # Reading other devices or distributed tensors could block.
        if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized or bytes_of > self.size:
            return about + self.unknown(b"")
        plain = value.detach().contiguous().reshape(-1)
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj()).contiguous().reshape(-1)
        return about + (plain.view(torch.uint8).numpy().tobytes() if bytes_of else b"")

    SCALARS = (
        (int, lambda value: int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True)),
        (float, lambda value: float.__repr__(value).encode()), (complex, lambda value: complex.__repr__(value).encode()),
        (str, lambda value: str.encode(value, "utf-8", "surrogatepass")), (bytes, lambda value: bytes.__getitem__(value, slice(None))),
        (bytearray, lambda value: bytearray.__getitem__(value, slice(None))), (range, lambda value: repr(value).encode()),
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
