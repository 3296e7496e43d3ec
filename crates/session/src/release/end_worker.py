"""Ends one worker of Ray by a signal, from a task on the worker's own node: what `ray-relay release --force` submits.

Run as `python -c ... NODE WORKER PID`, all from Ray's own list of workers. The last line of the output says what came of it.
"""

import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NODE, WORKER, PID = sys.argv[1], sys.argv[2], int(sys.argv[3])


def end(worker, pid):
    import glob
    import os
    import signal

    if pid < 2 or pid == os.getpid():
        return "refused: that is no worker"
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            title = file.read().decode(errors="replace")
        if not title.startswith("ray::"):
            return f"refused: process {pid} is no worker of Ray's any more"
        # Which worker a process is stands in the names of its logs; of an earlier process of this number they are older.
        logs = os.path.join(ray._private.worker._global_node.get_session_dir_path(), "logs")
        files = glob.glob(os.path.join(logs, f"python-core-worker-*_{pid}.log"))
        newest = os.path.basename(max(files, key=os.path.getmtime, default=""))
        if not newest.startswith(f"python-core-worker-{worker}_"):
            return f"refused: process {pid} is another worker now"
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return "gone: the process has ended already"
    except PermissionError:
        return "refused: Ray runs as a user who may not end that process"
    return "ended"


ray.init(log_to_driver=False, logging_level="ERROR")
there = NodeAffinitySchedulingStrategy(NODE, soft=False)
task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(end)
try:
    said = ray.get(task.remote(WORKER, PID), timeout=40)
except Exception as error:
    said = f"failed: Ray did not run it on the worker's node ({type(error).__name__})"
print(f"\nRAY-RELAY {said}", flush=True)
