"""A task at a breakpoint on the last node, in a worker with the hook of HOOK_DIR. RESULT 9."""
import os

import harness
import ray

hook = os.environ["HOOK_DIR"]
harness.connect(working_dir=hook, worker_process_setup_hook="ray_relay_hook.setup")


@ray.remote
def square(x):
    y = x * x
    breakpoint()
    return y


ref = square.options(**harness.on(harness.last())).remote(3)
harness.ready()
harness.result(ray.get(ref))
