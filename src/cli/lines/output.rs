//! The output of an armed line: messages and stops on standard output, and on standard error where it is armed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::columns::{Column, Columns};
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::{one_line, replaced};

/// The pause between two notices of where the line is armed, which changes with each worker that starts.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// The delay after which the user is told that no worker has reported.
const HOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Reasons that are printed in one notice.
const MAX_REASONS: usize = 4;

/// A worker: the address of its node, and its process there. Without a process, the node itself.
type Process = (String, Option<u32>);

/// The line that is armed.
pub(super) struct LineToArm {
    /// As the user has written it.
    pub(super) place: String,
    /// The job, as the user has named it.
    pub(super) job: String,
    /// Whether tasks stop there.
    pub(super) stops: bool,
}

/// The form of events on standard output.
pub(super) enum Format {
    /// One line for each message or stop.
    Lines,
    /// One object a line for each event.
    Json,
    /// One column for each rank.
    Columns(Columns),
}

/// The state of the line in each worker.
pub(super) struct Output {
    format: Format,
    line: LineToArm,
    workers: BTreeMap<Process, WorkerState>,
    hits: u64,
    stops: u64,
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
    #[serde(default)]
    breakpoint: String,
    #[serde(default)]
    full: bool,
    #[serde(default)]
    tasks: usize,
}

