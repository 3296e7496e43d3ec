"""A task that waits for a debugger, and Ray was not told that it does. RESULT x, 3 where nobody changes it."""
import harness
import ray


@ray.remote
def hidden(x):
    import debugpy
    from ray.util.debugpy import _ensure_debugger_port_open_thread_safe

    _ensure_debugger_port_open_thread_safe()
    debugpy.wait_for_client()
    debugpy.breakpoint()
    return x


harness.connect()
ref = hidden.options(**harness.on(harness.last())).remote(3)
harness.ready()
harness.result(ray.get(ref))
