//! `[post_mortem]`: black boxes of tasks that fail.

use crate::config::kind::flag;

settings! {
    /// `[post_mortem]`: what is kept of tasks that raise an exception, by the agents of their nodes.
    pub struct PostMortem = "post_mortem" {
        /// Whether stack and variables of such a task are kept. It takes the hook in the worker and an agent on its node.
        enabled: bool = false, flag();
    }
}