impl Output {
    pub(super) fn new(format: Format, line: LineToArm) -> Self {
        Self {
            format,
            line,
            workers: BTreeMap::new(),
            hits: 0,
            stops: 0,
            next_notice: Some(Instant::now() + HOOK_TIMEOUT),
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
            "stop" => self.stops += 1,
            "status" => {
                let state = match (&*event.state, event.error) {
                    (_, Some(error)) => WorkerState::Not(one_line(&error)),
                    ("armed", None) => WorkerState::Armed(event.at),
                    ("not_loaded", None) => WorkerState::NotLoaded,
                    _ => WorkerState::Not("the line is disarmed there".to_owned()),
                };
                self.change(process, Some(state));
            }
            "refused" => self.change(process, Some(WorkerState::Not(one_line(&event.reason)))),
            "gone" => self.change(process, None),
            _ => {}
        }
        match (&mut self.format, name) {
            (Format::Json, _) => {
                let mut line = json!({ "event": name });
                for (key, value) in data.as_object()? {
                    put(&mut line, key, value.clone());
                }
                return Some(format!("{line}\n"));
            }
            (Format::Columns(columns), "hit") => {
                let column = match event.rank {
                    Some(rank) => Column::Rank(rank),
                    None => Column::Process(event.node, event.pid.unwrap_or_default()),
                };
                return Some(columns.add(column, &event.text, Instant::now()));
            }
            (Format::Columns(_) | Format::Lines, _) => {}
        }
        match name {
            "hit" => {
                let place = place(&event.node, event.pid, event.rank);
                let lines = event.text.split('\n');
                Some(
                    lines
                        .map(|line| format!("{place}  {}\n", replaced(line)))
                        .collect(),
                )
            }
            "stop" => {
                let place = place(&event.node, event.pid, event.rank);
                let id = replaced(&event.breakpoint);
                Some(format!(
                    "{place} stopped at {}; debug it with `ray-relay debug {id}`\n",
                    self.line.place
                ))
            }
            "full" => {
                match event.full {
                    true => eprintln!(
                        "ray-relay: {} tasks are paused on this line, the maximum; others pass it until you resume one (`ray-relay release ID`)",
                        event.tasks
                    ),
                    false => eprintln!("ray-relay: tasks stop on this line again"),
                }
                None
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
        if changed {
            let soon = Instant::now() + NOTICE_INTERVAL;
            self.next_notice = Some(self.next_notice.map_or(soon, |due| due.min(soon)));
        }
    }

    /// The job, as the user has named it.
    pub(super) fn job(&self) -> &str {
        &self.line.job
    }

    /// When to call [`Self::when_due`].
    pub(super) fn due(&self) -> Option<Instant> {
        let row = match &self.format {
            Format::Columns(columns) => columns.due(),
            Format::Lines | Format::Json => None,
        };
        self.next_notice.into_iter().chain(row).min()
    }

    /// Prints where the line is armed, and why not elsewhere, if that has changed. Returns what to print on standard
    /// output.
    pub(super) fn when_due(&mut self) -> String {
        let now = Instant::now();
        if self.next_notice.is_some_and(|due| due <= now) {
            self.notice();
        }
        match &mut self.format {
            Format::Columns(columns) => columns.rows(now),
            Format::Lines | Format::Json => String::new(),
        }
    }

    /// Returns what has not been printed on standard output.
    pub(super) fn rest(&mut self) -> String {
        match &mut self.format {
            Format::Columns(columns) => columns.rest(),
            Format::Lines | Format::Json => String::new(),
        }
    }

    fn notice(&mut self) {
        self.next_notice = None;
        let text = self.text();
        if text != self.last && !matches!(self.format, Format::Json) {
            eprint!("{text}");
        }
        self.last = text;
    }

    fn text(&self) -> String {
        if self.workers.is_empty() {
            return format!(
                "ray-relay: no worker of {} has reported the hook; workers load it when they start: submit the job with it (`ray-relay help agents`)\n",
                self.line.job
            );
        }
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
            0 => String::new(),
            1 => format!("ray-relay: armed in 1 worker, at line {}\n", at.join(", ")),
            _ => format!(
                "ray-relay: armed in {armed} workers, at line {}\n",
                at.join(", ")
            ),
        };
        // A function that was sent to a worker is found there when it is called.
        if not_loaded > 0 {
            let workers = if not_loaded == 1 {
                "worker that has"
            } else {
                "workers that have"
            };
            text += &format!(
                "ray-relay: watching {not_loaded} {workers} not run the file yet; if none does, check its name and the line\n"
            );
        }
        for (reason, processes) in reasons.iter().take(MAX_REASONS) {
            let first = processes.first().map(|(node, pid)| match pid {
                Some(pid) => format!("pid {pid} on {node}"),
                None => format!("any worker of node {node}"),
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

    /// Prints how many messages or stops there were.
    pub(super) fn summarize(&self) {
        if matches!(self.format, Format::Json) {
            return;
        }
        let (hits, what) = match self.line.stops {
            true => (self.stops, "stop"),
            false => (self.hits, "message"),
        };
        let plural = if hits == 1 { "" } else { "s" };
        eprintln!("ray-relay: disarmed, after {hits} {what}{plural}");
        if self.stops > 0 {
            eprintln!(
                "ray-relay: tasks that are paused stay paused; `ray-relay release --all --job {}` resumes them",
                self.line.job
            );
        }
    }
}

/// The place of a message: its rank, or its process.
fn place(node: &str, pid: Option<u32>, rank: Option<u32>) -> String {
    match (rank, pid) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(pid)) => format!("{node} pid {pid}"),
        (None, None) => node.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line() -> LineToArm {
        LineToArm {
            place: "train.py:26".to_owned(),
            job: "raysubmit_x".to_owned(),
            stops: false,
        }
    }

    fn status(pid: u32, state: &str, error: Option<&str>) -> Value {
        json!({ "node": "10.0.0.7", "pid": pid, "state": state, "at": [27], "hits": 1, "dropped": 0, "error": error })
    }

    #[test]
    fn message_names_its_rank_or_process_on_each_line() {
        let mut messages = Output::new(Format::Lines, line());
        let hit = json!({ "node": "10.0.0.7", "pid": 41, "rank": 3, "text": "a\nb\u{1b}[2J" });
        let text = messages.event("hit", &hit).unwrap();
        assert!(text.starts_with("rank 3  a\nrank 3  b"), "{text:?}");
        assert!(!text.contains('\u{1b}') && text.ends_with('\n'), "{text:?}");
        let hit = json!({ "node": "10.0.0.7", "pid": 41, "rank": null, "text": "a" });
        let text = messages.event("hit", &hit).unwrap();
        assert_eq!(text, "10.0.0.7 pid 41  a\n");
        assert_eq!(messages.hits, 2);
    }

    #[test]
    fn stop_names_the_rank_and_the_command_for_it() {
        let mut output = Output::new(Format::Lines, line());
        let stop = json!({ "node": "10.0.0.7", "pid": 41, "rank": 3, "breakpoint": "3kfz0q8m" });
        let text = output.event("stop", &stop).unwrap();
        assert_eq!(
            text,
            "rank 3 stopped at train.py:26; debug it with `ray-relay debug 3kfz0q8m`\n"
        );
        assert_eq!((output.stops, output.hits), (1, 0));
    }

    #[test]
    fn notice_counts_workers_by_the_state_of_the_line() {
        let mut messages = Output::new(Format::Lines, line());
        assert!(messages.text().contains("no worker of raysubmit_x"));
        messages.event("status", &status(1, "armed", None));
        messages.event("status", &status(2, "armed", None));
        messages.event("status", &status(3, "not_loaded", None));
        messages.event("status", &status(4, "ended", Some("NameError: name 'x'")));
        let reason = json!({ "node": "10.0.0.8", "reason": "no agent is linked" });
        messages.event("refused", &reason);
        assert_eq!(
            messages.text(),
            "ray-relay: armed in 2 workers, at line 27\n\
             ray-relay: watching 1 worker that has not run the file yet; if none does, check its name and the line\n\
             ray-relay: not armed in pid 4 on 10.0.0.7: NameError: name 'x'\n\
             ray-relay: not armed in any worker of node 10.0.0.8: no agent is linked\n"
        );
        messages.event("gone", &json!({ "node": "10.0.0.7", "pid": 2 }));
        assert!(
            messages
                .text()
                .starts_with("ray-relay: armed in 1 worker, at line 27\n")
        );
    }

    #[test]
    fn json_has_every_event_as_the_relay_sent_it() {
        let mut messages = Output::new(Format::Json, line());
        let text = messages.event("status", &status(1, "armed", None)).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["event"], &line["at"]),
            (&json!("status"), &json!([27]))
        );
        assert!(
            messages
                .event("new", &json!({ "x": 1 }))
                .unwrap()
                .contains("\"x\":1")
        );
    }
}
