"""A task for each NAME@NODE in TASKS, at a breakpoint; it leaves a file of its name in PAST when it has run on.
RESULT [[name, y], ...]."""
import os
import time

import harness
import ray


@ray.remote
def stays(name, runs, past):
    large = Large() if name == "large" else None
    y = len(name)
    breakpoint()
    y = y + 0
    time.sleep(runs)
    y = y + 0
    open(os.path.join(past, name), "w").close()
    del large
    return [name, y]


class Large:
    """Ten megabytes of variables."""

    def __init__(self):
        for i in range(160):
            setattr(self, "part_%03d" % i, chr(97 + i % 26) * 65000)


harness.connect()
past, runs = os.environ["PAST"], float(os.environ["RUNS"])
tasks = [task.split("@") for task in os.environ["TASKS"].split()]
refs = [stays.options(name=name, **harness.on(node)).remote(name, runs, past) for name, node in tasks]
harness.ready()
harness.result(ray.get(refs))
