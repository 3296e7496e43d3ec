//! The ledger of a conversation with a worker's debugger: how far it has come, read off its bytes.
//!
//! Pure. [`super::worker`] shows it everything that passes in either direction, in pieces of any size; what it notes
//! decides in which order the connection can be ended without harm ([`super::goodbye`]). Bodies are not parsed but for
//! two short answers and the `attach`, and nothing of them is kept beyond the first [`KEPT`] bytes of one that comes in pieces.

use serde_json::Value;

use crate::wire::dap::codec::{MAX_HEADER, header};
use crate::wire::dap::mappings;
use crate::wire::dap::names::{Command, Event};
use crate::wire::dap::peek::{Depth, MessageType, Peek, Walk};

/// Bytes of a body that are kept until enough of it is there. debugpy writes the keys that decide first.
const KEPT: usize = 4096;

/// How far the `attach` of the conversation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Attach {
    /// The request was not sent.
    #[default]
    No,
    /// The request was sent, and the debugger is at work on it: a connection that ends now ends the adapter (debugpy 1.8).
    Sent,
    /// The debugger has said `initialized`, that it is attached, or that this is over already.
    Initialized,
    /// The debugger has refused it.
    Refused,
}

/// How far a conversation with a worker's debugger has come, by what was sent and received.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sent: Cutter,
    received: Cutter,
    /// Whether the first message of the greeting is here, whole.
    pub(super) greeted: bool,
    /// Whether the last message of the greeting is here too, where the debugger has that one (debugpy 1.8.14 and later).
    pub(super) welcomed: bool,
    pub(super) attach: Attach,
    /// Whether the `attach` mapped paths, which debugpy keeps for whoever comes next.
    pub(super) mapped: bool,
    /// Whether `configurationDone` was sent: from then on the task may run.
    pub(super) configured: bool,
    /// Whether a thread has stopped since: Ray had written down by then that it no longer waits (2.9 to 2.60).
    pub(super) stopped: bool,
    /// `evaluate` requests that were not answered yet. The adapter answers them out of turn, and where its client is gone
    /// by then it closes the connection to the worker's process and ends (debugpy 1.8.0 to 1.8.22).
    pub(super) evaluating: u64,
    /// Requests that were not answered yet. What cannot be told from one counts.
    owed: u64,
    /// Whether `disconnect` was sent.
    pub(super) disconnect: bool,
    /// Whether `disconnect` was answered.
    pub(super) answered: bool,
    /// Answers to `setFunctionBreakpoints`.
    pub(super) functions_answered: u64,
    /// The debugger will send nothing more.
    pub(super) closed: bool,
    /// What passed is not DAP: no more is known.
    pub(super) lost: bool,
}

impl Ledger {
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
                self.attach = Attach::Sent;
                self.mapped = maps(body);
            }
            Some(Command::Disconnect) => self.disconnect = true,
            Some(Command::ConfigurationDone) => self.configured = true,
            Some(Command::Evaluate) => self.evaluating += 1,
            _ => {}
        }
    }

    /// How many bytes of `messages`, whole ones, may be sent now, and how many at all. A goodbye has to wait for what is
    /// being evaluated, or will be by then, and what comes behind one is not sent: a `configurationDone` there (an editor
    /// that is stopped while it starts) ends the adapter (debugpy 1.8.22, each of six times).
    pub(super) fn up_to_goodbye(&self, messages: &[u8]) -> (usize, usize) {
        if self.disconnect {
            return (0, 0);
        }
        let (mut at, mut evaluating) = (0, self.evaluating > 0);
        while let Ok(Some((head, length))) = header(&messages[at..], usize::MAX >> 1) {
            let end = messages.len().min(at + head + length);
            let seen = Walk::new(Depth::Deciding).peek(&messages[at + head..end], length);
            if let Peek::Known(MessageType::Request, command) = seen {
                match Command::parse(command) {
                    Some(Command::Disconnect) => return (if evaluating { at } else { end }, end),
                    Some(Command::Evaluate) => evaluating = true,
                    _ => {}
                }
            }
            at = end;
        }
        (messages.len(), messages.len())
    }

    /// Notes what came from the debugger.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        let mut cutter = std::mem::take(&mut self.received);
        let cut = cutter.cut(bytes, |body, length| self.body(body, length));
        self.received = cutter;
        self.lost |= cut.is_err();
    }

    /// Notes that so many bytes came that nobody looked at, of a body whose beginning is here.
    pub(super) fn skipped(&mut self, bytes: usize) {
        let mut cutter = std::mem::take(&mut self.received);
        cutter.skip(bytes, |body, length| self.body(body, length));
        self.received = cutter;
    }

    fn body(&mut self, body: &[u8], length: usize) {
        self.greeted = true;
        if let Peek::Known(kind, name) = Walk::new(Depth::Deciding).peek(body, length) {
            self.message(kind, name, body);
        }
    }

    fn message(&mut self, kind: MessageType, name: &[u8], body: &[u8]) {
        match kind {
            MessageType::Event => match Event::parse(name) {
                Some(Event::DebugpySockets) => self.welcomed = true,
                Some(Event::Stopped) => self.stopped |= self.configured,
                Some(Event::Initialized | Event::Terminated) if self.attach == Attach::Sent => {
                    self.attach = Attach::Initialized;
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
            Some(Command::Attach) if self.attach == Attach::Sent => {
                // A refusal is short; what is not is the answer to a session that begins.
                self.attach = match refused(body) {
                    true => Attach::Refused,
                    false => Attach::Initialized,
                };
            }
            Some(Command::SetFunctionBreakpoints) => self.functions_answered += 1,
            Some(Command::Disconnect) => self.answered = true,
            Some(Command::Evaluate) => self.evaluating = self.evaluating.saturating_sub(1),
            _ => {}
        }
    }

    /// The debugger has answered the goodbye and everything else that it was asked: what it may still say is no answer.
    pub(super) fn owes_nothing(&self) -> bool {
        self.answered && self.owed == 0 && !self.lost
    }

    /// Nothing that it was asked is still to be answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.owed == 0 && !self.lost
    }

    /// It is attached and configured and has not been told of a goodbye: another client could go on with it.
    pub(super) fn stays(&self) -> bool {
        self.attach == Attach::Initialized
            && self.configured
            && !(self.disconnect || self.closed || self.lost)
    }

    /// How many of the `next` bytes to be sent belong to a message of which a part was sent; 0 between two.
    pub(super) fn under_way(&self, next: &[u8]) -> usize {
        self.sent.under_way(next)
    }

    /// Everything that was sent is whole messages, so that another one can follow.
    pub(super) fn between_messages(&self) -> bool {
        self.sent.between() && !self.lost
    }
}

