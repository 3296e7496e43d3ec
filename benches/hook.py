"""What the hook costs a worker: memory, processor time and throughput of tiny tasks, with the hook and without, in pairs.

    PYTHON-WITH-RAY benches/hook.py [--ring] [--rounds 5] [--batches 10] [--tasks 2000] [--seconds 3]

Both sides have a setup hook, so that both have workers of their own: with `with` it is ray_relay.setup, with `without` it does
nothing. Each round has a driver of either side in one local cluster; they take turns, a batch of tasks each, the first of them
changing. Processor time is what the system counts of all threads of that side's workers, so that what else the machine does
matters less to it than to tasks a second. Memory is Private_Dirty of a worker that has run nothing else (smaps_rollup), once
where Python finds the module compiled, as an installed wheel has it.

With --ring both sides have the hook, and `without` has RAY_RELAY_HOOK=no-ring: it records no positions of threads. Each batch
also runs a loop for some seconds, in which it measures the time of a step (about 0.2 ms); memory is read after as many seconds.
"""
import argparse
import compileall
import glob
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "python", "ray_relay", "__init__.py")
NOTHING = "def setup():\n    pass\n"


def busy(threads):
    """Nanoseconds for which these have run."""
    total = 0
    for thread in threads:
        try:
            with open(thread + "/schedstat") as stat:
                total += int(stat.read().split()[0])
        except OSError:
            pass  # It has ended.
    return total


def steps(seconds):
    """The mean time of a step in microseconds, and the mean processor time of the whole process."""
    count, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        total = 0
        for number in range(5000):
            total += number
        count += 1
    return (time.perf_counter() - began) / count * 1e6, (time.process_time() - used) / count * 1e6


def driver(address, folder, hook, words, seconds):
    """Runs as many tasks as each line says, and says what they took. The loop runs for some seconds, if it has any."""
    import ray

    seconds = float(seconds)
    env = {"env_vars": {"PYTHONPATH": folder, "RAY_RELAY_HOOK": words}, "worker_process_setup_hook": hook + ".setup"}
    ray.init(address=address, runtime_env=env, log_to_driver=False)

    @ray.remote
    def tiny():
        return os.getpid()

    @ray.remote
    def loop():
        return steps(seconds)

    @ray.remote
    def memory():
        time.sleep(seconds)
        lines = open("/proc/self/smaps_rollup").read().splitlines()
        return int(next(line for line in lines if line.startswith("Private_Dirty")).split()[1])

    @ray.remote
    def own():
        named = [thread for thread in threading.enumerate() if thread.name == "ray-relay"]
        return busy("/proc/self/task/%d" % thread.native_id for thread in named)

    print(json.dumps({"kib": ray.get(memory.remote())}), flush=True)
    workers = set(ray.get([tiny.remote() for _ in range(1000)]))
    spent = lambda: {pid: busy(glob.glob("/proc/%d/task/*" % pid)) for pid in workers}
    for line in sys.stdin:
        tasks, took = int(line), None
        while took is None:
            before, began = spent(), time.perf_counter()
            seen = set(ray.get([tiny.remote() for _ in range(tasks)]))
            took, after = time.perf_counter() - began, spent()
            # One that has just begun has spent its time on that, and one that has ended tells none.
            if any(after.get(pid, 0) <= before.get(pid, 0) for pid in seen):
                took, workers = None, seen
        cpu = sum(after[pid] - before[pid] for pid in seen)
        said = {"wall": took / tasks * 1e6, "cpu": cpu / tasks / 1e3}
        if seconds:
            said["step"], said["step_cpu"] = ray.get(loop.remote())
        print(json.dumps(dict(said, hook=max(ray.get([own.remote() for _ in range(20)])) / 1e3)), flush=True)


class Side:
    """A driver that runs batches when it is told to."""

    def __init__(self, address, folder, side, asked):
        hook, rules = ("with", "no-ring" if side == "without" else "") if asked.ring else (side, "")
        seconds = str(asked.seconds if asked.ring else 0)
        words = [sys.executable, __file__, "--driver", address, folder, "ray_relay_" + hook, rules, seconds]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kib = self.said()["kib"]

    def said(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit("a driver has ended")

    def batch(self, tasks):
        self.process.stdin.write("%d\n" % tasks)
        self.process.stdin.flush()
        return self.said()

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def shown(title, name, pairs, of="task"):
    """The ratio of what each pair has, and how far off it may be: 1.96 standard errors of the rounds' means."""
    rounds = [statistics.fmean(math.log(a[name] / b[name]) for a, b in one) for one in pairs]
    mean = statistics.fmean(rounds)
    error = 1.96 * statistics.stdev(rounds) / len(rounds) ** 0.5 if len(rounds) > 1 else float("nan")
    medians = [statistics.median(pair[side][name] for one in pairs for pair in one) for side in (0, 1)]
    print("%s a %s: %.1f µs with, %.1f without (medians); with/without %+.2f %% ± %.2f %%"
          % (title, of, medians[0], medians[1], 100 * mean, 100 * error), flush=True)


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--batches", type=int, default=10)
    asked.add_argument("--tasks", type=int, default=2000)
    asked.add_argument("--ring", action="store_true")
    asked.add_argument("--seconds", type=float, default=3)
    asked.add_argument("--driver", nargs=5)
    asked = asked.parse_args()
    if asked.driver:
        return driver(*asked.driver)
    import ray

    folder, pairs, kib, thread = tempfile.mkdtemp(), [], [], []
    try:
        shutil.copy(SOURCE, os.path.join(folder, "ray_relay_with.py"))
        with open(os.path.join(folder, "ray_relay_without.py"), "w") as without:
            without.write(NOTHING)
        compileall.compile_dir(folder, quiet=2)
        cluster = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        address = cluster.address_info["gcs_address"]
        for number in range(asked.rounds):
            names = ("with", "without")[::1 if number % 2 == 0 else -1]
            sides = {name: Side(address, folder, name, asked) for name in names}
            kib.append(sides["with"].kib - sides["without"].kib)
            pairs.append([])
            for batch in range(asked.batches):
                turn = names[::1 if batch % 2 == 0 else -1]
                took = {name: sides[name].batch(asked.tasks) for name in turn}
                pairs[-1].append((took["with"], took["without"]))
                thread.append(took["with"]["hook"])
            for side in sides.values():
                side.end()
            shown("round %d of %d, cpu" % (number + 1, asked.rounds), "cpu", pairs[-1:])
        total = asked.rounds * asked.batches * asked.tasks
        print("%d tasks a side; load %.1f" % (total, os.getloadavg()[0]))
        shown("cpu", "cpu", pairs)
        shown("wall", "wall", pairs)
        if asked.ring:
            shown("cpu", "step_cpu", pairs, "step")
            shown("wall", "step", pairs, "step")
        print("the hook's own thread: %.0f µs at most, from its begin on" % max(thread))
        title = "record of positions" if asked.ring else "hook"
        print("memory of the %s: %d KiB (median of %s)" % (title, statistics.median(kib), kib))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
