//! The ledger of a conversation with a worker's debugger: its progress, derived from the traffic.
//!
//! Pure. [`super::worker`] passes it all bytes of both directions, in pieces of any size. The result determines the
//! order in which the connection can be closed without harm ([`super::detach`]). Only two short responses and the
//! `attach` are parsed, and nothing is stored beyond the first [`MAX_STORED_BYTES`] bytes of a body in pieces.

use std::ops::Range;

use serde_json::{Map, Value};

use super::kept::Stored;
use super::progress::{Attach, Progress};
use ray_relay_base::wire::dap::codec::{MAX_HEADER_BYTES, header};
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::dap::stopped_threads::StoppedThreads;
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::json::take;

/// Bytes of a body to store until enough of it is here. debugpy writes the deciding keys first.
const MAX_STORED_BYTES: usize = 4096;

/// Concurrent expressions whose numbers are stored.
const MAX_EVALUATIONS: usize = 64;

/// The progress of a conversation with a worker's debugger.
#[derive(Debug, Default)]
pub(super) struct ProtocolTracker {
    sent: FrameSplitter,
    received: FrameSplitter,
    /// The progress that another process needs to resume.
    pub(super) progress: Progress,
    /// Requests without a response. Unclear messages count as requests.
    owed: u64,
    /// The numbers of expressions sent since none was pending.
    pub(super) evaluations: Vec<u64>,
    /// Responses to `setFunctionBreakpoints`.
    pub(super) functions_answered: u64,
    /// The debugger will send nothing more.
    pub(super) closed: bool,
    /// The traffic is not DAP: the state is unknown.
    pub(super) lost: bool,
    /// The paused threads, if someone needs them: an agent, or the keeper of the connection.
    pub(super) stored: Option<Box<StoredMessages>>,
    /// Whether they have changed since the last call of [`threads_if_changed`](Self::threads_if_changed).
    threads_changed: bool,
}

impl ProtocolTracker {
    /// A new conversation; it tracks paused threads in `stored`, if there are any.
    pub(super) fn with_stored(stored: Option<Box<StoredMessages>>) -> Self {
        Self {
            stored,
            ..Self::default()
        }
    }

    /// A conversation that others have brought to the point where another client can resume.
    pub(super) fn resumed() -> Self {
        Self {
            progress: Progress {
                greeted: true,
                welcomed: true,
                attach: Attach::Initialized,
                // Forgetting mappings without need does no harm.
                mapped: true,
                configured: true,
                stopped: true,
                ..Progress::default()
            },
            ..Self::default()
        }
    }

    /// Restores the conversation that another process has stored, from the beginning of a message on.
    pub(super) fn restored(stored: &Stored) -> Self {
        Self {
            progress: stored.progress,
            owed: stored.progress.evaluating.into(),
            lost: stored.midway,
            stored: Some(Box::new(stored.messages())),
            ..Self::default()
        }
    }

    /// The paused threads, if they have changed since the last call.
    pub(super) fn threads_if_changed(&mut self) -> Option<&StoppedThreads> {
        let changed = std::mem::take(&mut self.threads_changed);
        let kept = self.stored.as_ref().filter(|_| changed)?;
        Some(&kept.threads)
    }

