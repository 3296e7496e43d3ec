"""Eight ranks that wait at a breakpoint with values whose own code blocks, ends the process, takes its time, or runs a task."""
import sys
import threading
import time

import harness
import ray


class Value:
    def __init__(self, does):
        self.does = does

    def __repr__(self):
        return self.does() or "done"


def exits():
    sys.exit(3)


@ray.remote(num_cpus=0)
def remote():
    return "by a task"


@ray.remote
class Trainer:
    def step(self, rank):
        does = [
            lambda: threading.Event().wait(),
            exits,
            lambda: time.sleep(2),
            lambda: ray.get(remote.remote()),
        ]
        bad = [Value(does[rank % 4]) for _ in range(20 if rank % 4 == 2 else 1)]
        one, good = bad[0], Value(lambda: None)
        breakpoint()
        return rank


harness.connect()
nodes = harness.nodes()
ranks = [Trainer.options(name="rank-%d" % rank, **harness.on(nodes[rank % len(nodes)])).remote() for rank in range(8)]
harness.result(ray.get([actor.step.remote(rank) for rank, actor in enumerate(ranks)]))
