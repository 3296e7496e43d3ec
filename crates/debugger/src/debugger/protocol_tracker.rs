//! The ledger of a conversation with a worker's debugger: how far it has come, read off its bytes.
//!
//! Pure. [`super::worker`] shows it everything that passes in either direction, in pieces of any size; what it notes
//! decides in which order the connection can be ended without harm ([`super::goodbye`]). Bodies are not parsed but for
//! two short answers and the `attach`, and nothing of them is kept beyond the first [`KEPT`] bytes of one that comes in pieces.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::kept::Stored;
use super::progress::{Attach, Progress};
use ray_relay_base::wire::dap::codec::{MAX_HEADER, header};
use ray_relay_base::wire::dap::kept::Kept;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::dap::stands::Stands;
use ray_relay_base::wire::json::take;

/// Bytes of a body that are kept until enough of it is there. debugpy writes the keys that decide first.
const KEPT: usize = 4096;

/// Expressions under way of which the number is kept.
const MAX_EVALUATIONS: usize = 64;

/// How far a conversation with a worker's debugger has come, by what was sent and received.
#[derive(Debug, Default)]
pub(super) struct ProtocolTracker {
    sent: FrameSplitter,
    received: FrameSplitter,
    /// How far it is, as another process that goes on with it has to know.
    pub(super) progress: Progress,
    /// Requests that were not answered yet. What cannot be told from one counts.
    owed: u64,
    /// The numbers of expressions that were sent since none was under way.
    pub(super) evaluations: Vec<u64>,
    /// Answers to `setFunctionBreakpoints`.
    pub(super) functions_answered: u64,
    /// The debugger will send nothing more.
    pub(super) closed: bool,
    /// What passed is not DAP: no more is known.
    pub(super) lost: bool,
    /// The threads that stand, for those who want to know: an agent, and the keeper of the connection beyond this process.
    pub(super) stands: Option<Box<Kept>>,
    /// They have changed since that was last [asked](Self::stands_if_changed).
    stands_changed: bool,
}

impl ProtocolTracker {
    /// Of a conversation that begins; the threads that stand are known where they are given.
    pub(super) fn that_knows(stands: Option<Box<Kept>>) -> Self {
        Self {
            stands,
            ..Self::default()
        }
    }

    /// Of a conversation that others have led to where another client can go on.
    pub(super) fn resumed() -> Self {
        Self {
            progress: Progress {
                greeted: true,
                welcomed: true,
                attach: Attach::Initialized,
                // To forget none does no harm.
                mapped: true,
                configured: true,
                stopped: true,
                ..Progress::default()
            },
            ..Self::default()
        }
    }

    /// Of a conversation of which another process has written this down, from the beginning of a message on.
    pub(super) fn restored(stored: &Stored) -> Self {
        Self {
            progress: stored.progress,
            owed: stored.progress.evaluating.into(),
            lost: stored.midway,
            stands: Some(Box::new(stored.kept())),
            ..Self::default()
        }
    }

    /// The threads that stand, where they have changed since this was last asked.
    pub(super) fn stands_if_changed(&mut self) -> Option<&Stands> {
        let changed = std::mem::take(&mut self.stands_changed);
        let kept = self.stands.as_ref().filter(|_| changed)?;
        Some(&kept.stands)
    }

