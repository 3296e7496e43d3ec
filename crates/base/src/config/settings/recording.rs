//! `[recording]`: where recordings of sessions are kept.

use std::path::PathBuf;

use super::OnFailure;
use crate::config::kind::{choice, path, size};
use crate::config::units::{GIB, KIB, MIB};

settings! {
    /// `[recording]`: recorded sessions.
    pub struct Recording = "recording" {
        /// Folder of the recordings. Absent: a session that has to be recorded is refused.
        dir: Option<PathBuf> = None, path("the path of a folder");
        /// The largest size of one session's recording, in bytes.
        max_size: usize = 256 * MIB, size(64 * KIB..=1024 * GIB);
        /// The oldest go when all together take more bytes.
        keep: usize = 4 * GIB, size(MIB..=1024 * 1024 * GIB);
        /// What becomes of a session that cannot be recorded further.
        on_failure: OnFailure = OnFailure::Deny, choice();
    }
}
