"""A task that starts child.py as a subprocess after its breakpoint, and waits for it. RESULT "child 7"."""
import os

import harness
import ray


@ray.remote
def parent(program):
    import subprocess
    import sys

    breakpoint()
    return subprocess.run([sys.executable, program, "6"], capture_output=True, text=True, check=True).stdout.strip()


harness.connect()
program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
ref = parent.options(**harness.on(harness.last())).remote(program)
harness.ready()
harness.result(ray.get(ref))
