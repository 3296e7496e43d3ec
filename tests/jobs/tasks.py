"""Three tasks on different nodes, each at a breakpoint. RESULT [[node, x squared], ...]."""
import harness
import ray


@ray.remote
def square(node, x):
    y = x * x
    breakpoint()
    y = y + 0
    return [node, y]


harness.connect()
nodes = harness.nodes()
places = [nodes[i % len(nodes)] for i in range(3)]
refs = [square.options(**harness.on(node)).remote(node, i + 2) for i, node in enumerate(places)]
harness.ready()
harness.result(ray.get(refs))
