"""Shared by the sample drivers. Used in the driver's process only, never inside a task."""
import json
import os
import sys

import ray

PASSED_ON = ("RAY_DEBUG", "RAY_DEBUG_POST_MORTEM")


def connect(**runtime_env):
    """Joins the cluster at RAY_ADDRESS; debugger settings of this process hold for its tasks too."""
    settings = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if settings:
        runtime_env["env_vars"] = settings
    # Never "auto": that looks for any cluster on the machine.
    ray.init(address=os.environ["RAY_ADDRESS"], runtime_env=runtime_env or None)


def nodes():
    """Custom resources of the nodes: head, w1, w2, ..."""
    return ["head"] + ["w%d" % (i + 1) for i in range(int(os.environ["WORKERS"]))]


def on(node):
    """Options that pin a task or an actor to that node."""
    return {"num_cpus": 0, "resources": {node: 0.001}}


def last():
    """The last worker node."""
    return nodes()[-1]


def ready():
    say("READY")


def result(value):
    say("RESULT " + json.dumps(value))


def say(line):
    """Prints a separate line: Ray's threads print too, and write a line and its end separately."""
    os.write(sys.stdout.fileno(), ("\n%s\n" % line).encode())


def outcome(ref):
    """Returns the value, or the name of the raised exception."""
    try:
        return ray.get(ref)
    except Exception as error:
        return type(error).__name__
