"""Eight ranks of which the fourth has left the collective: seven wait for it in a socket's recv. Their workers have the
hook of HOOK_DIR, where that is given. Ends when it is killed."""
import os
import socket
import time

import harness
import ray


def barrier():
    ours, theirs = socket.socketpair()
    # Nobody ever writes to `theirs`.
    ours.recv(1)
    theirs.close()


def load(shard):
    while True:
        time.sleep(3600)


@ray.remote(num_cpus=0)
class Trainer:
    def train(self, rank):
        load(9) if rank == 3 else barrier()

    def ping(self):
        return 0


hook = os.environ.get("HOOK_DIR")
harness.connect(**{"working_dir": hook, "worker_process_setup_hook": "ray_relay_hook.setup"} if hook else {})
ranks = [Trainer.options(name="rank-%d" % rank).remote() for rank in range(8)]
ray.get([rank.ping.remote() for rank in ranks])
refs = [actor.train.remote(rank) for rank, actor in enumerate(ranks)]
harness.ready()
ray.get(refs)
