"""An actor that starts processes which stop at a breakpoint(), with the hook and `child_breakpoint.py` of JOB_DIR. Says the exit
codes of each call. In between it stops itself, with a process that goes on when the file GO exists. Then its worker has a
debugger, without a client. RESULT the exit code of that process."""
import os

import harness
import ray

harness.connect(working_dir=os.environ["JOB_DIR"], worker_process_setup_hook="ray_relay_hook.setup")
METHODS = [("fork", [11]), ("forkserver", [12]), ("spawn", [13]), ("subprocess", [14]), ("spawn", [15, 16]), ("spawn", [17])]
LATER = [("fork", [21]), ("spawn", [22]), ("subprocess", [23])]


@ray.remote
class Starter:
    def start(self, method, values):
        import child_breakpoint

        return child_breakpoint.run(method, values)

    def stop(self, go):
        import multiprocessing

        import child_breakpoint

        process = multiprocessing.get_context("spawn").Process(target=child_breakpoint.work, args=(18, go))
        process.start()
        own = 19
        breakpoint()
        process.join()
        return process.exitcode, own


starter = Starter.options(**harness.on(harness.last())).remote()
for number, (method, values) in enumerate(METHODS):
    harness.say("CODES %d %s" % (number, ray.get(starter.start.remote(method, values))))
stopped = ray.get(starter.stop.remote(os.path.join(os.environ["JOB_DIR"], "go")))
for number, (method, values) in enumerate(LATER):
    harness.say("LATER %d %s" % (number, ray.get(starter.start.remote(method, values))))
harness.result(stopped)
