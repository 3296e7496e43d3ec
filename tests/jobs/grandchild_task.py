"""A task that starts a Python subprocess after its breakpoint, which starts another one when told to by a file:
debugpy makes each wait for a session of its own. RESULT "grandchild 8"."""
import os
import tempfile

import harness
import ray

CHILD = """
import os, subprocess, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print(subprocess.run([sys.executable, "-c", "print('grandchild', 8)"], capture_output=True, text=True, check=True).stdout)
"""


@ray.remote
def grandparent(go):
    import subprocess
    import sys

    breakpoint()
    return subprocess.run([sys.executable, "-c", CHILD, go], capture_output=True, text=True, check=True).stdout.strip()


harness.connect()
with tempfile.TemporaryDirectory() as directory:
    go = os.path.join(directory, "go")
    ref = grandparent.options(**harness.on(harness.last())).remote(go)
    harness.say("GO " + go)
    harness.ready()
    harness.result(ray.get(ref))
