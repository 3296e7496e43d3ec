"""A task from a package in the job's working_dir (tests/jobs/project), unpacked on its node. RESULT 12."""
import os

import harness
import ray

project = os.path.join(os.path.dirname(os.path.abspath(__file__)), "project")
harness.connect(working_dir=project)


@ray.remote
def run(x):
    from pricing import total

    return total(x)


ref = run.options(**harness.on(harness.last())).remote(4)
harness.ready()
harness.result(ray.get(ref))
