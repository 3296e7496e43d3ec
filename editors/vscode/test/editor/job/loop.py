import time

import ray


def step(rank, batch):
    loss = rank + 1 / (batch + 1)
    time.sleep(0.2)
    return loss


@ray.remote(num_cpus=0.5)
class Trainer:
    def __init__(self, rank):
        self.rank = rank

    def train(self):
        for batch in range(100_000):
            step(self.rank, batch)
            if batch % 5 == 0:
                print(f"rank {self.rank} has batch {batch}.", flush=True)


ray.init()
ranks = [
    Trainer.options(
        runtime_env={"env_vars": {"RANK": str(rank), "WORLD_SIZE": "8"}}
    ).remote(rank)
    for rank in range(8)
]
ray.get([trainer.train.remote() for trainer in ranks])
