"""Actors that reach one breakpoint after the other, each with a debugpy of its own. DRILL: {"name": folder with that
debugpy, or null for the one beside Ray}; STOPS: breakpoints of each. PIDS {name: pid}, DONE name, then RESULT {name: sum}."""
import json
import os

import harness
import ray


@ray.remote(num_cpus=0)
class Runner:
    def pid(self):
        return os.getpid()

    def run(self, stops):
        total = 0
        for turn in range(stops):
            breakpoint()
            total += turn
        return total


harness.connect()
stops = int(os.environ["STOPS"])
runners = {}
for name, folder in json.loads(os.environ["DRILL"]).items():
    variables = {key: os.environ[key] for key in harness.PASSED_ON if key in os.environ}
    if folder:
        variables["PYTHONPATH"] = folder
    runners[name] = Runner.options(runtime_env={"env_vars": variables}).remote()
harness.say("PIDS " + json.dumps({name: ray.get(runner.pid.remote()) for name, runner in runners.items()}))
refs = {name: runner.run.remote(stops) for name, runner in runners.items()}
waiting = {ref: name for name, ref in refs.items()}
while waiting:
    for ref in ray.wait(list(waiting))[0]:
        harness.say("DONE " + waiting.pop(ref))
harness.result({name: ray.get(ref) for name, ref in refs.items()})
