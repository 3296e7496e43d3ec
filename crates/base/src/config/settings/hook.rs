//! `[hook]`: how the hook gets into workers (`ray-relay hook --help`).

use crate::config::kind::flag;

settings! {
    /// `[hook]`: how the hook gets into workers.
    pub struct Hook = "hook" {
        /// Whether jobs that are submitted through the relay get the hook in their workers, unless they opt out. The
        /// package ray-relay must be installed on every Ray node: a job whose driver does not find it fails.
        inject: bool = false, flag();
    }
}
