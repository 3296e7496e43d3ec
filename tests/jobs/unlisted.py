"""A task that waits for a debugger, unknown to Ray. RESULT x, 3 unless a debugger changes it."""
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
