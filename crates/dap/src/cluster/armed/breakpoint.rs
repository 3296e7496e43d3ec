//! One breakpoint of the editor, and how the editor shows it.
//!
//! Pure.

use serde_json::{Value, json};

use super::progress::{Progress, Shown};
use super::search::{Jobs, Obstacles};
use super::source::{Narrowed, SourceBreakpoint, WorkerPaths};
use ray_relay_base::wire::text::shortened;
use ray_relay_base::wire::tunnel::messages::ArmedLine;

/// One breakpoint of the editor.
pub(super) struct EditorBreakpoint {
    pub(super) id: u32,
    pub(super) requested: SourceBreakpoint,
    /// The line, or why there is none.
    pub(super) line: Result<ArmedLine, &'static str>,
    pub(super) shown: Option<Shown>,
    /// Dropped messages, as last reported.
    pub(super) dropped: u64,
}

impl EditorBreakpoint {
    pub(super) fn new(id: u32, requested: SourceBreakpoint) -> Self {
        Self {
            id,
            requested,
            line: Err(""),
            shown: None,
            dropped: 0,
        }
    }

    /// Makes its line for workers that have its file by `paths`.
    pub(super) fn place(&mut self, paths: Option<&WorkerPaths>, narrowed: &Narrowed) {
        self.line = match paths {
            None => Err(
                "this file is not below the folder of the job's working_dir: open that folder, or set `rayRelay.localRoot`",
            ),
            Some(paths) => self.requested.line(self.id, paths, narrowed),
        };
    }

    /// How the editor shows it.
    pub(super) fn now(&self, progress: &Progress, jobs: &Jobs, obstacles: &Obstacles) -> Shown {
        let not = |message: &str| Shown {
            is_verified: false,
            line: self.requested.line,
            message: message.to_owned(),
        };
        let is_log = match &self.line {
            Err(why) => return not(why),
            Ok(line) => line.log.is_some(),
        };
        if let Some(shown) = progress.shown(self.id, self.requested.line) {
            return shown;
        }
        if is_log && obstacles.records {
            return not(
                "the policy has your sessions on this job recorded, which log messages cannot be: ask the operator for a rule without `record`, or set a breakpoint without a message",
            );
        }
        if let Some(why) = &obstacles.forbidden {
            return not(why);
        }
        let job = match jobs {
            Jobs::Named(name) => format!("the job {}", shortened(name, 80)),
            Jobs::SubmittedBy(..) | Jobs::None => "a job that you submitted".to_owned(),
        };
        not(&format!(
            "no worker of {job} reports the hook yet: check the job's name, and that it was submitted with the hook (`ray-relay help agents`)"
        ))
    }
}

impl Shown {
    /// The breakpoint `id` in messages of DAP.
    pub(super) fn message(&self, id: u32) -> Value {
        json!({ "id": id, "verified": self.is_verified, "message": self.message, "line": self.line })
    }
}
