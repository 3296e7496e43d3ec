"""A worker that dies after its breakpoint, as HOW says: exit, kill, memory. RESULT names the exception."""
import os

import harness
import ray


@ray.remote(max_retries=0)
def doomed(how):
    import os
    import signal

    hoard = []
    breakpoint()
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while how == "memory":
        hoard.append(bytearray(b"x" * (16 << 20)))
    return len(hoard)


harness.connect()
ref = doomed.options(**harness.on(harness.last())).remote(os.environ.get("HOW", "kill"))
harness.ready()
harness.result(harness.outcome(ref))
