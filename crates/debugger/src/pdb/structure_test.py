# Prints how the planted values are shown, and wrong checksums.

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
snapshot = {"structure": globals()}
exec(SNAPSHOT, snapshot)
ask = {"limit": 1000, "names": 200, "frames": 100, "locals": True, "around": 3, "room": 1000000, "visible": "structure", "key": "0f" * 16}


def shown(first):
    """The output of a snapshot of a task that fails with a value, and of a debugger that opens its variables."""
    asked = dict(ask, shown=_Shown(ask), hides=True, modules={})
    texts = snapshot["_Texts"](asked)
    try:
        holds(first)
    except Failed as error:
        yield [snapshot["_raise"]({}, one, asked, texts) for one, _ in _errors(error)[0]]
        frame = error.__traceback__.tb_next.tb_frame
        for path in ([], ["x"], ["self"]):
            yield asked["shown"].opened({"scope": 0, "path": path}, (frame.f_locals, {}))


for first in each():
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
    # Each leaf in some of the containers: with what is inside of 16 variables that takes longest.
    for told in shown(first) if count % 5 == 0 else ():
        count += 1
        text = json.dumps(told)
        if leaks(text):
            leaked.append(text[:200])

class Point3:
    __slots__ = ("z",)


# Another key for each answer, and equal values in other objects.
first, again, other = (_Digests(key, seconds=1000) for key in (b"1", b"1", b"2"))
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



def ring(order):
    """Three that hold each other, in an object that has them in this order."""
    all = {name: Plain(name=name) for name in "abc"}
    for name, after in zip("abc", "bca"):
        all[name].next, all[name].shared = all[after], [1, {"k": (1,)}]
    return [Plain(**{name: all[name] for name in order})] + [all[name] for name in "abc"]


# Whatever is gone through first, and kept.
rings = set()
for order in ("abc", "cba", "bca"):
    for begin in range(4):
        digests, objects = _Digests(b"1"), ring(order)
        digests.of(objects[begin])
        rings.add(tuple(digests.of(one) for one in objects))
assert len(rings) == 1 and all(whole for _, whole in rings.pop())
now, when = int(time.time()) + 0.25, datetime.datetime.now()
# Numbers are compared by value, and what differs in each process is left out.
for one, two in ((1, 1.0), ([2.0], [2]), (float("nan"), float("nan")), ("/tmp/tmpab12cd34/x", "/tmp/tmpzz12cd34/x"),
                 ("<M at 0x7f01>", "<M at 0x7f02>"), ("0x7f3a00001234", "0x55aa00001234"), ({"pid": 7}, {"pid": 8}), ({"worker_pid": 7}, {"worker_pid": 8}),
                 (now - 7, now - 800), ({"started_at": int(now) - 7}, {"started_at": int(now) - 800}),
                 ({"t0": time.monotonic()}, {"t0": time.monotonic() - 0.125}), (when, when - datetime.timedelta(days=1))):
    assert first.of(one) == first.of(two), (one, two)
for one, two in ((1, True), (float("nan"), 0.0), ("/tmp/a", "/tmp/b"), ({"size": 7}, {"size": 8}), (1764415207, 1764415208),
                 ({"tokens_seen": 1500000000}, {"tokens_seen": 2200000000}), (1500000000.5, 2200000000.5), ({"deadline": 5.5}, {"deadline": 6.5}),
                 ({"t0": 0.5}, {"t0": 1.5}), ({"shard_start": int(now)}, {"shard_start": int(now) + 1}), ({"last_tid": 1}, {"last_tid": 2}),
                 ("2023-06-30 00:00:00", "2024-06-30 00:00:00"), ("0x1f2e3d4c5b6a7988", "0xdeadbeef00112233"),
                 (datetime.datetime(1970, 1, 1), datetime.datetime(2030, 1, 1)),
                 (0.5, 0.25), ({"step_time": 0.5}, {"step_time": 30.0}), ("0xff", "0xfe"), (10 ** 400, 10 ** 401)):
    assert first.of(one) != first.of(two), (one, two)
assert first.of(collections.OrderedDict(a=1, b=2)) != first.of(collections.OrderedDict(b=2, a=1))
# Functions are compared by their code and defaults.


