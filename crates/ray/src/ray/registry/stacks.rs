//! The stack of a process from Ray itself: py-spy, run by the dashboard agent of its node.

use crate::ray::dump;
use crate::ray::head::{HeadClient, HeadError};
use crate::ray::look::Look;
use crate::ray::registry::{Running, query};
use ray_relay_base::wire::text::one_line;

/// The reason why Ray returns no stack. `Display` is a sentence with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStack {
    /// The default from Ray 2.56 on.
    #[error(
        "the Ray head gives no stacks: start it (`ray start --head`) with RAY_DASHBOARD_ENABLE_PROFILING=1"
    )]
    Refused,
    /// The system does not permit py-spy.
    #[error(
        "py-spy may not look at processes on that node: it takes CAP_SYS_PTRACE (in Kubernetes `securityContext.capabilities.add: [SYS_PTRACE]` for Ray's container), or kernel.yama.ptrace_scope = 0 there"
    )]
    NotPermitted,
    /// py-spy is not installed.
    #[error(
        "py-spy is not installed on that node: `pip install py-spy` in Ray's environment there"
    )]
    NoPySpy,
    /// The dashboard agent of the node fails: up to 2.9 at least because `sudo` is missing, which it tries before it
    /// runs py-spy.
    #[error(
        "Ray's own agent on that node fails to run py-spy: older versions of Ray want the command `sudo` there, whatever it permits"
    )]
    NoSudo,
    /// The process has ended meanwhile.
    #[error("its process has ended meanwhile")]
    Gone,
    /// The process runs no task any more.
    #[error("its worker has finished the task meanwhile")]
    Idle,
    /// Ray does not report its location.
    #[error("Ray does not say on which address or in which process it runs")]
    Nowhere,
    /// The cluster has no head, or no longer.
    #[error("the relay knows of no Ray head of this cluster")]
    NoHead,
    /// Ray's error message, or a timeout.
    #[error("{0}")]
    Failed(String),
}

/// The stack of `running` from the head.
pub(super) async fn look(head: &HeadClient, running: &Running) -> Result<Look, NoStack> {
    let (Some(ip), Some(pid)) = (running.node_ip, running.pid) else {
        return Err(NoStack::Nowhere);
    };
    let dump = query::traceback(head, ip, pid).await;
    let dump = dump.map_err(|why| refused(&why))?;
    if is_idle(&dump) {
        return Err(NoStack::Idle);
    }
    let unreadable = || format!("Ray gave something else than a stack: {}", one_line(&dump));
    dump::read(&dump).ok_or_else(|| NoStack::Failed(unreadable()))
}

/// Ray's process title of a worker that waits for its next task.
fn is_idle(dump: &str) -> bool {
    let first = dump.lines().next().unwrap_or_default();
    first.starts_with("Process ") && first.ends_with(": ray::IDLE")
}

fn refused(why: &HeadError) -> NoStack {
    let HeadError::Status { status, words, .. } = why else {
        return NoStack::Failed(why.to_string());
    };
    let says = |text: &str| words.to_ascii_lowercase().contains(text);
    match status {
        403 | 404 => NoStack::Refused,
        _ if says("py-spy is not installed") || says("py-spy: not found") => NoStack::NoPySpy,
        _ if says("aiorpcerror") => NoStack::NoSudo,
        _ if says("permission denied") || says("not permitted") || says("eperm") => {
            NoStack::NotPermitted
        }
        _ if says("check that the process is running") || says("no such process") => NoStack::Gone,
        _ => NoStack::Failed(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, message: &str) -> NoStack {
        refused(&HeadError::Status {
            address: "http://head:8265".to_owned(),
            status,
            words: message.to_owned(),
        })
    }

    #[test]
    fn refused_stack_names_its_remedy() {
        let profiling = refusal(403, "Profiling is disabled by default");
        assert!(
            profiling
                .to_string()
                .contains("RAY_DASHBOARD_ENABLE_PROFILING=1")
        );
        for message in [
            "Failed to execute py-spy: Permission Denied: Try running again with elevated permissions",
            "Error: EPERM: Operation not permitted",
        ] {
            assert_eq!(refusal(500, message), NoStack::NotPermitted, "{message}");
        }
        let exited =
            "Error: Failed to get process executable name. Check that the process is running.";
        assert_eq!(refusal(500, exited), NoStack::Gone);
        assert_eq!(refusal(500, "py-spy is not installed"), NoStack::NoPySpy);
        let failed = "grpc.aio._call.AioRpcError: <AioRpcError of RPC that terminated with:";
        assert_eq!(refusal(500, failed), NoStack::NoSudo);
        let other = refusal(500, "Failed to get agent address for node at IP 10.0.0.9").to_string();
        assert!(other.contains("Failed to get agent address"), "{other}");
    }

    #[test]
    fn idle_worker_is_recognised_by_its_title() {
        assert!(is_idle("Process 7: ray::IDLE\nPython v3.11.7 (/p)\n"));
        assert!(!is_idle(
            "Process 7: ray::IDLE_HANDS\nPython v3.11.7 (/p)\n"
        ));
        assert!(!is_idle("Process 7: ray::train\n"));
    }
}
