"""Tasks at breakpoints of the legacy debugger (RAY_DEBUG=legacy) on two nodes; the first calls another. RESULT [[x, twice], ...]."""
import harness
import ray


@ray.remote
def double(x):
    twice = x * 2
    return twice


@ray.remote
def outer(x, node):
    breakpoint()
    x = x + 0
    twice = ray.get(double.options(**harness_on(node)).remote(x))
    return [x, twice]


def harness_on(node):
    return {"num_cpus": 0, "resources": {node: 0.001}}


harness.connect()
nodes = harness.nodes()
places = [nodes[0], nodes[-1]]
refs = [outer.options(**harness.on(node)).remote(i + 1, node) for i, node in enumerate(places)]
harness.ready()
harness.result(ray.get(refs))
