"""An actor with two threads, both at a breakpoint: one worker, two paused threads. RESULT [1, 4]."""
import time

import harness
import ray


@ray.remote(max_concurrency=2)
class Pool:
    def work(self, x):
        # One after the other, on a fast machine: see the test.
        time.sleep(x)
        y = x * x
        breakpoint()
        return y


harness.connect()
pool = Pool.options(**harness.on(harness.last())).remote()
refs = [pool.work.remote(x) for x in (1, 2)]
harness.ready()
harness.result(ray.get(refs))
