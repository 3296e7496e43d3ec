"""The sample job of `ray-relay demo`.

Three tasks and one actor, spread over the nodes of the cluster. Each stops at its
breakpoint() and waits until a debugger has attached and continued. Change a variable while
you are there: the result below shows it.
"""

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LINES = [
    "a task that stops waits for you",
    "wherever in the cluster it happens to run",
    "and one port leads to all of them",
]


@ray.remote(num_cpus=0)
def longest_word(number, line):
    words = line.split()
    longest = max(words, key=len)
    breakpoint()  # look at `words`, or set `longest` to a word of your own
    return f"line {number}: {longest} ({len(longest)} letters)"


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.words = 0

    def count(self, lines):
        for line in lines:
            self.words += len(line.split())
        breakpoint()  # look at `self.words`
        return self.words


def on(node):
    return NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)


def main():
    ray.init()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    # Workers first: the head gets work only if there is no other node.
    nodes.sort(key=lambda node: "node:__internal_head__" in node["Resources"])
    nodes = nodes[:-1] or nodes
    tasks = [
        longest_word.options(scheduling_strategy=on(nodes[i % len(nodes)])).remote(i, line)
        for i, line in enumerate(LINES)
    ]
    counter = Counter.options(scheduling_strategy=on(nodes[-1])).remote()
    total = counter.count.remote(LINES)
    print("4 breakpoints: the job waits until each has been continued", flush=True)
    for task in tasks:
        print(ray.get(task), flush=True)
    print("words in all:", ray.get(total), flush=True)


if __name__ == "__main__":
    main()
