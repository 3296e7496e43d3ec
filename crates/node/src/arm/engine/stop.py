"""Stops a thread on an armed line: Ray lists it as paused, a client attaches, and debugpy stops there.

debugpy's own `settrace(stop_at_frame=...)` stops at the line after. What is used instead is no public interface of debugpy.
"""
import sys
import threading
import time

# By thread: the frame (its id, so that its variables are not kept) and the instruction of its last stop on an armed line, and
# until when debugpy must not stop there again.
_STOPPED = {}
# Seconds from a stop in which debugpy may get the same LINE event.
_SAME_EVENT_SECONDS = 1


def wait_for_client(worker, when_open):
    """Does what `ray.util.debugpy.set_trace` does before it stops. Calls `when_open` when a client can attach."""
    import ray.util.debugpy

    ray.util.debugpy._ensure_debugger_port_open_thread_safe()
    debugpy = sys.modules.get("debugpy")
    if debugpy is None or not worker.debugger_port:
        raise RuntimeError("debugpy 1.8 or newer is not installed where the worker runs")
    # debugpy has replaced breakpoint() by its own.
    ray.util.debugpy._override_breakpoint_hooks()
    when_open()
    with worker.worker_paused_by_debugger():
        debugpy.wait_for_client()


def stop_here(frame, connect):
    """Stops the thread in `frame` on its present line. `connect()` returns when a client is attached."""
    connect()
    import pydevd
    from _pydevd_bundle.pydevd_comm_constants import CMD_SET_BREAK
    from _pydevd_bundle.pydevd_constants import PYTHON_SUSPEND, STATE_SUSPEND

    pydevd.settrace(suspend=False)
    debugger, thread, ident = pydevd.get_global_debugger(), threading.current_thread(), threading.get_ident()
    _stop_once(debugger)
    info = debugger.set_additional_thread_info(thread)
    info.is_tracing += 1
    try:
        debugger.set_trace_for_frame_and_parents(ident, frame)
        # Another thread's stop may have stopped this one as well: then it waits here as part of that.
        if info.pydev_state != STATE_SUSPEND:
            info.pydev_original_step_cmd, info.suspend_type = CMD_SET_BREAK, PYTHON_SUSPEND
            debugger.set_suspend(thread, CMD_SET_BREAK, original_step_cmd=CMD_SET_BREAK)
        debugger.do_wait_suspend(thread, frame, "line", None)
    finally:
        info.is_tracing -= 1
        _STOPPED[ident] = (id(frame), frame.f_lasti, time.monotonic() + _SAME_EVENT_SECONDS)


def _stop_once(debugger):
    """Keeps debugpy from a second stop at the same LINE event, which it gets after the engine: its tool id is lower. There its
    own breakpoint on the line, or the step that the user has just begun, would stop again."""
    if getattr(debugger, "stops_once", False):
        return
    set_suspend, do_wait_suspend, passed = debugger.set_suspend, debugger.do_wait_suspend, set()

    def is_again(ident):
        stopped = _STOPPED.pop(ident, None)
        frame = sys._getframe(2)
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(("pydevd", "_pydevd")):
            frame = frame.f_back  # Where debugpy has no Cython.
        return stopped is not None and stopped[:2] == (id(frame), frame.f_lasti) and time.monotonic() < stopped[2]

    def suspends(thread, *args, **kwargs):
        ident = threading.get_ident()
        if thread.ident == ident and is_again(ident):
            passed.add(ident)
        else:
            set_suspend(thread, *args, **kwargs)

    def waits(thread, *args, **kwargs):
        ident = threading.get_ident()
        if ident in passed:
            passed.discard(ident)
        else:
            do_wait_suspend(thread, *args, **kwargs)

    debugger.set_suspend, debugger.do_wait_suspend, debugger.stops_once = suspends, waits, True
