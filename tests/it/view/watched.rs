//! A process that is debugged, and in which code leaves a mark when it is run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::dap_client::TEST_TIMEOUT;
use crate::support::ray::{self, NEWEST};

/// A process that stops again and again, with the marks that were left in it.
pub(super) struct Watched {
    pub(super) process: Child,
    pub(super) port: u16,
    marks: tempfile::TempDir,
    logs: tempfile::TempDir,
}

impl Watched {
    pub(super) async fn start() -> Option<Self> {
        let venv = ray::environment(NEWEST)?;
        let marks = tempfile::tempdir().unwrap();
        let logs = tempfile::tempdir().unwrap();
        let mut process = Command::new(venv.python())
            .arg(script())
            .arg(marks.path())
            .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
            .env("DEBUGPY_LOG_DIR", logs.path())
            .env("RAY_AUTH_TOKEN", "rays-own-7")
            .env("MODEL_STORE_KEY", "store-key-7")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = timeout(TEST_TIMEOUT, lines.next_line())
            .await
            .unwrap()
            .unwrap();
        // Printing into a closed pipe would fail.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Self {
            process,
            port: first.unwrap().parse().unwrap(),
            marks,
            logs,
        })
    }

    /// Counts the debugger's ended sessions in the adapter's log.
    pub(super) fn sessions_over(&self) -> usize {
        let files = std::fs::read_dir(self.logs.path()).unwrap();
        let adapters = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.display().to_string().contains("debugpy.adapter"));
        adapters
            .map(|path| std::fs::read(path).unwrap())
            .map(|log| String::from_utf8_lossy(&log).matches(" has ended.").count())
            .sum()
    }

    pub(super) fn marks(&self) -> BTreeSet<String> {
        let files = std::fs::read_dir(self.marks.path()).unwrap();
        files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Marks of code that a client brought.
    pub(super) fn foreign_marks(&self) -> BTreeSet<String> {
        let own = |mark: &String| mark.starts_with("own-");
        self.marks().into_iter().filter(|m| !own(m)).collect()
    }

    pub(super) fn turns(&self) -> u64 {
        let turns = std::fs::read_to_string(self.marks.path().join("own-turns"));
        turns.ok().and_then(|t| t.parse().ok()).unwrap_or(0)
    }
}

pub(super) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debuggee/watched.py")
}

pub(super) fn line_here() -> usize {
    let text = std::fs::read_to_string(script()).unwrap();
    1 + text
        .lines()
        .position(|line| line.ends_with("# HERE"))
        .unwrap()
}
