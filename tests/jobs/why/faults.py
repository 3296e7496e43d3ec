"""Four ranks that meet after each step, and a fault in rank 2 from its third step on: FAULT. In workers with the hook of HOOK_DIR.
Prints JOB and its id when that step begins. Ends when it is killed."""
import asyncio
import ctypes
import importlib
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
import numpy
import ray

FAULT, HOOK, RANKS, FAULTY, STEP = os.environ["FAULT"], os.environ["HOOK_DIR"], 4, 2, 3
environment = {
    "working_dir": HOOK,
    "worker_process_setup_hook": "ray_relay_hook.setup",
    "env_vars": {"FAULT": FAULT},
}


def barrier(meeting):
    meeting.sendall(b"here")
    meeting.recv(1)


class Optimizer:
    def __init__(self):
        self.groups = [{"lr": 0.1, "momentum": 0.9}]


class Model:
    def __init__(self):
        self.optimizer = Optimizer()
        self.rows = [[1.0] * 16 for _ in range(4)]
        self.config = {"layers": 2, "seed": 7}
        self.weights = numpy.ones((8, 16), "float32")


def library(version):
    """Imports a package of this version, as another node may have another one."""
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "a_library.py"), "w") as file:
        file.write("__version__ = %r" % version)
    sys.path.insert(0, folder)
    return importlib.import_module("a_library")


def sleeps():
    time.sleep(3600)


def computes():
    until = time.monotonic() + 3600
    while time.monotonic() < until:
        sum(range(1000))


def holds_the_gil():
    re.match("(a+)+$", "a" * 60 + "b")


def loads_from_dead_child():
    queue = multiprocessing.get_context("spawn").Queue()
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,), daemon=True)
    child.start()
    queue.get()


def waits_for_hung_child():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), daemon=True)
    child.start()
    child.join()


class Locks:
    def __init__(self):
        self.first, self.second, self.both = threading.Lock(), threading.RLock(), threading.Barrier(2)

    def backwards(self):
        with self.second:
            self.both.wait()
            with self.first:
                pass

    def forwards(self):
        threading.Thread(target=self.backwards, daemon=True).start()
        with self.first:
            self.both.wait()
            with self.second:
                pass


def receives_from_silent_peer():
    peer = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(peer.getsockname()).recv(1)


@ray.remote(num_cpus=0, resources={"a_gpu_that_is_nowhere": 1})
def never_placed():
    return 1


def waits_for_unplaced_task():
    ray.get(never_placed.remote())


def waits_for_future():
    async def waits():
        await asyncio.get_running_loop().create_future()

    asyncio.run(waits())


def dies():
    os.kill(os.getpid(), 9)


def stops():
    # A worker reports once a second what runs in it: by then the head lists this method.
    time.sleep(3)
    os.kill(os.getpid(), signal.SIGSTOP)


def crashes():
    print("the last line", file=sys.stderr, flush=True)
    ctypes.string_at(0)


def pauses(fault, rank, at):
    """What a healthy job does now and then."""
    if fault == "checkpoints" and at % 30 == STEP:
        time.sleep(8)
    elif fault == "evaluates" and rank == 0 and at % 20 == STEP:
        time.sleep(6)
    elif fault == "compiles" and at == STEP:
        time.sleep(20)
    elif fault == "straggles" and rank == FAULTY:
        time.sleep(0.25)


HANGS = {
    "sleep": sleeps, "slow": computes, "gil": holds_the_gil, "dead-child": loads_from_dead_child, "hung-child": waits_for_hung_child,
    "locks": lambda: Locks().forwards(), "peer": receives_from_silent_peer, "unplaced": waits_for_unplaced_task,
    "future": waits_for_future, "dead": dies, "crash": crashes, "stop": stops,
}


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self):
        self.model, self.loss, self.shard = Model(), 1.0, []

    def differs(self, fault):
        if fault == "nan":
            self.loss = float("nan")
        elif fault == "lr":
            self.model.optimizer.groups[0]["lr"] = 0.01
        elif fault == "key":
            del self.model.config["seed"]
        elif fault == "shape":
            self.model.rows.pop()
        elif fault == "dtype":
            self.model.weights = self.model.weights.astype("float16")

    def step(self, rank, at, fault):
        pauses(fault, rank, at)
        if rank == FAULTY and at == STEP:
            self.differs(fault)
            HANGS.get(fault, lambda: None)()
            if fault == "swallow":
                try:
                    raise ValueError("a batch of size 0")
                except ValueError:
                    return False
        return True

    def train(self, rank, address, fault):
        os.environ["RANK"] = str(rank)
        self.shard = ["sample %d of %d" % (at, rank) for at in range(600 if (rank, fault) == (FAULTY, "shard") else 1000)]
        library("2.0.3" if (rank, fault) == (FAULTY, "version") else "2.1.0")
        # A rank that has returned keeps its connection.
        self.meeting, at = socket.create_connection(address), 0
        while True:
            at += 1
            if not self.step(rank, at, fault):
                return at
            barrier(self.meeting)

    def peer(self, other):
        return ray.get(other[0].peer.remote([self.own]))

    def know(self, own):
        self.own = own


def receives(rank):
    try:
        return rank.recv(4, socket.MSG_WAITALL)
    except OSError:
        return b""


def meets(listener, reached):
    ranks, at = [listener.accept()[0] for _ in range(RANKS)], 0
    while True:
        for rank in ranks:
            while not receives(rank):
                time.sleep(3600)  # It has died: nobody meets any more.
        at += 1
        if at == STEP - 1:
            reached.set()
        time.sleep(0.1)
        for rank in ranks:
            rank.sendall(b"+")


def trains():
    listener, reached = socket.create_server(("", 0)), threading.Event()
    threading.Thread(target=meets, args=[listener, reached], daemon=True).start()
    address = (ray.util.get_node_ip_address(), listener.getsockname()[1])
    ranks = [Trainer.options(name="%s-rank-%d" % (FAULT, rank)).remote() for rank in range(RANKS)]
    refs = [actor.train.remote(rank, address, FAULT) for rank, actor in enumerate(ranks)]
    reached.wait()
    return ranks, refs


def gets_in_a_cycle():
    a, b = [Trainer.options(name="cycle-%s" % name).remote() for name in "ab"]
    ray.get([a.know.remote(a), b.know.remote(b)])
    return [a, b], [a.peer.remote([b])]


ray.init(address=os.environ["RAY_ADDRESS"], runtime_env=environment)
kept = (gets_in_a_cycle if FAULT == "cycle" else trains)()
harness.say("JOB " + ray.get_runtime_context().get_job_id())
# Unlike `ray.get`, it does not end with the first that fails.
ray.wait(kept[1], num_returns=len(kept[1]))
time.sleep(3600)
