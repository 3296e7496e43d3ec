//! The paused threads of a program, derived from its debugger's messages and the requests to it.
//!
//! Pure. debugpy sends `stopped` with `allThreadsStopped` once for all threads, now and then twice. It sends
//! `continued` with `allThreadsContinued` even if only one thread steps (`"steppingResumesAllThreads": false`; 1.8.0
//! to 1.8.22). So the requests determine which threads resume.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::codec::parse;
use super::message::{self, Incoming, ThreadEvent};
use super::names::Event;
use crate::wire::json::into_typed;

/// Threads whose stops are stored: with [`MAX_STOP_BYTES`], half of the store of a debugger.
const MAX_STOPS: usize = 16;

/// Bytes above which a stop message is stored without its texts.
const MAX_STOP_BYTES: usize = 1024;

/// The attach argument with which a step resumes only its own thread.
const STEPPING_RESUMES_ALL: &str = "steppingResumesAllThreads";

/// The paused threads.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StoppedThreads {
    /// The threads known to be paused, the latest last, each with the message that reported it.
    #[serde(with = "stops_as_text")]
    stops: Vec<(Option<i64>, Box<[u8]>)>,
    /// All threads were reported as stopped, and have not all been resumed since.
    all: bool,
    /// One of them has been resumed alone since.
    one_runs: bool,
    /// A step resumes its own thread and no other.
    step_alone: bool,
}

/// Messages are text, which is shorter than lists of numbers.
mod stops_as_text {
    use serde::{Deserialize as _, Deserializer, Serializer};

    type Stops = Vec<(Option<i64>, Box<[u8]>)>;

    pub(super) fn serialize<S: Serializer>(stops: &Stops, to: S) -> Result<S::Ok, S::Error> {
        let text = |(thread, stop): &(Option<i64>, Box<[u8]>)| {
            (*thread, String::from_utf8_lossy(stop).into_owned())
        };
        to.collect_seq(stops.iter().map(text))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Stops, D::Error> {
        let stops = Vec::<(Option<i64>, String)>::deserialize(from)?;
        let bytes = |(thread, stop): (Option<i64>, String)| (thread, stop.into_bytes().into());
        Ok(stops.into_iter().map(bytes).collect())
    }
}

impl StoppedThreads {
    /// The threads of a running program, whose debugger was sent an `attach` with these arguments.
    pub fn attached(arguments: &Value) -> Self {
        let mut threads = Self::default();
        threads.attach(arguments);
        threads
    }

    /// The same debugger, with no thread known to be paused.
    #[must_use]
    pub fn cleared(&self) -> Self {
        Self {
            step_alone: self.step_alone,
            ..Self::default()
        }
    }

    /// Records an `attach` with these arguments.
    pub fn attach(&mut self, arguments: &Value) {
        self.step_alone |= arguments.get(STEPPING_RESUMES_ALL) == Some(&Value::Bool(false));
    }

    /// Records a stopped thread from the `stopped` event with this body. An event that cannot be parsed is stored
    /// without a thread.
    pub fn stopped(&mut self, body: &[u8]) {
        let stop = thread_event(body);
        let thread = stop.thread_id;
        let kept: Box<[u8]> = match body.len() > MAX_STOP_BYTES {
            true => without_texts(&stop).into(),
            false => body.into(),
        };
        self.stops.retain(|(stop, _)| *stop != thread);
        if self.stops.len() >= MAX_STOPS {
            self.stops.remove(0);
        }
        // In most programs one thread is paused.
        self.stops.reserve_exact(1);
        self.stops.push((thread, kept));
        if stop.all_threads_stopped {
            (self.all, self.one_runs) = (true, false);
        }
    }

    /// Records resumed threads from the `continued` event with this body.
    pub fn continued(&mut self, body: &[u8]) {
        let event = thread_event(body);
        // An event without a thread resumes all: an editor that lacks a stop requests one with `pause`.
        let all = event.all_threads_continued != Some(false) && !self.step_alone;
        self.run(event.thread_id.filter(|_| !all));
    }

    /// Records the threads that a `continue` with these arguments resumes.
    pub fn let_run(&mut self, arguments: &Value) {
        self.run(resumed(arguments, false));
    }

    /// Records the threads that a step with these arguments resumes.
    pub fn step(&mut self, arguments: &Value) {
        self.run(resumed(arguments, self.step_alone));
    }

