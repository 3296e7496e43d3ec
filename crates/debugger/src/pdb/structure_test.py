# Values of every kind with a planted secret, and values that would notice when code of theirs ran. Prints what is shown.
import collections, dataclasses, enum, functools, json, pathlib, threading, types, uuid

SECRET = "hunter2-Tr0ub4dor&3"
NUMBERS = list(SECRET.encode())
called = []


class Trap:
    def __repr__(self): called.append("repr"); return SECRET
    __str__ = __format__ = __repr__
    def __getattribute__(self, name): called.append("get " + name); return object.__getattribute__(self, name)
    def __eq__(self, other): called.append("=="); return True
    def __hash__(self): called.append("hash"); return 1
    def __len__(self): called.append("len"); return 1
    def __bool__(self): called.append("bool"); return True
    def __iter__(self): called.append("iter"); return iter([SECRET])
    @property
    def prop(self): called.append("property"); return SECRET
    def __init__(self): object.__setattr__(self, "inside", SECRET)


class Words(str):
    def __getitem__(self, at): called.append("str item"); return SECRET
    def __repr__(self): called.append("str repr"); return SECRET
    def __len__(self): called.append("str len"); return 1
    def encode(self, *how): called.append("encode"); return b"x"


class Many(list):
    def __iter__(self): called.append("list iter"); return iter([])
    def __len__(self): called.append("list len"); return 0


class Keyed(dict):
    def items(self): called.append("items"); return []
    def __getitem__(self, key): called.append("dict item"); return SECRET


class Slotted:
    __slots__ = ("a", "text")
    def __init__(self): self.a, self.text = 1, SECRET


class Color(enum.Enum):
    RED = SECRET


class Level(str, enum.Enum):
    HIGH = SECRET


class Failed(ValueError):
    def __str__(self): called.append("exception str"); return SECRET


class Plain:
    def __init__(self, **all): self.__dict__.update(all)


Point = collections.namedtuple("Point", "name x")
Data = dataclasses.make_dataclass("Data", ["user", "text"])

# Each takes a value and has it inside.
LEAVES = [
    SECRET, SECRET.encode(), bytearray(SECRET.encode()), Words(SECRET), memoryview(SECRET.encode()), NUMBERS, tuple(NUMBERS),
    set(NUMBERS), frozenset(NUMBERS), [float(one) for one in NUMBERS], int.from_bytes(SECRET.encode(), "big"),
    [NUMBERS[at:at + 4] for at in range(0, len(NUMBERS), 4)], dict(enumerate(NUMBERS)), [complex(one, one) for one in NUMBERS],
    [range(one, one + 1) for one in NUMBERS], [{"n": one} for one in NUMBERS], [Plain(n=one) for one in NUMBERS], Trap(), Color.RED,
    Level.HIGH, Failed(SECRET), Failed(*NUMBERS), pathlib.PurePosixPath(SECRET), uuid.UUID(int=int.from_bytes(SECRET[:16].encode(), "big")),
    type(SECRET, (), {}), type(SECRET, (), {})(), types.SimpleNamespace(text=SECRET), collections.deque([SECRET]), lambda: SECRET,
    functools.partial(print, SECRET), {SECRET: 1}, {SECRET.encode(): 1}, {(SECRET,): 1}, {Words(SECRET): 1}, Slotted(), Point(SECRET, 1),
    Data(SECRET, SECRET), Plain(**{SECRET: 1}), threading.Lock(), (one for one in [SECRET]), iter([SECRET]), {"a": SECRET}.items(),
]
CONTAINERS = [
    lambda v: v, lambda v: [v], lambda v: (v,), lambda v: [v, 1], lambda v: {"key": v}, lambda v: {1: v}, lambda v: Plain(attribute=v),
    lambda v: Many([v]), lambda v: Keyed(key=v), lambda v: Point("x", v), lambda v: Data("x", v), lambda v: Failed(v),
    lambda v: types.SimpleNamespace(of=v), lambda v: collections.OrderedDict(of=v), lambda v: collections.defaultdict(list, of=v),
    lambda v: [v] * 20,
]
NAMES = ["x", "password", "self", SECRET]


def leaks(text):
    numbers = ", ".join(str(one) for one in NUMBERS[:9])
    return any(one in text for one in (SECRET, SECRET[2:9], repr(SECRET)[1:-1], SECRET.encode().hex(), numbers, str(NUMBERS[0]) + ", " + str(NUMBERS[1])))


