# The same program for CPython's pdb and for the prompt: with RAY_RELAY_TEST_DEBUGPY set, breakpoint()
# waits in debugpy, else in pdb.
import os
import sys

if os.environ.get("RAY_RELAY_TEST_DEBUGPY"):
    import debugpy

    print(debugpy.listen(("127.0.0.1", 0))[1], file=sys.stderr, flush=True)
    debugpy.wait_for_client()


class Box:
    """Holds one value."""

    def __init__(self, value):
        self.value = value

    def grow(self, by=1):
        self.value += by
        return self.value


def square(x, *rest, scale=1, **more):
    # One comment.
    y = x * x
    y = y * scale
    return y


def shout(word):
    print("shout", word)


def work(n):
    total = 0
    box = Box(3)
    names = {"alpha": list(range(30)), "beta": ["x" * 30, "y" * 30, "z" * 30]}
    breakpoint()
    for i in range(n):
        total += square(i, scale=2)
    box.grow(2)
    shout("done")
    shout("again")
    return total


def main():
    result = work(3)
    print("result", result)


main()
