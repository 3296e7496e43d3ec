"""What the hook costs a worker: memory, and Ray's throughput of tiny tasks, with the hook and without, in paired rounds.

    PYTHON-WITH-RAY benches/hook.py [--rounds 5] [--tasks 20000]

Both sides have a setup hook, so that both have workers of their own: with `with` it is ray_relay.setup, with `without` it does
nothing. Each round has both, the first of them by turns, each as a driver of its own in one local cluster. Memory is
Private_Dirty of a worker that has run nothing else (smaps_rollup), once where Python finds the module compiled, as an installed
wheel has it.
"""
import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "python", "ray_relay", "__init__.py")
NOTHING = "def setup():\n    pass\n"


def driver(address, folder, hook, tasks):
    import ray

    env = {"env_vars": {"PYTHONPATH": folder}, "worker_process_setup_hook": hook + ".setup"}
    ray.init(address=address, runtime_env=env, log_to_driver=False)

    @ray.remote
    def tiny():
        return 1

    @ray.remote
    def memory():
        lines = open("/proc/self/smaps_rollup").read().splitlines()
        return os.getpid(), int(next(line for line in lines if line.startswith("Private_Dirty")).split()[1])

    first = ray.get(memory.remote())[1]
    ray.get([tiny.remote() for _ in range(500)])
    began = time.perf_counter()
    ray.get([tiny.remote() for _ in range(tasks)])
    print(json.dumps({"rate": tasks / (time.perf_counter() - began), "kib": first}))


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--tasks", type=int, default=20000)
    asked.add_argument("--driver", nargs=4)
    asked = asked.parse_args()
    if asked.driver:
        address, folder, hook, tasks = asked.driver
        return driver(address, folder, hook, int(tasks))
    import ray

    folder = tempfile.mkdtemp()
    try:
        shutil.copy(SOURCE, os.path.join(folder, "ray_relay_with.py"))
        with open(os.path.join(folder, "ray_relay_without.py"), "w") as without:
            without.write(NOTHING)
        compileall.compile_dir(folder, quiet=2)
        cluster = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        address, seen = cluster.address_info["gcs_address"], {"with": [], "without": []}
        for number in range(asked.rounds):
            for side in ("with", "without")[::1 if number % 2 == 0 else -1]:
                words = [sys.executable, __file__, "--driver", address, folder, "ray_relay_" + side, str(asked.tasks)]
                said = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=600).stdout
                seen[side].append(json.loads(said.splitlines()[-1]))
                print(number + 1, side, seen[side][-1], flush=True)
        pairs = list(zip(seen["with"], seen["without"]))
        for side in seen:
            print("%s: %.0f tasks/s (median)" % (side, statistics.median(one["rate"] for one in seen[side])))
        print("ratio with/without: %.3f (median of the rounds)" % statistics.median(a["rate"] / b["rate"] for a, b in pairs))
        print("memory of the hook: %d KiB (median)" % statistics.median(a["kib"] - b["kib"] for a, b in pairs))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