    /// Records bytes sent to the debugger.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        let mut cutter = std::mem::take(&mut self.sent);
        let cut = cutter.cut(bytes, |body, length| {
            let mut walk = Walk::new(Depth::Deciding);
            match walk.peek(body, length) {
                Peek::Known(MessageType::Request, command) => {
                    self.owed += 1;
                    self.request(command, body, walk);
                }
                Peek::Known(MessageType::Response | MessageType::Event, _) => {}
                Peek::Unclear | Peek::More => self.owed += 1,
            }
        });
        self.sent = cutter;
        self.lost |= cut.is_err();
    }

    fn request(&mut self, command: &[u8], body: &[u8], walk: Walk) {
        match Command::parse(command) {
            Some(Command::Attach) => {
                self.progress.attach = Attach::Sent;
                let arguments = arguments(body);
                // A partial one is assumed to map paths: forgetting mappings without need does no harm.
                self.progress.mapped = arguments.as_ref().is_none_or(mappings::has_mappings);
                if let (Some(kept), Some(arguments)) = (&mut self.stored, arguments) {
                    kept.threads.attach(&arguments.into());
                    self.threads_changed = true;
                }
            }
            Some(Command::Continue) => {
                if let Some(kept) = &mut self.stored {
                    kept.threads
                        .let_run(&arguments(body).unwrap_or_default().into());
                    self.threads_changed = true;
                }
            }
            Some(Command::Disconnect) => self.progress.disconnect = true,
            Some(Command::ConfigurationDone) => self.progress.starts(),
            Some(Command::Evaluate) => {
                self.progress.evaluating += 1;
                if self.evaluations.len() < MAX_EVALUATIONS
                    && let Some(seq) = walk.seq(body)
                {
                    self.evaluations.push(seq);
                }
            }
            _ => {}
        }
    }

    /// How many bytes of `messages`, whole ones, may be sent now, and how many at all. A `disconnect` has to wait for
    /// pending evaluations, and messages behind it are dropped: a `configurationDone` there (from an editor that is
    /// stopped while it starts) ends the adapter (debugpy 1.8.22, each of six times).
    pub(super) fn up_to_disconnect(&self, messages: &[u8]) -> (usize, usize) {
        if self.progress.disconnect {
            return (0, 0);
        }
        let mut evaluating = self.progress.evaluating > 0;
        for (command, message) in requests(messages) {
            match command {
                Command::Disconnect if evaluating => return (message.start, message.end),
                Command::Disconnect => return (message.end, message.end),
                Command::Evaluate => evaluating = true,
                _ => {}
            }
        }
        (messages.len(), messages.len())
    }

    /// The progress to assume as soon as any of `messages` may have been sent; `None`: unchanged. A process that finds
    /// less stored would end an adapter that is processing an `attach`, or detach from a task that may run.
    pub(super) fn before(&self, messages: &[u8]) -> Option<Progress> {
        if self.progress.configured {
            return None;
        }
        let mut ahead = self.progress;
        for (command, _) in requests(messages) {
            match command {
                Command::Attach => (ahead.attach, ahead.mapped) = (Attach::Sent, true),
                Command::ConfigurationDone => ahead.starts(),
                _ => {}
            }
        }
        (ahead != self.progress).then_some(ahead)
    }

    /// Records bytes from the debugger.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        let mut cutter = std::mem::take(&mut self.received);
        let cut = cutter.cut(bytes, |body, length| self.body(body, length));
        self.received = cutter;
        self.lost |= cut.is_err();
    }

    fn body(&mut self, body: &[u8], length: usize) {
        self.progress.greeted = true;
        if let Peek::Known(kind, name) = Walk::new(Depth::Deciding).peek(body, length) {
            self.message(kind, name, body);
        }
    }

    fn message(&mut self, kind: MessageType, name: &[u8], body: &[u8]) {
        match kind {
            MessageType::Event => match Event::parse(name) {
                Some(Event::DebugpySockets) => self.progress.welcomed = true,
                Some(name @ (Event::Stopped | Event::Continued)) => {
                    self.progress.stopped |= self.progress.configured && name == Event::Stopped;
                    if let Some(stored) = &mut self.stored {
                        stored.take(body);
                        self.threads_changed = true;
                    }
                }
                Some(Event::Initialized | Event::Terminated)
                    if self.progress.attach == Attach::Sent =>
                {
                    self.progress.attach = Attach::Initialized;
                }
                _ => {}
            },
            MessageType::Response => {
                self.owed = self.owed.saturating_sub(1);
                self.answer(name, body);
            }
            MessageType::Request => {}
        }
    }

    fn answer(&mut self, command: &[u8], body: &[u8]) {
        match Command::parse(command) {
            Some(Command::Attach) if self.progress.attach == Attach::Sent => {
                // A refusal is short; a long response is that of a session that begins.
                self.progress.attach = match refused(body) {
                    true => Attach::Refused,
                    false => Attach::Initialized,
                };
            }
            Some(Command::ConfigurationDone) => self.progress.starting = false,
            Some(Command::SetFunctionBreakpoints) => self.functions_answered += 1,
            Some(Command::Disconnect) => self.progress.answered = true,
            Some(Command::Evaluate) => {
                self.progress.evaluating = self.progress.evaluating.saturating_sub(1);
                if self.progress.evaluating == 0 {
                    self.evaluations = Vec::new();
                }
            }
            _ => {}
        }
    }

    /// Whether the debugger has answered `disconnect` and every other request, so that no further message is a
    /// response.
    pub(super) fn owes_nothing(&self) -> bool {
        self.progress.answered && self.owed == 0 && !self.lost
    }

    /// Whether no request is pending.
    pub(super) fn is_quiet(&self) -> bool {
        self.owed == 0 && !self.lost
    }

    /// Whether it is attached and configured and was not sent `disconnect`, so that another client could resume.
    pub(super) fn stays(&self) -> bool {
        self.progress.attach == Attach::Initialized
            && self.progress.configured
            && !(self.progress.disconnect || self.closed || self.lost)
    }

    /// How many of the `next` bytes to send belong to a message that was sent in part; 0 between messages.
    pub(super) fn under_way(&self, next: &[u8]) -> usize {
        self.sent.under_way(next)
    }

    /// How many of the `next` bytes to send complete the current message, and are whole messages behind that.
    pub(super) fn whole(&self, next: &[u8]) -> usize {
        let mut at = self.under_way(next);
        while let Ok(Some((head, length))) = header(&next[at..], usize::MAX >> 1)
            && head + length <= next.len() - at
        {
            at += head + length;
        }
        at
    }

    /// Discards a message that was recorded as sent in part and never was.
    pub(super) fn forget_part(&mut self) {
        self.sent = FrameSplitter::default();
    }

    /// The rest of the debugger's current message: its number of bytes, or the received part of a header.
    pub(super) fn rest(&self) -> (usize, &[u8]) {
        match self.received.body {
            Some((_, remaining)) => (remaining, &[]),
            None => (0, &self.received.part),
        }
    }

    /// Whether only whole messages were sent, so that another one can follow.
    pub(super) fn between_messages(&self) -> bool {
        self.sent.between() && !self.lost
    }
}

