"""Four ranks that meet after each step, as at a collective: in a call of C that returns when all are there. The fourth stops by
the module's own breakpoint() while there is a file `stop` in STOPS. RESULT: the steps of each, when there is a file `end`."""
import os
import socket
import threading
import time

import harness
import ray

RANKS, STOPS, HOOK = 4, os.environ["STOPS"], os.environ["HOOK_DIR"]
environment = {
    "working_dir": HOOK,
    "worker_process_setup_hook": "ray_relay_hook.setup",
    "env_vars": {"STOPS": STOPS, "RAY_RELAY_COLLECTIVE_TIMEOUT": "30m"},
}


def told(name):
    return os.path.exists(os.path.join(os.environ["STOPS"], name))


@ray.remote(num_cpus=0)
class Rank:
    def train(self, rank, address):
        import ray_relay_hook

        os.environ["RANK"] = str(rank)
        steps, barrier = 0, socket.create_connection(address)
        while True:
            steps += 1
            time.sleep(0.05)
            ray_relay_hook.breakpoint(when=told("stop"), ranks=[3], group=bool(os.environ.get("GROUP")))
            barrier.sendall(b"here")
            if barrier.recv(1) != b"+":
                return steps


def meets(listener):
    ranks = [listener.accept()[0] for _ in range(RANKS)]
    word = b"+"
    while word == b"+":
        for rank in ranks:
            rank.recv(4, socket.MSG_WAITALL)
        word = b"." if told("end") else b"+"
        for rank in ranks:
            rank.sendall(word)


ray.init(address=os.environ["RAY_ADDRESS"], runtime_env=environment)
listener = socket.create_server(("", 0))
threading.Thread(target=meets, args=[listener], daemon=True).start()
address = (ray.util.get_node_ip_address(), listener.getsockname()[1])
ranks = [Rank.options(name="rank-%d" % rank).remote() for rank in range(RANKS)]
refs = [actor.train.remote(rank, address) for rank, actor in enumerate(ranks)]
harness.ready()
harness.result(ray.get(refs))
