# Waits for a debugger inside a function, as a Ray task does.
import sys

import debugpy


class Broken:
    def __repr__(self):
        raise ValueError("no")


def waits(number):
    broken = Broken()
    long = "x" * 1000000
    debugpy.wait_for_client()
    debugpy.breakpoint()
    return broken, long, number


print(debugpy.listen(("127.0.0.1", 0))[1], file=sys.stderr, flush=True)
waits(7)
