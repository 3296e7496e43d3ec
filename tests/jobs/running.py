"""Tasks that run and never stop by themselves, each until there is a file of its name in STOPS; with the hook of HOOK_DIR, where
that is given. RESULT: their names, in order, when all have ended as they should."""
import asyncio
import concurrent.futures
import faulthandler
import os
import threading
import time

import harness
import ray

STOPS, HOOK = os.environ["STOPS"], os.environ.get("HOOK_DIR")
environment = {"env_vars": {"STOPS": STOPS, "RAY_RELAY_HOOK": os.environ.get("RAY_RELAY_HOOK", "")}}
if HOOK:
    environment.update(working_dir=HOOK, worker_process_setup_hook="ray_relay_hook.setup")


def runs(name):
    return not os.path.exists(os.path.join(os.environ["STOPS"], name))


@ray.remote(num_cpus=0)
def spin():
    steps = 0
    while runs("spin"):
        steps += 1
        time.sleep(0.01)
    return "spin"


@ray.remote(num_cpus=0)
def nap():
    import signal

    class Woken(Exception):
        pass

    def wakes(*_):
        raise Woken

    signal.signal(signal.SIGUSR1, wakes)
    naps = 0
    while runs("nap"):
        naps += 1
        try:
            time.sleep(600)
        except Woken:
            pass
    return "nap"


@ray.remote(num_cpus=0)
def waits(refs):
    value = ray.get(refs[0])
    return "waits after " + value


@ray.remote(num_cpus=0)
def gate():
    while runs("gate"):
        time.sleep(0.1)
    return "gate"


@ray.remote(num_cpus=0)
def sleeps():
    time.sleep(600)


@ray.remote(num_cpus=0)
def opens():
    os.close(os.open(os.path.join(os.environ["STOPS"], "opens"), os.O_RDONLY))
    return "opens"


@ray.remote(num_cpus=0)
def locks():
    import ctypes

    # A call that holds the GIL.
    ctypes.PyDLL(None).sleep(600)


@ray.remote(num_cpus=0)
class Fetcher:
    async def fetch(self, page):
        rounds = 0
        while runs("fetch"):
            rounds += 1
            await asyncio.sleep(0.05)
        return "fetch %d" % page


def crunch(part):
    done = 0
    while runs("pool"):
        done += part
        time.sleep(0.01)
    return done > 0


@ray.remote(num_cpus=0)
def pool():
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        return "pool" if all(threads.map(crunch, (1, 2))) else "idle"


def connect():
    ray.init(address=os.environ["RAY_ADDRESS"], runtime_env=environment)
    if HOOK:
        import sys

        sys.path.insert(0, HOOK)
        import ray_relay_hook

        ray_relay_hook.setup()


def serves():
    from ray import serve

    @serve.deployment
    class Echo:
        async def __call__(self, request):
            beats = 0
            while runs("serve"):
                beats += 1
                await asyncio.sleep(0.05)
            return "served"

    serve.start(http_options={"host": "127.0.0.1", "port": 18001})
    serve.run(Echo.bind(), name="app1", route_prefix="/echo")
    answer = []

    def ask():
        import urllib.request

        with urllib.request.urlopen("http://127.0.0.1:18001/echo", timeout=3000) as reply:
            answer.append(reply.read().decode())

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, answer


# Prints the stacks, if it is not ready before the test's timeout.
faulthandler.dump_traceback_later(240)
connect()
wanted = os.environ["TASKS"].split(",")
refs, never, asked = [], [], None
for one in wanted:
    if one == "waits":
        refs.append(waits.remote([gate.remote()]))
    elif one == "fetch":
        fetcher = Fetcher.remote()
        refs.append(fetcher.fetch.remote(7))
    elif one in ("sleeps", "locks"):
        never.append({"sleeps": sleeps, "locks": locks}[one].options(max_retries=0).remote())
    elif one == "serve":
        asked = serves()
    elif one != "driver":
        refs.append({"spin": spin, "nap": nap, "pool": pool, "opens": opens}[one].remote())
faulthandler.cancel_dump_traceback_later()
harness.ready()
turns = 0
while "driver" in wanted and runs("driver"):
    turns += 1
    time.sleep(0.02)
done = sorted(ray.get(refs))
if asked:
    asked[0].join()
    done += asked[1]
harness.result(done)
