"""Two calls of an async actor: the first breakpoint holds the event loop, the second stops in the
same session. RESULT [10, 20]."""
import asyncio

import harness
import ray


@ray.remote
class Fetcher:
    async def fetch(self, x):
        await asyncio.sleep(0)
        page = x * 10
        breakpoint()
        return page


harness.connect()
fetcher = Fetcher.options(**harness.on(harness.last())).remote()
refs = [fetcher.fetch.remote(x) for x in (1, 2)]
harness.ready()
harness.result(ray.get(refs))