def scheduled(lr):
    def schedule(step, base=lr): return base / step
    return schedule


code = "f = lambda x: x %s 2"
made = {}
for sign in "+-":
    exec(code % sign, {}, made.setdefault(sign, {}))
assert first.of(scheduled(0.1)) == again.of(scheduled(0.1)) != first.of(scheduled(0.2)) and first.of(made["+"]["f"]) != first.of(made["-"]["f"])
# What is left of the limits makes no other checksum, and what is larger is not copied.
small = _Digests(b"1", size=1 << 20)
alike = [small.of(bytearray(900000)) for _ in range(6)]
assert {one for one in alike if one is not None} == {alike[0]} and alike[0][1] and alike[-1] is None
assert _Digests(b"1", size=100).of("x" * 200)[1] is False and _Digests(b"1", size=100).of(1 << 9999)[1] is False
# Objects that all know each other take no longer than the limit.
friends = [Plain() for _ in range(12)]
for one in friends:
    one.__dict__.update(("c%d" % at, other) for at, other in enumerate(friends))
digests, began = _Digests(b"1", seconds=0.1), time.thread_time()
assert digests.of(friends[0]) is None and digests.of([1]) is None and digests.of(1) and time.thread_time() - began < 1
# After an answer nothing holds its values.
renders = _Shown(ask)
renders.all([("self", Plain(a=[Plain()]))], True)
renders.clear()
assert not renders.expansion.seen and not renders.digests.done
# More than the limit is not gone through, and deeper than the limit is not compared.
long, began = list(range(3000000)), time.monotonic()
assert _Digests(b"1").of(long)[1] is False and time.monotonic() - began < 2
deep = [Plain(x=1)]
for _ in range(200):
    deep.append(Plain(next=deep[-1]))
assert first.of(Plain(head=deep[-1], lr=1))[1] is False and first.of(Plain(head=deep[-1], lr=1)) != first.of(Plain(head=deep[-1], lr=2))
for before in (deep[100], deep[150], deep[199]):
    digests = _Digests(b"1")
    digests.of(before)
    assert digests.of(deep[-1]) == _Digests(b"1").of(deep[-1])
# One value that cannot be read does not end the others.
Slotted.of_another = Point3.__dict__["z"]
several = _Shown(ask).all([("self", Plain(bad=Slotted(), good={"lr": 0.1}))], True)
assert "self.good['lr']" in json.dumps(several) and "self.bad.a" in json.dumps(several)
del Slotted.of_another
# Namespaces and modules of the program's own classes.


class Namespace(dict):
    def items(self): called.append("namespace items"); return dict.items(self)
    def get(self, *key): called.append("namespace get"); return dict.get(self, *key)


class Own:
    def __getattribute__(self, name): called.append("module get " + name); return object.__getattribute__(self, name)


called.clear()
names = Namespace({"__name__": Trap(), ("a",): 1, "sys": sys})
exec("frame, function = sys._getframe(), lambda: 1", names)
first.of({"function": names["function"]})
asked = dict(ask, shown=_Shown(ask), hides=True, modules={})
assert [one["name"] for one in snapshot["_look"](names["frame"], 1, asked, snapshot["_Texts"](asked))["variables"]][:2] == ["__name__", "sys"]
plain = {"__name__": SECRET, "sys": sys}
exec("frame = sys._getframe()", plain)
snapshot["_look"](plain["frame"], 1, asked, snapshot["_Texts"](asked))
asked["expansion"], sys.modules["own"] = asked["shown"].expansion, Own()
assert not leaks(json.dumps(snapshot["_process"](asked))) and list(asked["modules"]) == ["object"]
del sys.modules["own"]
assert not snapshot["_is_helper"](names["frame"]) and not called, called
names.clear()
# Unreadable values are not compared, alone or nested.
opaque = [first.of(threading.Lock()), first.of(iter([])), first.of((x for x in [])), first.of(memoryview(b"x"))]
inside = first.of([1, threading.Lock()])
assert opaque == [None] * 4 and inside[1] is False and inside[0] != first.of([2, threading.Lock()])[0]
assert _Digests(b"1").of({str(at) for at in range(500000)})[1] is False and first.of(Trap())[1]
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
