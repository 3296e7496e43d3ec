//! The policy file. Until its format is there: a file that can be read allows nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Access;
use crate::config::{Problem, Problems};

/// All rules of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {}

impl Policy {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// All [`Problems`] of it.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let found = match std::fs::metadata(path) {
            Ok(_) => return Ok(Self {}),
            Err(error) => error.to_string(),
        };
        Err(Problems {
            problems: vec![Problem {
                key: "auth.policy_file".to_owned(),
                place: path.display().to_string(),
                found,
                expected: "a policy file that can be read".to_owned(),
                hint: None,
            }],
        })
    }

    /// What somebody may do who was recognised as `subject` and member of `groups`.
    pub fn access(&self, _subject: &str, _groups: &[String]) -> Access {
        Access::new(Vec::new())
    }
}

/// A policy file that may change while the relay runs.
#[derive(Debug)]
pub struct PolicyFile {
    policy: Arc<Policy>,
}

impl PolicyFile {
    /// Reads `path`.
    ///
    /// # Errors
    /// As [`Policy::load`].
    #[allow(clippy::needless_pass_by_value)]
    pub fn open(path: PathBuf) -> Result<Self, Problems> {
        let policy = Arc::new(Policy::load(&path)?);
        Ok(Self { policy })
    }

    /// The rules that hold.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Reads the file again if it has changed. `true` where there are new rules. Blocks.
    ///
    /// # Errors
    /// All [`Problems`] of the new content; the old rules go on to hold.
    pub fn reload(&mut self) -> Result<bool, Problems> {
        Ok(false)
    }
}
