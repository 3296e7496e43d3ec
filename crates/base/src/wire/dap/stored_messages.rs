//! The messages of a debugger without a client, as far as the next client needs them.
//!
//! Pure. Stops and what ends them are folded. Output, and subprocesses that wait to be debugged, are stored unchanged,
//! within [`MAX_STORED_BYTES`]; the oldest are dropped first, and counted. Responses to the former client are dropped.

use std::collections::VecDeque;

use super::codec::parse;
use super::names::{Event, Reverse};
use super::peek::{Depth, MessageType, Peek, Walk};
use super::stopped_threads::StoppedThreads;

/// Bytes of messages stored for one debugger, stops included.
pub const MAX_STORED_BYTES: usize = 32 * 1024;

/// The stored messages of one debugger.
#[derive(Debug, Default)]
pub struct StoredMessages {
    /// The paused threads.
    pub threads: StoppedThreads,
    messages: VecDeque<Box<[u8]>>,
    /// Bytes of `messages`.
    size: usize,
    /// Messages dropped for lack of space.
    cut: usize,
}

/// The meaning of a message for the owner of the debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A thread has stopped.
    Stopped,
    /// The program continues.
    Runs,
    /// The debugger has finished with the program.
    Ended,
    /// Nothing.
    Nothing,
}

/// Whether [`StoredMessages::take`] needs messages of this type and name.
pub fn matters(kind: MessageType, name: &[u8]) -> bool {
    match kind {
        MessageType::Event => matches!(
            Event::parse(name),
            Some(
                Event::Stopped
                    | Event::Continued
                    | Event::Terminated
                    | Event::Output
                    | Event::DebugpyAttach
            )
        ),
        MessageType::Request => Reverse::parse(name) == Some(Reverse::StartDebugging),
        MessageType::Response => false,
    }
}

impl StoredMessages {
    /// Without messages, for a debugger with these paused threads.
    pub fn of(threads: StoppedThreads) -> Self {
        Self {
            threads,
            ..Self::default()
        }
    }

    /// Restores the store of another process: the paused threads, `messages`, and the number `cut` of messages dropped
    /// before them.
    pub fn restored(
        threads: StoppedThreads,
        cut: usize,
        messages: impl Iterator<Item = Box<[u8]>>,
    ) -> Self {
        let mut kept = Self::of(threads);
        kept.cut = cut;
        for message in messages {
            kept.keep(&message);
        }
        kept
    }

    /// Processes the message with this body.
    pub fn take(&mut self, body: &[u8]) -> Meaning {
        let known = Walk::new(Depth::Whole).peek(body, body.len());
        let Peek::Known(kind, name) = known else {
            return Meaning::Nothing;
        };
        match kind {
            MessageType::Event => match Event::parse(name) {
                Some(Event::Stopped) => {
                    self.stopped(body);
                    return Meaning::Stopped;
                }
                Some(Event::Continued) => {
                    self.threads.continued(body);
                    return Meaning::Runs;
                }
                Some(Event::Terminated) => return Meaning::Ended,
                Some(Event::Output | Event::DebugpyAttach) => self.keep(body),
                _ => {}
            },
            MessageType::Request if matters(kind, name) => self.keep(body),
            MessageType::Request | MessageType::Response => {}
        }
        Meaning::Nothing
    }

    /// Records a stopped thread from the `stopped` event with this body.
    pub fn stopped(&mut self, body: &[u8]) {
        self.threads.stopped(body);
        self.make_room();
    }

    /// Counts a message for which there was no memory.
    pub fn passed_over(&mut self) {
        self.cut += 1;
    }

    fn keep(&mut self, body: &[u8]) {
        if body.len() > MAX_STORED_BYTES {
            self.cut += 1;
            return;
        }
        self.size += body.len();
        self.messages.push_back(body.into());
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.size + self.threads.size() > MAX_STORED_BYTES
            && let Some(oldest) = self.messages.pop_front()
        {
            self.size -= oldest.len();
            self.cut += 1;
        }
    }

    /// Removes and returns the stored messages, the oldest first, with the number of messages dropped before them.
    pub fn messages(&mut self) -> (usize, impl Iterator<Item = Box<[u8]>> + use<>) {
        let messages = std::mem::take(&mut self.messages);
        self.size -= messages.iter().map(|one| one.len()).sum::<usize>();
        (std::mem::take(&mut self.cut), messages.into_iter())
    }

    /// The subprocesses of which a client was to be notified.
    pub fn subprocesses(&self) -> impl Iterator<Item = u32> {
        self.messages.iter().filter_map(|body| {
            let message = parse(body).ok()?;
            let of_request = message.pointer("/arguments/configuration/subProcessId");
            let process = of_request.or(message.pointer("/body/subProcessId"))?;
            u32::try_from(process.as_u64()?).ok()
        })
    }

