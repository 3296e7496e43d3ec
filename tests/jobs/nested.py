"""A task that waits for a task at a breakpoint on another node. RESULT 43."""
import harness
import ray


@ray.remote
def inner(x):
    y = x + 1
    breakpoint()
    return y


@ray.remote
def outer(x, options):
    return ray.get(inner.options(**options).remote(x)) + 1


harness.connect()
ref = outer.options(**harness.on("head")).remote(41, harness.on(harness.last()))
harness.ready()
harness.result(ray.get(ref))
