"""Eight ranks of which the fourth has left the collective: seven wait for it in a socket's recv. With ODD five wait, one
waits for a lock, one spins, and the last has returned. Their workers have the hook of HOOK_DIR, where that is given. Ends when it is
killed."""
import os
import socket
import threading
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


def locks():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spins():
    while True:
        pass


@ray.remote(num_cpus=0)
class Trainer:
    def train(self, rank):
        load(9) if rank == 3 else barrier()

    def odd(self, rank):
        return {5: locks, 6: spins, 7: int}.get(rank, barrier)()

    def ping(self):
        return 0


hook = os.environ.get("HOOK_DIR")
harness.connect(**{"working_dir": hook, "worker_process_setup_hook": "ray_relay_hook.setup"} if hook else {})
ranks = [Trainer.options(name="rank-%d" % rank).remote() for rank in range(8)]
ray.get([rank.ping.remote() for rank in ranks])
refs = [(actor.odd if "ODD" in os.environ else actor.train).remote(rank) for rank, actor in enumerate(ranks)]
harness.ready()
ray.get(refs)
