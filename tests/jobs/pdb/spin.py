# Runs until `hold` is false.
import sys
import time

import debugpy

print(debugpy.listen(("127.0.0.1", 0))[1], file=sys.stderr, flush=True)
debugpy.wait_for_client()


def spin():
    hold = True
    breakpoint()
    while hold:
        time.sleep(0.01)
    return "over"


spin()
