//! `[dap]`: limits and timeouts of debug sessions.

use std::time::Duration;

use crate::config::kind::{SHORTEST, duration, flag, size};
use crate::config::units::{GIB, KIB, MIB, MINUTE, SECOND};

settings! {
    /// `[dap]`: debug sessions.
    pub struct Dap = "dap" {
        /// TCP connect and first answer of a worker's debugger.
        connect_timeout: Duration = 5 * SECOND, duration(SHORTEST..=10 * MINUTE);
        /// Largest single message in either direction after attach, in bytes.
        max_frame: usize = 64 * MIB, size(64 * KIB..=GIB);
        /// Whether the permission `debug` suffices to end a worker process.
        allow_terminate: bool = false, flag();
        /// Whether the permission `debug` suffices to open a debugger in a running task that did not ask for one.
        allow_attach: bool = false, flag();
    }
}
