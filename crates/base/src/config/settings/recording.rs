//! `[recording]`: storage of session recordings.

use std::path::PathBuf;

use super::OnFailure;
use crate::config::kind::{choice, path, size};
use crate::config::units::{GIB, KIB, MIB};

settings! {
    /// `[recording]`: recorded sessions.
    pub struct Recording = "recording" {
        /// Folder of the recordings. Absent: sessions that must be recorded are refused.
        dir: Option<PathBuf> = None, path("the path of a folder");
        /// The largest size of one session's recording, in bytes.
        max_size: usize = 256 * MIB, size(64 * KIB..=1024 * GIB);
        /// The size of all recordings in bytes above which the oldest are removed.
        keep: usize = 4 * GIB, size(MIB..=1024 * 1024 * GIB);
        /// Behaviour when a session cannot be recorded further.
        on_failure: OnFailure = OnFailure::Deny, choice();
    }
}
