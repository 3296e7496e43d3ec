"""Tasks that dial a debugger, each on a node of its own. DIALS is a list of [node, tool, port], TOOLS a directory with
pydevd-pycharm in it. RESULT the `x` of each, 20 where no debugger changes it."""
import json
import os

import harness
import ray


@ray.remote
def dials(tool, port, tools):
    import sys

    sys.path.insert(0, tools)
    x = 20
    if tool == "pydevd":
        import pydevd_pycharm

        pydevd_pycharm.settrace("127.0.0.1", port=port, suspend=True)
    else:
        import debugpy

        debugpy.connect(("127.0.0.1", port))
        debugpy.wait_for_client()
        debugpy.breakpoint()
    y = x
    return y


harness.connect()
refs = [
    dials.options(**harness.on(node)).remote(tool, port, os.environ["TOOLS"])
    for node, tool, port in json.loads(os.environ["DIALS"])
]
harness.ready()
harness.result([harness.outcome(ref) for ref in refs])
