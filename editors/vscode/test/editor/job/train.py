import ray


def step(rank, loss):
    scaled = loss * (rank + 1)
    if rank == 3:
        scaled = float("nan")
    breakpoint()
    return scaled


@ray.remote(num_cpus=0.5)
class Trainer:
    def __init__(self, rank):
        self.rank = rank

    def train(self):
        total = 0.0
        for epoch in range(3):
            print(f"rank {self.rank} begins epoch {epoch}.", flush=True)
            total += step(self.rank, 0.5 + epoch)
        return total


ray.init()
ranks = [
    Trainer.options(
        runtime_env={"env_vars": {"RANK": str(rank), "WORLD_SIZE": "8"}}
    ).remote(rank)
    for rank in range(8)
]
print(ray.get([trainer.train.remote() for trainer in ranks]))