    /// Notes what goes to the debugger.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        let mut cutter = std::mem::take(&mut self.sent);
        let cut = cutter.cut(bytes, |body, length| {
            match Walk::new(Depth::Deciding).peek(body, length) {
                Peek::Known(MessageType::Request, command) => {
                    self.owed += 1;
                    self.request(command, body);
                }
                Peek::Known(MessageType::Response | MessageType::Event, _) => {}
                Peek::Unclear | Peek::More => self.owed += 1,
            }
        });
        self.sent = cutter;
        self.lost |= cut.is_err();
    }

    fn request(&mut self, command: &[u8], body: &[u8]) {
        match Command::parse(command) {
            Some(Command::Attach) => {
                self.progress.attach = Attach::Sent;
                let arguments = arguments(body);
                // One that is not here whole is taken to map paths: to forget none does no harm.
                self.progress.mapped = arguments.as_ref().is_none_or(mappings::given);
                if let (Some(kept), Some(arguments)) = (&mut self.stands, arguments) {
                    kept.stands.attach(&arguments.into());
                    self.stands_changed = true;
                }
            }
            Some(Command::Continue) => {
                if let Some(kept) = &mut self.stands {
                    kept.stands
                        .let_run(&arguments(body).unwrap_or_default().into());
                    self.stands_changed = true;
                }
            }
            Some(Command::Disconnect) => self.progress.disconnect = true,
            Some(Command::ConfigurationDone) => self.progress.starts(),
            Some(Command::Evaluate) => {
                self.progress.evaluating += 1;
                if let Ok(Numbered { seq }) = serde_json::from_slice(body)
                    && self.evaluations.len() < MAX_EVALUATIONS
                {
                    self.evaluations.push(seq);
                }
            }
            _ => {}
        }
    }

    /// How many bytes of `messages`, whole ones, may be sent now, and how many at all. A goodbye has to wait for what is
    /// being evaluated, or will be by then, and what comes behind one is not sent: a `configurationDone` there (an editor
    /// that is stopped while it starts) ends the adapter (debugpy 1.8.22, each of six times).
    pub(super) fn up_to_goodbye(&self, messages: &[u8]) -> (usize, usize) {
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

    /// How far it is to be believed to be as soon as any of `messages` may have been sent: a process that finds less written
    /// down ends an adapter that is at work on an `attach`, or says goodbye to a task that may run. `None`: as far as it is.
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

    /// Notes what came from the debugger.
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
                    if let Some(stands) = &mut self.stands {
                        stands.take(body);
                        self.stands_changed = true;
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
                // A refusal is short; what is not is the answer to a session that begins.
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

    /// The debugger has answered the goodbye and everything else that it was asked: what it may still say is no answer.
    pub(super) fn owes_nothing(&self) -> bool {
        self.progress.answered && self.owed == 0 && !self.lost
    }

    /// Nothing that it was asked is still to be answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.owed == 0 && !self.lost
    }

    /// It is attached and configured and has not been told of a goodbye: another client could go on with it.
    pub(super) fn stays(&self) -> bool {
        self.progress.attach == Attach::Initialized
            && self.progress.configured
            && !(self.progress.disconnect || self.closed || self.lost)
    }

    /// How many of the `next` bytes to be sent belong to a message of which a part was sent; 0 between two.
    pub(super) fn under_way(&self, next: &[u8]) -> usize {
        self.sent.under_way(next)
    }

    /// How many of the `next` bytes to be sent end what is under way, and are whole messages behind that.
    pub(super) fn whole(&self, next: &[u8]) -> usize {
        let mut at = self.under_way(next);
        while let Ok(Some((head, length))) = header(&next[at..], usize::MAX >> 1)
            && head + length <= next.len() - at
        {
            at += head + length;
        }
        at
    }

    /// The message of which a part was noted as sent never was.
    pub(super) fn forget_part(&mut self) {
        self.sent = FrameSplitter::default();
    }

    /// What is still to come of the message that the debugger is in the middle of: so many bytes, or what follows on this
    /// part of a header.
    pub(super) fn rest(&self) -> (usize, &[u8]) {
        match self.received.body {
            Some((_, left)) => (left, &[]),
            None => (0, &self.received.part),
        }
    }

    /// Everything that was sent is whole messages, so that another one can follow.
    pub(super) fn between_messages(&self) -> bool {
        self.sent.between() && !self.lost
    }
}

/// The requests among `messages` that are known, and where each is.
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

/// The number of a request that is here whole.
#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

fn refused(body: &[u8]) -> bool {
    let answer = serde_json::from_slice::<Value>(body);
    answer.is_ok_and(|answer| answer.get("success") == Some(&Value::Bool(false)))
}

/// The arguments of a request that is here whole.
fn arguments(request: &[u8]) -> Option<Map<String, Value>> {
    let mut request: Value = serde_json::from_slice(request).ok()?;
    match take(&mut request, "arguments") {
        Value::Object(arguments) => Some(arguments),
        _ => Some(Map::new()),
    }
}

/// Cuts a stream of bytes into bodies, and keeps no more of them than it must.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
struct FrameSplitter {
    /// The part that has come of a header, or of the beginning of a body.
    part: Vec<u8>,
    /// Length of the body that is under way, and how much of it is still to come; `None` in a header.
    body: Option<(usize, usize)>,
    broken: bool,
}

/// What passed is not DAP.
struct NotDap;

impl FrameSplitter {
    fn between(&self) -> bool {
        self.body.is_none() && self.part.is_empty()
    }

    fn under_way(&self, next: &[u8]) -> usize {
        let left = match self.body {
            Some((_, left)) => left,
            None if self.part.is_empty() => 0,
            None => {
                let more = &next[..next.len().min(MAX_HEADER)];
                let both = [&self.part[..], more].concat();
                match header(&both, usize::MAX >> 1) {
                    Ok(Some((head, length))) => head - self.part.len() + length,
                    Ok(None) | Err(_) => next.len(),
                }
            }
        };
        left.min(next.len())
    }

    /// Calls `see` with each body that ends in `bytes` (all of it, or its first [`KEPT`] bytes) and its length.
    fn cut(&mut self, mut bytes: &[u8], mut see: impl FnMut(&[u8], usize)) -> Result<(), NotDap> {
        if self.broken {
            return Err(NotDap);
        }
        while !bytes.is_empty() {
            let Some((length, left)) = self.body else {
                bytes = self.header(bytes)?;
                continue;
            };
            let now = left.min(bytes.len());
            let (here, rest) = bytes.split_at(now);
            if left == now {
                match self.part.is_empty() && now == length {
                    true => see(here, length),
                    false => {
                        self.keep(here);
                        see(&self.part, length);
                    }
                }
                // A long message leaves no buffer behind.
                self.part = Vec::new();
                self.body = None;
            } else {
                self.keep(here);
                self.body = Some((length, left - now));
            }
            bytes = rest;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.part.len());
        self.part.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    /// Reads on in a header; gives what comes behind it.
    fn header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], NotDap> {
        let before = self.part.len();
        let found = match before {
            0 => header(bytes, usize::MAX >> 1),
            _ => {
                let more = &bytes[..bytes.len().min(MAX_HEADER)];
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
