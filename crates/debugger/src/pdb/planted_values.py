# Values of every kind with a planted secret, and values that record when their code runs.
import collections, dataclasses, datetime, enum, functools, json, pathlib, threading, types, uuid

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


class Token:
    __slots__ = ("n",)
    def __init__(self, n): self.n = n


class Long(int):
    def __repr__(self): called.append("int repr"); return SECRET
    __str__ = __repr__


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
    [Token(one) for one in NUMBERS], range(int.from_bytes(SECRET.encode(), "big")), range(Long(1), Long(5)),
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
    return any(one in text for one in (SECRET, str(int.from_bytes(SECRET.encode(), "big")), SECRET[2:9], repr(SECRET)[1:-1], SECRET.encode().hex(), numbers, str(NUMBERS[0]) + ", " + str(NUMBERS[1])))


def each():
    """Each of them in each container."""
    for leaf in LEAVES:
        for within in CONTAINERS:
            try:
                yield within(leaf)
            except TypeError:
                pass


def holds(value):
    """Fails with it, and with a frame of variables that have it."""
    x, password, self = value, [value], Plain(attribute=value)
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = [make(value) for make in CONTAINERS]
    error = Failed(value)
    error.__notes__ = [SECRET, value]
    raise error from KeyError(value)
