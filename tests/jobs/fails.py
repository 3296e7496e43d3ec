"""A task and a method of an actor that raise, in workers with the hook of HOOK_DIR where that is set. Ends when it is killed."""
import os
import time

import harness
import ray

hook = os.environ.get("HOOK_DIR")
# With it, Ray 2.9 would pause every failing task.
os.environ.pop("RAY_DEBUG", None)
harness.connect(**({"working_dir": hook, "worker_process_setup_hook": "ray_relay_hook.setup"} if hook else {}))


def load(shard):
    password = "hunter2"
    rows = {"a": 1}
    return rows[shard], password


@ray.remote(num_cpus=0, max_retries=0)
def train(step):
    return load("shard-%d" % step)


@ray.remote(num_cpus=0)
class Counter:
    async def add(self, n):
        raise ValueError("no", n)


ref, counter = train.remote(7), Counter.remote()
harness.ready()
for ref in (ref, counter.add.remote(3)):
    try:
        ray.get(ref)
    except Exception as why:
        print(type(why).__name__, flush=True)
time.sleep(3600)
