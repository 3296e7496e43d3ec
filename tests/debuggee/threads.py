"""Stops in one thread, whose next line waits for the other one.

Prints where the debugger listens, and DONE.
"""

import os
import threading

import debugpy

wanted = threading.Event()
given = threading.Event()


def say(line):
    os.write(1, (line + "\n").encode())


def give():
    while not wanted.wait(0.01):
        pass
    given.set()


def take():
    debugpy.breakpoint()
    wanted.set(), given.wait()
    say("DONE")


_, port = debugpy.listen(("127.0.0.1", 0))
say(f"PORT {port}")
debugpy.wait_for_client()
threading.Thread(target=give, daemon=True).start()
taking = threading.Thread(target=take)
taking.start()
taking.join()
threading.Event().wait()
