//! `ray-relay hook`: prints the workers' setup hook of a job, for debug ports on loopback and inspection of running
//! tasks.

use super::Failure;
use super::terminal::print;

pub(super) const AFTER_HELP: &str = "\
Example:
  ray-relay hook > ray_relay_hook.py
  ray job submit --working-dir . \\
      --runtime-env-json '{\"worker_process_setup_hook\": \"ray_relay_hook.setup\"}' -- python my_job.py

debugpy accepts every client that reaches its port, and by default it listens on the node's address. With this hook a worker's debug port is on 127.0.0.1 of its node alone: sessions reach it only through the agent there (`ray-relay node`).

In processes that a task starts, where Ray's breakpoint() fails, breakpoint() stops like the task's own.

The worker also tells that agent on request what it does, with the values of its variables and without a breakpoint, and opens its debugger. Once a second it records where each thread is, without variables, for `ray-relay why`. RAY_RELAY_HOOK in its environment restricts it: `look` opens no debugger on request and arms no lines, `no-ring` records no positions, `off` reports nothing at all. Separate several with commas. A breakpoint() in the code stops with any of them.";

pub(super) fn run() -> Result<(), Failure> {
    Ok(print(include_str!("../python/ray_relay/__init__.py"))?)
}
