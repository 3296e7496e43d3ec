//! The audit log for tests of its users: the production writer with a sink that stores its lines and fails on
//! request.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::sink::{LineSink, Sink};
use super::{Audit, EntryKind, Hashing};
use crate::telemetry::Metrics;
use ray_relay_base::config;

/// A written line, without the members that chain it.
#[derive(Debug, Clone)]
pub struct AuditLine {
    pub action: EntryKind,
    pub subject: Option<String>,
    pub session: Option<u64>,
    pub breakpoint: Option<String>,
    pub name: Option<String>,
    pub details: Value,
}

impl AuditLine {
    fn read(line: &str) -> Self {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| line[key].as_str().map(str::to_owned);
        let action = |action: &EntryKind| line["action"] == action.word();
        Self {
            action: EntryKind::ALL.into_iter().find(action).unwrap(),
            subject: text("subject"),
            session: line["session"].as_u64(),
            breakpoint: text("breakpoint"),
            name: text("name"),
            details: line["details"].clone(),
        }
    }
}

/// The written lines.
#[derive(Clone, Default)]
pub struct AuditSpy(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lines: Vec<AuditLine>,
    /// Lines of this kind fail.
    failing_kind: Option<EntryKind>,
    /// All lines fail.
    fails_all: bool,
}

impl LineSink for AuditSpy {
    fn name(&self) -> String {
        "a test".to_owned()
    }

    fn append(&mut self, line: &str) -> Result<(), String> {
        let line = AuditLine::read(line);
        let mut state = self.0.lock();
        if state.fails_all || state.failing_kind == Some(line.action) {
            return Err("the disk is full".to_owned());
        }
        state.lines.push(line);
        Ok(())
    }
}

/// Creates an audit log whose lines the spy records, those of commands too if `commands`. The writer is a task of the
/// test's runtime: a paused clock waits for tasks, but not for threads.
pub fn spied(commands: bool) -> (Arc<Audit>, AuditSpy) {
    let spy = AuditSpy::default();
    let config = config::Audit {
        commands,
        ..config::Audit::default()
    };
    let sink = Sink::Lines(Box::new(spy.clone()));
    let metrics = Metrics::new().unwrap();
    let (audit, mut writer, mut jobs) =
        Audit::start(sink, Hashing::Plain, &config, metrics).unwrap();
    tokio::spawn(async move {
        while let Some(job) = jobs.recv().await {
            writer.work(job, &mut jobs);
        }
    });
    (audit, spy)
}

impl AuditSpy {
    /// Makes lines of this kind fail from now on.
    pub fn refuse(&self, action: EntryKind) {
        self.0.lock().failing_kind = Some(action);
    }

    /// Makes all lines fail, or none.
    pub fn refuse_all(&self, all: bool) {
        self.0.lock().fails_all = all;
    }

    /// Returns all lines so far.
    pub fn lines(&self) -> Vec<AuditLine> {
        self.0.lock().lines.clone()
    }

    /// Removes and returns all lines so far, except those about the audit log itself.
    pub fn take(&self) -> Vec<AuditLine> {
        let mut lines = std::mem::take(&mut self.0.lock().lines);
        lines.retain(|line| line.action != EntryKind::Audit);
        lines
    }
}
