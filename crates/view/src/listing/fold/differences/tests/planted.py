# Four ranks of one class, each looked at as it waits in a debugger's helper. In the one of rank 2 a fault is planted.
import collections, dataclasses, json, os, sys, threading, time, types

called = []


class ndarray:
    """As far as the probe asks of numpy's."""
    __module__, __qualname__ = "numpy", "ndarray"

    def __init__(self, shape, kind, content): self.shape, self.content, self.nbytes = shape, content, len(content)
    @property
    def dtype(self): return types.SimpleNamespace(kind="f", str=self.content[:3].decode())
    def tobytes(self): return self.content


numpy = sys.modules["numpy"] = types.ModuleType("numpy")
numpy.ndarray = ndarray


class Meta(type):
    def __eq__(cls, other): called.append("meta =="); return cls is other
    def __hash__(cls): called.append("meta hash"); return 1
    def __getattribute__(cls, name): called.append("meta get " + name); return type.__getattribute__(cls, name)
    def __instancecheck__(cls, one): called.append("meta instance"); return True


class Trap(metaclass=Meta):
    def __init__(self): object.__setattr__(self, "inside", 1)
    def __repr__(self): called.append("repr"); raise SystemExit
    def __getattribute__(self, name): called.append("get " + name); return object.__getattribute__(self, name)
    def __getattr__(self, name): called.append("getattr " + name); return 1
    def __eq__(self, other): called.append("=="); return True
    def __hash__(self): called.append("hash"); return 1
    def __len__(self): called.append("len"); return 1
    def __iter__(self): called.append("iter"); return iter([])
    @property
    def boom(self): called.append("boom"); raise SystemExit


class Plain:
    def __init__(self, **all): self.__dict__.update(all)


class Slotted:
    __slots__ = ("momentum", "__weakref__")


Point = collections.namedtuple("Point", "x y")
Config = dataclasses.make_dataclass("Config", ["depth", "names"])


class Trainer:
    def __init__(self, rank):
        self.rank, self.loss, self.api_key = rank, 0.5, "hunter2"
        self.trainer = Plain(optim=Plain(lr=0.1, groups=[{"decay": 0.01}]))
        self.batch = {"x": 1, "labels": 2}
        self.weights = ndarray((8, 2), "f", b"<f4" + bytes(61))
        self.slotted, self.point, self.config = Slotted(), Point(1, 2), Config(3, ["a"])
        self.slotted.momentum = 0.9
        self.trap, self.me, self.lock = Trap(), self, threading.Lock()
        self.loop = Plain(of=self, next=[self])
        self.many = Plain(**{"a%d" % at: at for at in range(10000)})
        # What differs in each process.
        self.pid, self.started, self.port, self.t0 = 4000 + rank, time.time() + rank / 3, 20000 + rank * 7, time.monotonic()
        self.folder, self.text = "/tmp/tmpab12cd%02d/x" % rank, "<Model object at 0x7f%d>" % rank
        self.handler = Plain(pids={"worker_pid": 5000 + rank}, at=time.time() - rank)

    @property
    def boom(self): called.append("boom"); raise SystemExit

    def __getattr__(self, name): called.append("getattr " + name); raise AttributeError(name)

    def step(self, ready, go):
        lr = 0.1
        helper.waits(ready, go)


def environment(trainer):
    os.environ["PYTHONPATH"] = "/other"


def other_class(trainer):
    trainer.trainer.optim = type("Adam", (Plain,), {})(lr=0.1, groups=[{"decay": 0.01}])


PLANTS = {
    "nothing": lambda t: None,
    "environment": environment,
    "nan": lambda t: setattr(t, "loss", float("nan")),
    "learning rate": lambda t: setattr(t.trainer.optim, "lr", 0.3),
    "group": lambda t: t.trainer.optim.groups[0].update(decay=0.5),
    "missing key": lambda t: t.batch.pop("labels"),
    "dtype": lambda t: setattr(t, "weights", ndarray((8, 2), "f", b"<f8" + bytes(61))),
    "shape": lambda t: setattr(t, "weights", ndarray((2, 8), "f", b"<f4" + bytes(61))),
    "content": lambda t: setattr(t, "weights", ndarray((8, 2), "f", b"<f4" + bytes(60) + b"x")),
    "slot": lambda t: setattr(t.slotted, "momentum", 0.8),
    "named tuple": lambda t: setattr(t, "point", Point(1, 3)),
    "dataclass": lambda t: setattr(t.config, "depth", 4),
    "spelling": lambda t: t.batch.update(x=1.0),
    "late attribute": lambda t: setattr(t.many, "a9999", -1),
    "class": other_class,
    "secret": lambda t: setattr(t, "api_key", "hunter3"),
    "module": lambda t: STATE.update(epoch=2),
}
STATE = {"epoch": 1}
helper = types.ModuleType("debugpy")
exec("def waits(ready, go): ready.set(); go.wait()", helper.__dict__)


def main():
    for name, plant in PLANTS.items():
        for rank in range(4):
            trainer = Trainer(rank)
            if rank == 2:
                plant(trainer)
            ready, go = threading.Event(), threading.Event()
            thread = threading.Thread(target=trainer.step, args=(ready, go))
            called.clear()
            thread.start()
            ready.wait()
            answer = EXPRESSION
            go.set()
            thread.join()
            print(json.dumps({"plant": name, "called": called, "answer": json.loads(answer)}))
            os.environ.pop("PYTHONPATH", None)
            STATE.update(epoch=1)


main()
