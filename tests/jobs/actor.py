"""An actor's method at a breakpoint. RESULT 5, or the exception that its caller gets."""
import harness
import ray


@ray.remote
class Counter:
    def __init__(self):
        self.total = 2

    def add(self, amount):
        self.total += amount
        breakpoint()
        return self.total


harness.connect()
counter = Counter.options(name="tally", **harness.on(harness.last())).remote()
ref = counter.add.remote(3)
harness.ready()
harness.result(harness.outcome(ref))
