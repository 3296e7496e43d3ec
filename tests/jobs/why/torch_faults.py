"""Ranks of torch.distributed with gloo, and a fault in rank 2 from its third step on: FAULT. LAYOUT is "actors", "train" (Ray Train) or
"groups" (a controller, two trainers and two evaluators with a group each). In workers with the hook of HOOK_DIR. Prints JOB and its id
when the ranks are there. Ends when it is killed."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
import ray

FAULT, LAYOUT, HOOK, RANKS, FAULTY, STEP, STEPS = os.environ["FAULT"], os.environ["LAYOUT"], os.environ["HOOK_DIR"], 4, 2, 3, 40
environment = {
    "working_dir": HOOK,
    "worker_process_setup_hook": "ray_relay_hook.setup",
    "env_vars": {"TORCH_FR_BUFFER_SIZE": "2000", "RAY_TRAIN_V2_ENABLED": "1"},
}


def loads_from_dead_child():
    import torch.utils.data

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, at):
            os.kill(os.getpid(), 9)

    # Without a signal handler in the main thread the loader waits for ever.
    list(torch.utils.data.DataLoader(Data(), num_workers=1))


def loads_from_hung_child():
    import torch.utils.data

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, at):
            time.sleep(3600)

    list(torch.utils.data.DataLoader(Data(), num_workers=1))


def goes_wrong(tensor, group):
    """Does what FAULT says, and returns whether the step still takes part in the collective."""
    import torch
    import torch.distributed as dist

    if FAULT == "skipped":
        return False
    if FAULT == "extra":
        dist.all_reduce(tensor, group=group)
    elif FAULT == "shape":
        dist.all_reduce(torch.ones(tensor.numel() - 1), group=group)
        return False
    elif FAULT == "operation":
        dist.all_gather([torch.ones(4) for _ in range(dist.get_world_size(group))], tensor, group=group)
        return False
    elif FAULT == "sleep":
        time.sleep(3600)
    elif FAULT == "loader-dead":
        loads_from_dead_child()
    elif FAULT == "loader-hung":
        loads_from_hung_child()
    elif FAULT == "swallow":
        try:
            raise ValueError("a batch of size 0")
        except ValueError:
            return None
    return True


def steps(rank, group=None):
    import torch
    import torch.distributed as dist

    tensor = torch.ones(4)
    for at in range(STEPS if FAULT != "none" else 10**6):
        takes_part = goes_wrong(tensor, group) if rank == FAULTY and at == STEP else True
        if takes_part is None:
            return "left"
        if takes_part:
            dist.all_reduce(tensor, group=group)
        time.sleep(0.05)
    return "done"


@ray.remote(num_cpus=0)
class Trainer:
    def address(self):
        import socket

        with socket.socket() as free:
            free.bind(("", 0))
            return "tcp://%s:%d" % (ray.util.get_node_ip_address(), free.getsockname()[1])

    def train(self, rank, address, groups):
        import torch
        import torch.distributed as dist

        os.environ["RANK"] = str(rank)
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
        made = [dist.new_group(ranks, group_desc=name) for name, ranks in groups]
        own = next((group for group, (_, ranks) in zip(made, groups) if rank in ranks), None)
        return steps(rank, own)


def with_actors(groups):
    ranks = [Trainer.options(name="%s-rank-%d" % (FAULT, rank)).remote() for rank in range(RANKS)]
    address = ray.get(ranks[0].address.remote())
    return ranks, [actor.train.remote(rank, address, groups) for rank, actor in enumerate(ranks)]


def in_train():
    import ray.train

    import torch

    torch.set_num_threads(1)
    steps(ray.train.get_context().get_world_rank())


def with_train():
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        in_train, torch_config=TorchConfig(backend="gloo"), scaling_config=ScalingConfig(num_workers=RANKS, resources_per_worker={"CPU": 0.01}),
        run_config=RunConfig(name=FAULT, storage_path=os.path.join("/tmp", "why-%d" % os.getpid())),
    ).fit()


ray.init(address=os.environ["RAY_ADDRESS"], runtime_env=environment)
harness.say("JOB " + ray.get_runtime_context().get_job_id())
if LAYOUT == "train":
    with_train()
else:
    kept = with_actors([("left", [0, 1]), ("right", [2, 3])] if LAYOUT == "groups" else [])
    ray.wait(kept[1], num_returns=RANKS)
time.sleep(3600)
