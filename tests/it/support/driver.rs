//! A driver of Ray's, and what it prints.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use super::eventually;

fn printed(log: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned()
}

/// A driver that runs on the head; killed when dropped.
pub(crate) struct Driver {
    child: Child,
    log: PathBuf,
}

impl Driver {
    /// The process `child`, which prints to `log`.
    pub(super) fn new(child: Child, log: PathBuf) -> Self {
        Self { child, log }
    }

    /// All that it printed so far.
    pub(crate) fn output(&self) -> String {
        printed(&self.log)
    }

    /// Waits until it has printed a line that begins with `start`; returns the rest of that line.
    pub(crate) fn line(&mut self, start: &str) -> String {
        let Self { child, log } = self;
        let what = std::fmt::from_fn(|f| {
            write!(
                f,
                "a line {start:?} of the driver, which printed:\n{}\n",
                printed(log)
            )
        });
        // Each worker of Ray's takes seconds of a core to start, and other tests have the cores too.
        eventually(&what, Duration::from_secs(300), || {
            let ended = child.try_wait().unwrap();
            let output = printed(log);
            // A line without its end may be incomplete.
            let whole = output.rfind('\n').map_or("", |end| &output[..end]);
            let found = whole.lines().find_map(|line| line.strip_prefix(start));
            if found.is_none()
                && let Some(status) = ended
            {
                panic!("the driver ended ({status}) without {start:?}:\n{output}");
            }
            found.map(|rest| rest.trim().to_owned())
        })
    }

    /// The value after `RESULT`.
    pub(crate) fn result(&mut self) -> Value {
        serde_json::from_str(&self.line("RESULT")).unwrap()
    }

    /// Whether the driver has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Whether it has printed no result yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.output().lines().any(|line| line.starts_with("RESULT"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