fn refused(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|answer| answer["success"] == false)
}

/// Whether an `attach` maps paths. One that is not here whole is taken to: to forget none does no harm.
fn maps(attach: &[u8]) -> bool {
    serde_json::from_slice::<Value>(attach).map_or(true, |attach| {
        attach["arguments"].as_object().is_some_and(mappings::given)
    })
}

/// Cuts a stream of bytes into bodies, and keeps no more of them than it must.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
struct Cutter {
    /// The part that has come of a header, or of the beginning of a body.
    part: Vec<u8>,
    /// Length of the body that is under way, and how much of it is still to come; `None` in a header.
    body: Option<(usize, usize)>,
    broken: bool,
}

/// What passed is not DAP.
struct Broken;

impl Cutter {
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
    fn cut(&mut self, mut bytes: &[u8], mut see: impl FnMut(&[u8], usize)) -> Result<(), Broken> {
        if self.broken {
            return Err(Broken);
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
                self.part.clear();
                self.body = None;
            } else {
                self.keep(here);
                self.body = Some((length, left - now));
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Goes on in a body that is under way, by so many bytes of it.
    fn skip(&mut self, bytes: usize, see: impl FnOnce(&[u8], usize)) {
        let Some((length, left)) = self.body else {
            return;
        };
        self.body = match left.saturating_sub(bytes) {
            0 => {
                see(&self.part, length);
                self.part.clear();
                None
            }
            left => Some((length, left)),
        };
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.part.len());
        self.part.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    /// Reads on in a header; gives what comes behind it.
    fn header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Broken> {
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
                self.part.clear();
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
                Err(Broken)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::wire::dap::codec::frame;

    fn request(command: &str) -> Value {
        json!({"seq": 1, "type": "request", "command": command, "arguments": {"x": "y".repeat(10_000)}})
    }

    fn response(command: &str, success: bool) -> Value {
        json!({"seq": 1, "type": "response", "request_seq": 2, "success": success, "command": command, "body": {}})
    }

    fn event(name: &str) -> Value {
        json!({"seq": 1, "type": "event", "event": name, "body": {"x": "y".repeat(9_000)}})
    }

    #[test]
    fn a_session_is_followed_from_greeting_to_goodbye() {
        let mut ledger = Ledger::default();
        ledger.received(&frame(&event("output")));
        assert!(ledger.greeted && ledger.attach == Attach::No);
        ledger.sent(&frame(&request("attach")));
        assert_eq!(ledger.attach, Attach::Sent);
        ledger.received(&frame(&event("initialized")));
        assert_eq!(ledger.attach, Attach::Initialized);
        ledger.received(&frame(&event("stopped")));
        assert!(!ledger.stopped, "in another session");
        ledger.sent(&frame(&request("configurationDone")));
        ledger.received(&frame(&response("attach", true)));
        assert!(ledger.configured && ledger.attach == Attach::Initialized && !ledger.stopped);
        ledger.received(&frame(&event("stopped")));
        assert!(ledger.stopped);
        ledger.sent(&frame(&request("disconnect")));
        assert!(ledger.disconnect && !ledger.answered);
        ledger.received(&frame(&response("disconnect", true)));
        assert!(ledger.answered && !ledger.lost);
        assert!(!ledger.owes_nothing(), "configurationDone was not answered");
        ledger.received(&frame(&response("configurationDone", true)));
        assert!(ledger.owes_nothing());
    }

    #[test]
    fn evaluations_under_way_are_counted_and_a_goodbye_is_found_behind_what_comes_before_it() {
        let mut ledger = Ledger::default();
        ledger.sent(&frame(&request("evaluate")));
        ledger.sent(&frame(&request("evaluate")));
        ledger.received(&frame(&response("evaluate", false)));
        assert_eq!(ledger.evaluating, 1);
        let threads = frame(&request("threads"));
        let both = [&threads[..], &frame(&request("disconnect")), &threads].concat();
        let end = both.len() - threads.len();
        assert_eq!(ledger.up_to_goodbye(&both), (threads.len(), end));
        let whole = (threads.len(), threads.len());
        assert_eq!(ledger.up_to_goodbye(&threads), whole);
        ledger.received(&frame(&response("evaluate", true)));
        assert_eq!(ledger.up_to_goodbye(&both), (end, end));
        // Also for one that goes out together with it.
        let evaluate = frame(&request("evaluate"));
        let all = [&evaluate[..], &both].concat();
        let before = evaluate.len() + threads.len();
        assert_eq!(ledger.up_to_goodbye(&all), (before, evaluate.len() + end));
        ledger.sent(&both);
        assert_eq!(ledger.up_to_goodbye(&threads), (0, 0));
    }

    #[test]
    fn an_attach_that_maps_paths_is_told_from_one_that_does_not() {
        let mapped = json!([{"localRoot": "/home/ann", "remoteRoot": "."}]);
        for (mappings, wanted) in [
            (mapped, true),
            (mappings::none(), false),
            (json!([]), false),
        ] {
            let mut attach = request("attach");
            attach["arguments"]["pathMappings"] = mappings;
            let mut ledger = Ledger::default();
            ledger.sent(&frame(&attach));
            assert_eq!(ledger.mapped, wanted, "{attach}");
        }
    }

    #[test]
    fn a_refused_attach_is_told_from_one_that_is_at_work() {
        let mut ledger = Ledger::default();
        ledger.sent(&frame(&request("attach")));
        ledger.received(&frame(&response("attach", false)));
        assert_eq!(ledger.attach, Attach::Refused);
    }

    #[test]
    fn what_is_no_dap_is_given_up_on() {
        let mut ledger = Ledger::default();
        ledger.received(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n");
        assert!(ledger.lost && !ledger.greeted);
        ledger.received(&frame(&event("initialized")));
        assert!(ledger.lost && !ledger.greeted);
    }

    proptest! {
        #[test]
        fn it_is_the_same_in_pieces_of_any_size(
            names in proptest::collection::vec(0usize..7, 1..12),
            cuts in proptest::collection::vec(1usize..6000, 1..20),
        ) {
            let commands = ["attach", "configurationDone", "continue", "disconnect", "threads", "next", "evaluate"];
            let events = ["output", "initialized", "stopped", "thread", "terminated", "process", "module"];
            let sent: Vec<u8> = names.iter().flat_map(|n| frame(&request(commands[*n]))).collect();
            let received: Vec<u8> = names.iter().flat_map(|n| frame(&event(events[*n]))).collect();
            let (mut whole, mut pieces) = (Ledger::default(), Ledger::default());
            whole.sent(&sent);
            whole.received(&received);
            for (bytes, up) in [(&sent, true), (&received, false)] {
                let mut rest = &bytes[..];
                for cut in cuts.iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (now, later) = rest.split_at((*cut).min(rest.len()));
                    if up {
                        // Of the message in which the cut is, exactly the rest is wanted.
                        let left = pieces.under_way(rest);
                        let mut behind = pieces.sent.clone();
                        let whole = behind.cut(&rest[..left], |_, _| ()).is_ok() && behind.between();
                        prop_assert!(whole);
                    }
                    match up {
                        true => pieces.sent(now),
                        false => pieces.received(now),
                    }
                    prop_assert!(pieces.sent.part.len() <= KEPT + 512 && pieces.received.part.len() <= KEPT + 512);
                    rest = later;
                }
            }
            let seen = |l: &Ledger| (l.greeted, l.attach, l.configured, l.disconnect, l.lost);
            prop_assert_eq!(seen(&whole), seen(&pieces));
            prop_assert!(pieces.between_messages());
        }
    }
}
