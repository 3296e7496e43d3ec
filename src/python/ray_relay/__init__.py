"""Keeps the debug ports of Ray's workers on loopback, where only the agent of their node (`ray-relay node`) reaches them.

Put this file beside your job, as ray_relay_hook.py, and name the function as the hook of its workers:

    ray.init(runtime_env={"working_dir": ".", "worker_process_setup_hook": "ray_relay_hook.setup"})

    ray job submit --working-dir . \
        --runtime-env-json '{"worker_process_setup_hook": "ray_relay_hook.setup"}' -- python my_job.py

Where the package ray-relay is installed on the nodes no file is needed: the hook is "ray_relay.setup".

What Ray lists stays as it is: the node, and the same port. The legacy debugger needs no hook: its socket is on loopback
unless Ray was started with --ray-debugger-external.
"""
import functools
import socket


def setup():
    try:
        import debugpy
    except ImportError:
        return  # No debugger here, so no port.
    listen = debugpy.listen
    if getattr(listen, "on_loopback", False):
        return

    @functools.wraps(listen)
    def on_loopback(address, *args, **kwargs):
        port = address if isinstance(address, int) else address[1]
        try:
            socket.create_server(("127.0.0.1", 0)).close()
            host = "127.0.0.1"
        except OSError:
            host = "::1"  # A system without IPv4.
        return listen((host, port), *args, **kwargs)

    on_loopback.on_loopback = True
    debugpy.listen = on_loopback
