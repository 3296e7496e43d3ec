# Two threads that stop at their breakpoints together; what they are told to be called is printed in the end.
import sys
import threading

import debugpy

called = []


def paint(name, both):
    both.wait()
    breakpoint()
    called.append(name)


print(debugpy.listen(("127.0.0.1", 0))[1], file=sys.stderr, flush=True)
debugpy.wait_for_client()
both = threading.Barrier(2)
threads = [threading.Thread(target=paint, args=(name, both), name=name) for name in ("red", "blue")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(", ".join(sorted(called)))
