"""The same actor stops twice, in two calls: one worker, the same port, two stops. RESULT [1, 2]."""
import harness
import ray


@ray.remote
class Steps:
    def first(self):
        number = 1
        breakpoint()
        return number

    def second(self):
        number = 2
        breakpoint()
        return number


harness.connect()
steps = Steps.options(**harness.on(harness.last())).remote()
harness.ready()
one = ray.get(steps.first.remote())
harness.say("FIRST")
two = ray.get(steps.second.remote())
harness.result([one, two])
