//! `[hook]`: how the hook gets into workers (`ray-relay hook --help`).

use crate::config::kind::flag;

settings! {
    /// `[hook]`: how the hook gets into workers.
    pub struct Hook = "hook" {
        /// Whether jobs that are submitted through the relay have it in their workers, unless they refuse. The package ray-relay
        /// has to be installed where Ray is, on every node: a job whose driver does not find it fails.
        inject: bool = false, flag();
    }
}