def opened(value, numbers, depth=0):
    """Everything that can be opened in a value, as text."""
    numbers = numbers and not _is_many(value)
    for name, one in _inside(value)[:20]:
        yield json.dumps(values.named(name, one, numbers))
        if depth < 2:
            yield from opened(one, numbers, depth + 1)


values, count, leaked = _Values(hides=True), 0, []
assert leaks(json.dumps(_Values().named("x", [SECRET]))) and not leaks(json.dumps(values.named("x", [SECRET])))
called.clear()
for leaf in LEAVES:
    for within in CONTAINERS:
        try:
            first = within(leaf)
        except TypeError:
            continue
        for again in CONTAINERS:
            value = again(first)
            for name in NAMES:
                count += 1
                text = json.dumps(values.named(name, value))
                if leaks(text):
                    leaked.append(text[:200])
        for text in opened(first, True):
            count += 1
            if leaks(text):
                leaked.append(text[:200])

# A key of its own for each answer, and equal values in other objects.
first, again, other = (_Digests(key) for key in (b"1", b"1", b"2"))
same, differ = [], []
MAKE = [
    lambda n: SECRET + str(n), lambda n: [SECRET, n], lambda n: {"a": n, "b": [SECRET]}, lambda n: {SECRET: n}, lambda n: {n, "x"},
    lambda n: Plain(a=n, b=SECRET), lambda n: Point(SECRET, n), lambda n: Data(SECRET, n), lambda n: Failed(SECRET, n),
    lambda n: "x" * 5000000 + str(n), lambda n: {str(at): at for at in range(100000 + n)}, lambda n: float(n), lambda n: 10 ** 400 + n,
    lambda n: pathlib.PurePosixPath("/a", str(n)), lambda n: frozenset([(n,)]), lambda n: uuid.UUID(int=n), lambda n: Words(n),
    lambda n: (b"x", bytearray([n])), lambda n: [1.0, n, None, True], lambda n: Color.RED if n == 1 else Level.HIGH, lambda n: (n, n),
    lambda n: collections.OrderedDict(a=n), lambda n: collections.defaultdict(list, a=n), lambda n: Many([n]), lambda n: Slotted() if n == 1 else 0,
]
for at, make in enumerate(MAKE):
    one, two, three = first.of(make(1)), again.of(make(1)), first.of(make(2))
    if one is None or one != two or not one[1]:
        same.append(at)
    if one == three or one == other.of(make(1)) or SECRET in one[0]:
        differ.append(at)
loop = []
loop.append(loop)
assert first.of(loop) == again.of([loop][0]) and first.of({"a": 1, "b": 2}) == again.of({"b": 2, "a": 1})
# What cannot be read is not compared, alone or inside of something.
opaque = [first.of(threading.Lock()), first.of(iter([])), first.of((x for x in [])), first.of(memoryview(b"x"))]
inside = first.of([1, threading.Lock()])
assert opaque == [None] * 4 and inside[1] is False and inside[0] != first.of([2, threading.Lock()])[0]
assert first.of({str(at) for at in range(500000)})[1] is False and first.of(Trap())[1]
shown = _Values(hides=True, show=["path", "shard*"])
assert shown.named("path", "a")["value"] == "'a'" and shown.named("shard_1", ["b"])["value"] == "['b']"
assert shown.named("x", {"path": "a", "b": "c"})["value"] == "{'path': 'a', 'b': \u2039str, 1 characters\u203a}"
assert shown.named("paths", "a")["value"] == "str, 1 characters"
texts = {one["name"]: one["value"] for one in (values.named(*pair) for pair in (
    ("text", SECRET), ("data", b"abc"), ("one", 5), ("loss", 0.25), ("flag", True), ("none", None), ("red", Color.RED),
    ("few", [1, 2, "x"]), ("many", NUMBERS), ("named", {"lr": 0.1, "my key": 2}), ("point", Point("a", 3)), ("cls", Plain),
    ("plain", Plain(rank=3, name="x")), ("failed", Failed("a", 3)), ("big", 10 ** 30), ("words", Words("abc")),
    ("a b", 1)))}
print(json.dumps({"tried": count, "leaked": leaked[:9], "called": sorted(set(called)), "same": same, "differ": differ, "texts": texts}))
