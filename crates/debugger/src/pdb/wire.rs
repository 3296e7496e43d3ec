//! Debug Adapter Protocol as a client: requests out, responses and events in.
//!
//! One owner, no task: [`Wire::read`] is cancel safe, so its caller may wait for other events at the same time. A
//! message larger than [`MAX_MESSAGE_BYTES`], or larger than the available memory, is skipped as it arrives and never
//! held, so no program's output can make the client grow.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::error::{Lost, PromptError};
use ray_relay_base::memory::{Account, MemoryUse, Reservation};
use ray_relay_base::wire::dap::codec::{UNCOUNTED_BYTES, frame, header, parse, weight};
use ray_relay_base::wire::dap::message::{Incoming, RefusalCode, request};
use ray_relay_base::wire::dap::names::{Command, Event};

const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Timeout for the other side to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a skipped message that are inspected.
const MAX_PEEKED_BYTES: usize = 512;
/// Bytes per read of a skipped message.
const READ_BYTES: usize = 8 * 1024;

/// A message for the prompt.
#[derive(Debug)]
pub(super) enum PromptMessage {
    /// The response to a request: its body, or the sentence of a refusal and its code.
    Answer {
        to: u64,
        body: Result<Value, String>,
        code: RefusalCode,
    },
    /// An event; `None` for an unknown name.
    Event { name: Option<Event>, body: Value },
    /// A message without meaning here.
    Other,
}

/// A message before the client configures.
#[derive(Debug)]
pub(super) enum BeforeStop {
    /// The body of an `output`.
    Output(Value),
    /// The client may configure; `resumed`: another client has attached to the debugger before.
    Initialized { resumed: bool },
}

/// A received message.
enum WorkerMessage {
    /// Its body.
    Whole(BytesMut),
    /// It is skipped, and replaced by this.
    Skipped(PromptMessage),
}