/// The known requests in `messages`, with their positions.
fn requests(messages: &[u8]) -> impl Iterator<Item = (Command, Range<usize>)> {
    let mut at = 0;
    let bodies = std::iter::from_fn(move || {
        let (head, length) = header(&messages[at..], usize::MAX >> 1).ok()??;
        let (begin, end) = (at, messages.len().min(at + head + length));
        at = end;
        Some((begin..end, &messages[begin + head..end], length))
    });
    bodies.filter_map(|(message, body, length)| {
        match Walk::new(Depth::Deciding).peek(body, length) {
            Peek::Known(MessageType::Request, command) => Some((Command::parse(command)?, message)),
            _ => None,
        }
    })
}

fn refused(body: &[u8]) -> bool {
    let answer = serde_json::from_slice::<Value>(body);
    answer.is_ok_and(|answer| answer.get("success") == Some(&Value::Bool(false)))
}

/// The arguments of a complete request.
fn arguments(request: &[u8]) -> Option<Map<String, Value>> {
    let mut request: Value = serde_json::from_slice(request).ok()?;
    match take(&mut request, "arguments") {
        Value::Object(arguments) => Some(arguments),
        _ => Some(Map::new()),
    }
}

/// Splits a stream of bytes into bodies, and stores no more of them than it must.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
struct FrameSplitter {
    /// The received part of a header, or the beginning of a body.
    part: Vec<u8>,
    /// Length of the current body, and its remaining bytes; `None` in a header.
    body: Option<(usize, usize)>,
    broken: bool,
}

/// The traffic is not DAP.
struct NotDap;

impl FrameSplitter {
    fn between(&self) -> bool {
        self.body.is_none() && self.part.is_empty()
    }

    fn under_way(&self, next: &[u8]) -> usize {
        let remaining = match self.body {
            Some((_, remaining)) => remaining,
            None if self.part.is_empty() => 0,
            None => {
                let more = &next[..next.len().min(MAX_HEADER_BYTES)];
                let both = [&self.part[..], more].concat();
                match header(&both, usize::MAX >> 1) {
                    Ok(Some((head, length))) => head - self.part.len() + length,
                    Ok(None) | Err(_) => next.len(),
                }
            }
        };
        remaining.min(next.len())
    }

    /// Calls `see` with each body that ends in `bytes` (all of it, or its first [`MAX_STORED_BYTES`] bytes) and its
    /// length.
    fn cut(&mut self, mut bytes: &[u8], mut see: impl FnMut(&[u8], usize)) -> Result<(), NotDap> {
        if self.broken {
            return Err(NotDap);
        }
        while !bytes.is_empty() {
            let Some((length, remaining)) = self.body else {
                bytes = self.header(bytes)?;
                continue;
            };
            let now = remaining.min(bytes.len());
            let (here, rest) = bytes.split_at(now);
            if remaining == now {
                match self.part.is_empty() && now == length {
                    true => see(here, length),
                    false => {
                        self.keep(here);
                        see(&self.part, length);
                    }
                }
                // A long message must not keep its buffer.
                self.part = Vec::new();
                self.body = None;
            } else {
                self.keep(here);
                self.body = Some((length, remaining - now));
            }
            bytes = rest;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_STORED_BYTES.saturating_sub(self.part.len());
        self.part.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    /// Continues a header; returns the bytes behind it.
    fn header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], NotDap> {
        let before = self.part.len();
        let found = match before {
            0 => header(bytes, usize::MAX >> 1),
            _ => {
                let more = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
                self.part.extend_from_slice(more);
                header(&self.part, usize::MAX >> 1)
            }
        };
        match found {
            Ok(Some((head, length))) => {
                self.part = Vec::new();
                self.body = (length > 0).then_some((length, length));
                Ok(&bytes[head - before..])
            }
            Ok(None) => {
                if before == 0 {
                    self.part.extend_from_slice(bytes);
                }
                Ok(&[])
            }
            Err(_) => {
                self.broken = true;
                Err(NotDap)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
