"""Three tasks on different nodes, each at a breakpoint. RESULT [[node, x squared], ...]."""
import json
import os

import ray


@ray.remote(num_cpus=0)
def square(node, x):
    y = x * x
    breakpoint()
    y = y + 0
    return [node, y]


ray.init(address=os.environ["RAY_ADDRESS"])
workers = int(os.environ["WORKERS"])
nodes = ["head"] + ["w%d" % (i + 1) for i in range(workers)]
refs = [
    square.options(resources={nodes[i % len(nodes)]: 0.001}).remote(nodes[i % len(nodes)], i + 2)
    for i in range(3)
]
print("READY", flush=True)
print("RESULT " + json.dumps(ray.get(refs)), flush=True)
