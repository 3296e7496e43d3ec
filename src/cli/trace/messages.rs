//! What a trace prints: messages on standard output, and on standard error where the line is armed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::{one_line, replaced};

/// The pause between two notices of where the line is armed, which changes with each worker that starts.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// Reasons that are printed in one notice.
const MAX_REASONS: usize = 4;

/// A worker: the address of its node, and its process there. Without a process, the node itself.
type Process = (String, Option<u32>);

/// The state of the line in each worker.
pub(super) struct Messages {
    json: bool,
    workers: BTreeMap<Process, WorkerState>,
    hits: u64,
    next_notice: Option<Instant>,
    /// The last notice, which is not repeated.
    last: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum WorkerState {
    Armed(Vec<u32>),
    NotLoaded,
    /// Not armed, or no more, for this reason.
    Not(String),
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    node: String,
    pid: Option<u32>,
    rank: Option<u32>,
    thread: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    at: Vec<u32>,
    error: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    messages: u64,
}

impl Messages {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            workers: BTreeMap::new(),
            hits: 0,
            next_notice: None,
            last: String::new(),
        }
    }

    /// Takes an event, and returns what to print on standard output.
    pub(super) fn event(&mut self, name: &str, data: &Value) -> Option<String> {
        let Ok(event) = Event::deserialize(data) else {
            return None;
        };
        let process = (event.node.clone(), event.pid);
        match name {
            "hit" => self.hits += 1,
            "status" => {
                let state = match (&*event.state, event.error) {
                    (_, Some(error)) => WorkerState::Not(one_line(&error)),
                    ("armed", None) => WorkerState::Armed(event.at),
                    ("not_loaded", None) => WorkerState::NotLoaded,
                    _ => WorkerState::Not("it is disarmed there".to_owned()),
                };
                self.change(process, Some(state));
            }
            "refused" => self.change(process, Some(WorkerState::Not(one_line(&event.reason)))),
            "gone" => self.change(process, None),
            _ => {}
        }
        if self.json {
            let mut line = json!({ "event": name });
            for (key, value) in data.as_object()? {
                put(&mut line, key, value.clone());
            }
            return Some(format!("{line}\n"));
        }
        match name {
            "hit" => {
                let place = place(&event.node, event.pid, event.rank, event.thread.as_deref());
                let lines = event.text.split('\n');
                Some(
                    lines
                        .map(|line| format!("{place}  {}\n", replaced(line)))
                        .collect(),
                )
            }
            "dropped" => {
                eprintln!(
                    "ray-relay: {} messages dropped: they come faster than they are read here",
                    event.messages
                );
                None
            }
            _ => None,
        }
    }

    fn change(&mut self, process: Process, state: Option<WorkerState>) {
        let changed = match state {
            Some(state) => self.workers.insert(process, state.clone()) != Some(state),
            None => self.workers.remove(&process).is_some(),
        };
        if changed && self.next_notice.is_none() {
            self.next_notice = Some(Instant::now() + NOTICE_INTERVAL);
        }
    }

    /// When to print a notice, if anything has changed.
    pub(super) fn next_notice(&self) -> Option<Instant> {
        self.next_notice
    }

    /// Prints where the line is armed, and why not elsewhere.
    pub(super) fn notice(&mut self) {
        self.next_notice = None;
        let text = self.text();
        if text != self.last && !self.json {
            eprint!("{text}");
        }
        self.last = text;
    }

    fn text(&self) -> String {
        let (mut armed, mut not_loaded, mut at) = (0, 0, Vec::new());
        let mut reasons: BTreeMap<&str, Vec<&Process>> = BTreeMap::new();
        for (process, state) in &self.workers {
            match state {
                WorkerState::Armed(lines) => {
                    armed += 1;
                    at.extend(lines.iter().copied());
                }
                WorkerState::NotLoaded => not_loaded += 1,
                WorkerState::Not(reason) => reasons.entry(reason).or_default().push(process),
            }
        }
        at.sort_unstable();
        at.dedup();
        let at: Vec<String> = at.iter().map(u32::to_string).collect();
        let mut text = match armed {
            0 => "ray-relay: armed in no worker\n".to_owned(),
            1 => format!("ray-relay: armed in 1 worker, at line {}\n", at.join(", ")),
            _ => format!(
                "ray-relay: armed in {armed} workers, at line {}\n",
                at.join(", ")
            ),
        };
        if not_loaded > 0 {
            text += &format!(
                "ray-relay: {not_loaded} have not loaded that file, or it has no code there: armed when they import it\n"
            );
        }
        for (reason, processes) in reasons.iter().take(MAX_REASONS) {
            let first = processes.first().map(|(node, pid)| match pid {
                Some(pid) => format!("pid {pid} on {node}"),
                None => format!("node {node}"),
            });
            let others = match processes.len() {
                0 | 1 => String::new(),
                all => format!(" and {} more", all - 1),
            };
            text += &format!(
                "ray-relay: not armed in {}{others}: {reason}\n",
                first.unwrap_or_default()
            );
        }
        text
    }

    /// Prints how many messages there were.
    pub(super) fn summarize(&self) {
        if !self.json {
            eprintln!("ray-relay: disarmed, after {} messages", self.hits);
        }
    }
}

/// The place of a message: its rank, or its process.
fn place(node: &str, pid: Option<u32>, rank: Option<u32>, thread: Option<&str>) -> String {
    let process = match (rank, pid) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(pid)) => format!("{node} pid {pid}"),
        (None, None) => node.to_owned(),
    };
    match thread {
        Some(thread) => format!("{process} ({})", one_line(thread)),
        None => process,
    }
}
