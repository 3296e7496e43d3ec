//! `[post_mortem]`: snapshots of tasks that fail.

use crate::config::kind::flag;

settings! {
    /// `[post_mortem]`: snapshots of tasks that raise an exception, stored by the agents of their nodes.
    pub struct PostMortem = "post_mortem" {
        /// Whether stack and variables of such a task are stored. Needs the hook in the worker and an agent on its
        /// node.
        enabled: bool = false, flag();
    }
}
