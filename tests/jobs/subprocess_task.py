"""A task that starts a Python subprocess after its breakpoint: debugpy makes that wait for a session
of its own while a client is attached. RESULT "child 7"."""
import harness
import ray


@ray.remote
def parent(x):
    import subprocess
    import sys

    breakpoint()
    code = "print('child', %d)" % (x + 1)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


harness.connect()
ref = parent.options(**harness.on(harness.last())).remote(6)
harness.ready()
harness.result(ray.get(ref))
