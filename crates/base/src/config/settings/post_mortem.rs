//! `[post_mortem]`: what is kept of tasks that fail, and of jobs that hang.

use crate::config::kind::flag;

settings! {
    /// `[post_mortem]`: snapshots of tasks that raise an exception, stored by the agents of their nodes; and verdicts on
    /// jobs that hang, kept by the relay.
    pub struct PostMortem = "post_mortem" {
        /// Whether stack and variables of such a task are stored. Needs the hook in the worker and an agent on its
        /// node. The relay also inspects running jobs every 20 s, and keeps its first verdict on each that hangs.
        enabled: bool = false, flag();
    }
}
