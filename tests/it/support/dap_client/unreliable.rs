//! A client whose connection may be cut. It verifies that no message is lost, duplicated or reordered.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{DapClient, TEST_TIMEOUT};

impl DapClient {
    /// Sends a request over a connection that may be closed; returns its `seq`.
    pub(crate) async fn send_into_the_dark(&mut self, command: &str) -> u64 {
        self.send_unreliably(command, &json!({})).await
    }

    async fn send_unreliably(&mut self, command: &str, arguments: &Value) -> u64 {
        let body = self.request(command, arguments).to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let _ = self.writing.write_all(frame.as_bytes()).await;
        let _ = self.writing.flush().await;
        self.seq
    }

    /// The response to a request, successful or not, where the connection brings it in time.
    pub(crate) async fn ask_within(
        &mut self,
        command: &str,
        arguments: &Value,
        max_wait: Duration,
    ) -> Option<Value> {
        let seq = self.send_unreliably(command, arguments).await;
        self.response_within(seq, max_wait).await
    }

    /// Like [`DapClient::try_start`] without breakpoints, over a connection that may be closed.
    pub(crate) async fn start_within(
        &mut self,
        attach: Map<String, Value>,
        max_wait: Duration,
    ) -> Option<Value> {
        let initialize = self.editor.initialize();
        self.ask_within("initialize", &initialize, max_wait).await?;
        let attach = self.send_unreliably("attach", &Value::Object(attach)).await;
        let first = self.find_within(max_wait, |message| {
            message["event"] == "initialized" || message["request_seq"] == attach
        });
        let first = first.await.ok()?;
        if first["type"] == "response" {
            return Some(first);
        }
        let filters = self.editor.exception_filters();
        for (command, arguments) in [
            ("setExceptionBreakpoints", filters),
            ("configurationDone", json!({})),
        ] {
            self.ask_within(command, &arguments, max_wait).await?;
        }
        self.response_within(attach, max_wait).await
    }

    /// The response to the request `seq`, where the connection brings it in time and not the end of the session.
    pub(crate) async fn response_within(&mut self, seq: u64, max_wait: Duration) -> Option<Value> {
        let is_it = |message: &Value| {
            let answers = message["type"] == "response" && message["request_seq"] == seq;
            answers || message["event"] == "terminated"
        };
        let found = self.find_within(max_wait, is_it).await.ok()?;
        (found["type"] == "response").then_some(found)
    }

    /// The body of the event of that name, where the connection brings it in time.
    pub(crate) async fn event_within(&mut self, name: &str, max_wait: Duration) -> Option<Value> {
        let found = self.find_within(max_wait, |message| message["event"] == name);
        Some(found.await.ok()?["body"].take())
    }

    /// The next configuration of a child session, where the connection brings it in time.
    pub(crate) async fn child_within(&mut self, max_wait: Duration) -> Option<Value> {
        let is_it = |message: &Value| message["command"] == "startDebugging";
        let mut request = self.find_within(max_wait, is_it).await.ok()?;
        Some(request["arguments"]["configuration"].take())
    }

    /// Waits until so many bytes of a message are here, of which there are more, and reads no further.
    pub(crate) async fn received_in_part(&mut self, bytes: usize) {
        let reading = async {
            while self.unread.len() < bytes {
                self.unread.reserve(16 * 1024);
                let read = self.reading.read_buf(&mut self.unread).await.unwrap();
                assert!(read > 0, "the connection has ended");
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap();
    }

    /// Asserts that every request was answered at most once, those before the last one exactly once, and that the debugger's
    /// own messages came in its order, from the first stop on without a gap. (The relay's own messages have the
    /// number 0, and a repeated stop has its old number.)
    pub(crate) fn assert_in_order(&self) {
        let messages = self.received.lines();
        let messages = messages.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut answers = BTreeMap::<u64, u32>::new();
        let mut last = None;
        let mut was_stopped = false;
        for message in messages {
            let what = format!("{}{}", message["event"], message["command"]);
            if message["type"] == "response" {
                *answers
                    .entry(message["request_seq"].as_u64().unwrap())
                    .or_default() += 1;
            }
            let seq = message["seq"].as_u64().unwrap();
            let is_stop = message["event"] == "stopped";
            if seq == 0 || (is_stop && last.is_some_and(|last| seq < last)) {
                was_stopped |= is_stop;
                continue;
            }
            if was_stopped && let Some(last) = last {
                assert_eq!(seq, last + 1, "{what} behind a message {last}");
            }
            was_stopped |= is_stop;
            last = Some(seq);
        }
        let answered = answers.values().all(|times| *times == 1);
        assert!(answered, "answered more than once: {answers:?}");
        let missing = (1..self.seq).find(|seq| !answers.contains_key(seq));
        assert!(
            missing.is_none(),
            "not answered: {missing:?} of {}",
            self.seq
        );
    }
}
