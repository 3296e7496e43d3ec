"""Eight ranks, or RANKS, on all nodes that wait at a breakpoint, of which the fourth has lost its loss and its batch, reads another shard with
another configuration, and has gone on from another step."""
import os

import harness
import numpy
import ray


@ray.remote
class Trainer:
    def step(self, rank, lr):
        loss, batch = 0.6931, list(range(10))
        shard, config, steps, ready = "s3://set/shard-a", {"workers": 4, "seed": [1, 2]}, 1000, True
        if rank == 3:
            loss, batch = float("nan"), []
            shard, config, steps, ready = "s3://set/shard-b", {"workers": 4, "seed": [1, 3]}, 999, None
        self.grads = numpy.full((32, 10), loss)
        breakpoint()
        return [rank, loss == loss, len(batch)]


harness.connect()
nodes = harness.nodes()
ranks = [Trainer.options(name="rank-%d" % rank, **harness.on(nodes[rank % len(nodes)])).remote() for rank in range(int(os.environ.get("RANKS", 8)))]
refs = [actor.step.remote(rank, 0.1) for rank, actor in enumerate(ranks)]
harness.result(ray.get(refs))