    /// The messages of the stops, the latest last.
    pub fn stops(self) -> impl Iterator<Item = Box<[u8]>> {
        self.threads.into_messages()
    }

    /// Whether no thread is known to be paused.
    pub fn runs(&self) -> bool {
        self.threads.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::dap::message;

    fn stopped(thread: i64, text: &str) -> Vec<u8> {
        let body = json!({"reason": "breakpoint", "threadId": thread, "allThreadsStopped": true, "text": text});
        message::event(Event::Stopped, body)
            .to_string()
            .into_bytes()
    }

    fn continued(body: Value) -> Vec<u8> {
        message::event(Event::Continued, body)
            .to_string()
            .into_bytes()
    }

    fn output(text: &str) -> Vec<u8> {
        let body = json!({"category": "stdout", "output": text});
        message::event(Event::Output, body).to_string().into_bytes()
    }

    fn threads(stored: StoredMessages) -> Vec<Value> {
        let thread = |stop: Box<[u8]>| parse(&stop).unwrap()["body"]["threadId"].clone();
        stored.stops().map(thread).collect()
    }

    #[test]
    fn stopped_thread_is_stored_until_continued() {
        let mut stored = StoredMessages::default();
        for thread in [1, 2, 3, 2] {
            assert_eq!(stored.take(&stopped(thread, "")), Meaning::Stopped);
        }
        let one = json!({"threadId": 3, "allThreadsContinued": false});
        assert_eq!(stored.take(&continued(one)), Meaning::Runs);
        assert_eq!(threads(stored), [1, 2]);
        for all in [
            json!({"threadId": 1, "allThreadsContinued": true}),
            json!({"threadId": 7}),
            json!({}),
        ] {
            let mut stored = StoredMessages::default();
            stored.take(&stopped(1, ""));
            stored.take(&continued(all));
            assert!(stored.runs());
        }
    }

    #[test]
    fn output_is_stored_in_order_and_the_loss_counted() {
        let mut stored = StoredMessages::default();
        stored.take(&stopped(1, ""));
        let long = "x".repeat(MAX_STORED_BYTES / 4);
        for n in 0..6 {
            stored.take(&output(&format!("{n} {long}")));
        }
        stored.take(&output(&"y".repeat(2 * MAX_STORED_BYTES)));
        let (dropped_bytes, messages) = stored.messages();
        let texts: Vec<_> = messages
            .map(|one| parse(&one).unwrap()["body"]["output"].to_string())
            .collect();
        assert_eq!(dropped_bytes, 4);
        assert!(texts[0].starts_with("\"3") && texts[2].starts_with("\"5"));
        assert_eq!(threads(stored), [1], "output does not crowd out a stop");
    }

    #[test]
    fn long_stop_is_stored_without_its_text() {
        let mut stored = StoredMessages::default();
        stored.take(&stopped(4, &"boom ".repeat(10_000)));
        assert!(stored.threads.size() <= 1024);
        assert_eq!(threads(stored), [4]);
    }

    #[test]
    fn waiting_subprocess_is_stored_and_answers_are_not() {
        let mut stored = StoredMessages::default();
        let configuration = json!({"configuration": {"subProcessId": 7}});
        let child = message::request(1, Reverse::StartDebugging, configuration);
        stored.take(child.to_string().as_bytes());
        stored.take(
            br#"{"seq":2,"type":"response","request_seq":1,"success":true,"command":"threads"}"#,
        );
        let ended = message::event(Event::Terminated, Value::Null).to_string();
        assert_eq!(stored.take(ended.as_bytes()), Meaning::Ended);
        assert_eq!(stored.subprocesses().collect::<Vec<_>>(), [7]);
        assert_eq!(stored.messages().1.count(), 1);
        assert!(
            !matters(MessageType::Response, b"stackTrace")
                && !matters(MessageType::Event, b"module")
        );
    }

    proptest! {
        #[test]
        fn stored_messages_stay_within_the_bound(
            events in proptest::collection::vec((0u8..4, 0i64..40, 0usize..40_000), 0..60),
        ) {
            let mut stored = StoredMessages::default();
            for (event_name, thread, length) in events {
                let text = "z".repeat(length);
                let body = match event_name {
                    0 => stopped(thread, &text),
                    1 => continued(json!({"threadId": thread, "allThreadsContinued": thread % 2 == 0})),
                    2 => output(&text),
                    _ => text.into_bytes(),
                };
                stored.take(&body);
                let messages: usize = stored.messages.iter().map(|one| one.len()).sum();
                prop_assert_eq!(stored.size, messages);
                prop_assert!(stored.size + stored.threads.size() <= MAX_STORED_BYTES);
            }
        }
    }
}