/// A connection to a debug adapter.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    bytes: BytesMut,
    /// Remaining bytes of a skipped message.
    skip: usize,
    seq: u64,
    account: Account,
    /// For the current message, or the last one.
    reserved: Reservation,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Charges memory to `account`.
    pub(super) fn new(stream: S, account: &Account) -> Self {
        Self {
            stream,
            bytes: BytesMut::new(),
            skip: 0,
            seq: 0,
            account: account.clone(),
            reserved: account.empty(MemoryUse::Messages),
        }
    }

    /// Charges memory to `account` from now on.
    pub(super) fn count(&mut self, account: &Account) {
        self.account = account.clone();
        self.reserved = account.empty(MemoryUse::Messages);
        self.reserved.insist(self.bytes.len());
    }

    /// The account that is charged.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// The memory of the last message, for a caller that keeps a part of it.
    pub(super) fn keep(&mut self) -> Reservation {
        let empty = self.account.empty(MemoryUse::Messages);
        std::mem::replace(&mut self.reserved, empty)
    }

    /// Sends a request and returns its number. Not cancel safe.
    pub(super) async fn send(&mut self, command: Command, arguments: Value) -> Result<u64, Lost> {
        self.seq += 1;
        let request = request(self.seq, command, arguments);
        let sent = async {
            self.stream.write_all(&frame(&request)).await?;
            self.stream.flush().await
        };
        sent.await.map_err(broken)?;
        Ok(self.seq)
    }

    /// Receives the next message. Cancel safe: received bytes stay here.
    pub(super) async fn read(&mut self) -> Result<PromptMessage, Lost> {
        match self.next().await? {
            WorkerMessage::Whole(body) => parse(&body).map(read).map_err(|error| malformed(&error)),
            WorkerMessage::Skipped(stands_for) => Ok(stands_for),
        }
    }

    /// The body of the next message; `None`: it is skipped. Cancel safe in the same way.
    pub(super) async fn body(&mut self) -> Result<Option<BytesMut>, Lost> {
        if self.bytes.is_empty() {
            // A waiting session must not hold the buffer of a long message.
            self.bytes = BytesMut::new();
        }
        Ok(match self.next().await? {
            WorkerMessage::Whole(body) => Some(body),
            WorkerMessage::Skipped(_) => None,
        })
    }

    /// Whether no message is incomplete.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes.is_empty() && self.skip == 0
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    pub(super) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    async fn next(&mut self) -> Result<WorkerMessage, Lost> {
        loop {
            let dropped = self.skip.min(self.bytes.len());
            self.bytes.advance(dropped);
            self.skip -= dropped;
            if self.skip == 0
                && let Some(message) = self.take()?
            {
                return Ok(message);
            }
            if self
                .stream
                .read_buf(&mut self.bytes)
                .await
                .map_err(broken)?
                == 0
            {
                return Err(Lost::Closed);
            }
        }
    }

    fn take(&mut self) -> Result<Option<WorkerMessage>, Lost> {
        let Some((head, length)) =
            header(&self.bytes, usize::MAX >> 1).map_err(|error| malformed(&error))?
        else {
            self.reserved.insist(self.bytes.len());
            return Ok(None);
        };
        if length > MAX_MESSAGE_BYTES {
            return Ok(self.skip(head, length, "is too long to be shown"));
        }
        let here = self.bytes.len();
        let (is_whole, weight) = match self.bytes.get(head..head + length) {
            Some(body) => (true, weight(body)),
            // The buffer grows by doubling.
            None => (false, here),
        };
        if let Err(short) = self.reserved.resize_beyond(UNCOUNTED_BYTES, here + weight) {
            let why = format!("is not shown, because {short}");
            return Ok(self.skip(head, length, &why));
        }
        if !is_whole {
            return Ok(None);
        }
        self.bytes.advance(head);
        Ok(Some(WorkerMessage::Whole(self.bytes.split_to(length))))
    }

    /// Skips the current message of `head` and `length` bytes; a response in its place reports `why`. `None` until its
    /// replacement is known.
    fn skip(&mut self, head: usize, length: usize, why: &str) -> Option<WorkerMessage> {
        let beginning = self.bytes.get(head..head + length.min(MAX_PEEKED_BYTES))?;
        let stands_for = oversize(beginning, length, why);
        let here = self.bytes.len().min(head + length);
        self.skip = head + length - here;
        // Its memory is free.
        let mut rest = BytesMut::with_capacity(READ_BYTES);
        rest.extend_from_slice(&self.bytes[here..]);
        self.bytes = rest;
        self.reserved.insist(self.bytes.len());
        Some(WorkerMessage::Skipped(stands_for))
    }

    /// Reads up to `initialized`, which precedes the response to the request `attach`, and returns `output` events
    /// before it one by one. A refusal is returned at once.
    pub(super) async fn before_initialized(
        &mut self,
        attach: u64,
    ) -> Result<BeforeStop, PromptError> {
        loop {
            match self.read().await? {
                PromptMessage::Answer { to, body, code } if to == attach => {
                    body.map_err(match code {
                        RefusalCode::Unreachable => PromptError::Unreachable,
                        RefusalCode::NotFound => PromptError::NotFound,
                        RefusalCode::Refused => PromptError::Refused,
                    })?;
                }
                PromptMessage::Event {
                    name: Some(name),
                    body,
                } => match name {
                    Event::Initialized => {
                        let resumed = body.get("resumed") == Some(&Value::Bool(true));
                        return Ok(BeforeStop::Initialized { resumed });
                    }
                    Event::Output => return Ok(BeforeStop::Output(body)),
                    Event::Terminated => return Err(PromptError::Lost(Lost::Closed)),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Ends the connection, and waits a moment for the other side to end it too, which releases its resources.
    pub(super) async fn close(&mut self) {
        let _ = self.stream.shutdown().await;
        let _ = timeout(CLOSE_TIMEOUT, async { while self.read().await.is_ok() {} }).await;
    }
}

#[allow(clippy::needless_pass_by_value)]
fn broken(error: std::io::Error) -> Lost {
    Lost::Broken(error.to_string())
}

fn malformed(error: &dyn std::fmt::Display) -> Lost {
    Lost::Broken(error.to_string())
}

fn read(message: Value) -> PromptMessage {
    let message = Incoming::read(message);
    match &*message.kind {
        "response" => {
            let to = message.request_seq.and_then(|to| u64::try_from(to).ok());
            let code = RefusalCode::of(&message.body);
            let body = if message.success {
                Ok(message.body)
            } else {
                let format = message.body.pointer("/error/format");
                let format = format.and_then(Value::as_str).map(str::to_owned);
                let sentence = message.message.or(format);
                Err(sentence.unwrap_or_else(|| "refused without a reason".to_owned()))
            };
            let to = to.unwrap_or_default();
            PromptMessage::Answer { to, body, code }
        }
        "event" => PromptMessage::Event {
            name: message.event(),
            body: message.body,
        },
        _ => PromptMessage::Other,
    }
}

/// The replacement for a skipped message, with this reason. Adapters write the short fields first.
fn oversize(beginning: &[u8], length: usize, why: &str) -> PromptMessage {
    let beginning = String::from_utf8_lossy(beginning);
    let number = |name: &str| -> Option<u64> {
        let (_, rest) = beginning.split_once(&format!("\"{name}\":"))?;
        let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
        digits.take(1).next()?.parse().ok()
    };
    match number("request_seq") {
        Some(to) => PromptMessage::Answer {
            to,
            body: Err(format!("the answer of {length} bytes {why}")),
            code: RefusalCode::Refused,
        },
        None if beginning.contains("\"stopped\"") => PromptMessage::Event {
            name: Some(Event::Stopped),
            body: json!({"reason": "breakpoint", "threadId": number("threadId")}),
        },
        None if beginning.contains("\"output\"") => PromptMessage::Event {
            name: Some(Event::Output),
            body: json!({"category": "console", "output": format!("[{length} bytes of output are not shown]\n")}),
        },
        None => PromptMessage::Other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::memory::Memory;

    #[tokio::test]
    async fn oversized_message_is_skipped() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut wire = Wire::new(near, &Account::default());
        let writer = tokio::spawn(async move {
            let long = json!({"seq": 1, "type": "response", "request_seq": 7, "success": true, "body": "x".repeat(MAX_MESSAGE_BYTES)});
            far.write_all(&frame(&long)).await.unwrap();
            let next =
                json!({"seq": 2, "type": "event", "event": "stopped", "body": {"threadId": 1}});
            far.write_all(&frame(&next)).await.unwrap();
        });
        let PromptMessage::Answer { to: 7, body, .. } = wire.read().await.unwrap() else {
            panic!("no answer");
        };
        assert!(body.is_err() && wire.bytes.capacity() < 1 << 20);
        let PromptMessage::Event { name, .. } = wire.read().await.unwrap() else {
            panic!("no event");
        };
        assert_eq!(name, Some(Event::Stopped));
        writer.await.unwrap();
        assert_eq!(wire.read().await.unwrap_err(), Lost::Closed);
    }

    /// A message is also skipped if other sessions use up the memory.
    #[tokio::test]
    async fn message_without_memory_is_skipped_and_reported() {
        let memory = Memory::new(64 << 20);
        let account = memory.account(Some("ann"));
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut wire = Wire::new(near, &account);
        let mut reserved = account.empty(MemoryUse::Messages);
        reserved.insist(memory.owner_limit());
        let writer = tokio::spawn(async move {
            for round in 0..2 {
                let long = json!({"seq": 1, "type": "response", "request_seq": 7, "success": true, "body": "x".repeat(1 << 20)});
                far.write_all(&frame(&long)).await.unwrap();
                let stop = json!({"seq": 2, "type": "event", "event": "stopped", "body": {"threadId": round}});
                far.write_all(&frame(&stop)).await.unwrap();
            }
            far
        });
        let PromptMessage::Answer { to: 7, body, .. } = wire.read().await.unwrap() else {
            panic!("no answer");
        };
        let error = body.unwrap_err();
        assert!(
            error.contains("is not shown, because your requests"),
            "{error}"
        );
        let PromptMessage::Event { name, body } = wire.read().await.unwrap() else {
            panic!("no event");
        };
        assert_eq!((name, &body["threadId"]), (Some(Event::Stopped), &json!(0)));
        drop(reserved);
        let PromptMessage::Answer { body, .. } = wire.read().await.unwrap() else {
            panic!("no answer");
        };
        assert!(body.is_ok());
        let used_bytes = memory.used(MemoryUse::Messages);
        assert!((3 << 20..16 << 20).contains(&used_bytes), "{used_bytes}");
        let stored_wire = wire.keep();
        wire.read().await.unwrap();
        assert!(memory.used(MemoryUse::Messages) >= used_bytes);
        drop((stored_wire, wire));
        assert_eq!(memory.used(MemoryUse::Messages), 0);
        writer.await.unwrap();
    }
}