    /// Resumes this thread; `None`: all.
    fn run(&mut self, thread: Option<i64>) {
        match thread {
            Some(_) => {
                self.stops.retain(|(stop, _)| *stop != thread);
                self.one_runs = true;
            }
            None => {
                self.stops.clear();
                (self.all, self.one_runs) = (false, false);
            }
        }
    }

    /// Whether a thread is known to be paused.
    pub fn any(&self) -> bool {
        self.all || !self.stops.is_empty()
    }

    /// Whether one thread has been resumed alone since all were paused.
    pub fn but_one(&self) -> bool {
        self.all && self.one_runs
    }

    /// The message of the last stop of a paused thread.
    pub fn last(&self) -> Option<&[u8]> {
        self.stops.last().map(|(_, stop)| &**stop)
    }

    /// Whether no particular thread is known to be paused.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// The bytes of the stored messages.
    pub fn size(&self) -> usize {
        self.stops.iter().map(|(_, stop)| stop.len()).sum()
    }

    /// The messages of the stops, the latest last.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = Box<[u8]>> {
        self.stops.into_iter().map(|(_, stop)| stop)
    }
}

/// The only thread that these `arguments` resume, or that is agreed to resume `alone`; `None`: all threads.
fn resumed(arguments: &Value, alone: bool) -> Option<i64> {
    let alone = alone || arguments.get("singleThread") == Some(&Value::Bool(true));
    let thread = arguments.get("threadId").and_then(Value::as_i64);
    thread.filter(|_| alone)
}

/// The thread information of the event in `message`; empty if it cannot be parsed.
fn thread_event(message: &[u8]) -> ThreadEvent {
    into_typed(Incoming::read(parse(message).unwrap_or_default()).body)
}

/// A `stopped` event with the fields that an editor needs to show the line.
fn without_texts(stop: &ThreadEvent) -> Vec<u8> {
    let is_short = !stop.reason.is_empty() && stop.reason.len() <= 64;
    let body = json!({
        "reason": if is_short { &*stop.reason } else { "pause" },
        "threadId": stop.thread_id,
        "allThreadsStopped": stop.all_threads_stopped,
    });
    message::event(Event::Stopped, body)
        .to_string()
        .into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stopped(thread: i64, all: bool) -> Vec<u8> {
        let body = json!({"reason": "breakpoint", "threadId": thread, "allThreadsStopped": all});
        message::event(Event::Stopped, body)
            .to_string()
            .into_bytes()
    }

    fn continued(thread: i64) -> Vec<u8> {
        let body = json!({"threadId": thread, "allThreadsContinued": true});
        message::event(Event::Continued, body)
            .to_string()
            .into_bytes()
    }

    #[test]
    fn single_thread_step_keeps_other_threads_stopped() {
        let mut threads = StoppedThreads::attached(&json!({"steppingResumesAllThreads": false}));
        // debugpy reports the stop for one thread or for two.
        threads.stopped(&stopped(2, true));
        threads.step(&json!({"threadId": 2}));
        threads.continued(&continued(2));
        assert!(threads.any() && threads.but_one() && threads.last().is_none());
        threads.stopped(&stopped(2, true));
        assert!(!threads.but_one());
        threads.let_run(&json!({"threadId": 2}));
        assert!(!threads.any() && !threads.but_one());
    }

    #[test]
    fn full_step_resumes_all_threads() {
        let mut threads = StoppedThreads::attached(&json!({}));
        for thread in [2, 3] {
            threads.stopped(&stopped(thread, true));
        }
        threads.step(&json!({"threadId": 2}));
        assert!(!threads.any());
        threads.stopped(&stopped(2, true));
        threads.step(&json!({"threadId": 2, "singleThread": true}));
        assert!(threads.any() && threads.but_one());
        threads.continued(&continued(3));
        assert!(!threads.any());
    }

    #[test]
    fn threads_stopped_one_by_one_resume_one_by_one() {
        let mut threads = StoppedThreads::default();
        for thread in [2, 3, 4] {
            threads.stopped(&stopped(thread, false));
        }
        threads.let_run(&json!({"threadId": 3, "singleThread": true}));
        assert!(threads.any() && !threads.but_one());
        let stopped: Vec<_> = threads.clone().into_messages().collect();
        assert_eq!(stopped.len(), 2);
        threads.let_run(&json!({"threadId": 4}));
        assert!(!threads.any());
    }
}
