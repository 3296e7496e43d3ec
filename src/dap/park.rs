//! A debugger whose editor is lost, as [`crate::upstream::park`] keeps it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::Value;

use crate::debugger::Worker;
use crate::debugger::kept::Stored;
use crate::session::live::Live;
use crate::session::parks::Taker;
use crate::telemetry::metrics::Outcome;
use crate::upstream::park::{self, Asked, Debugpy, Heard, Keeping, Line, Memory, Parked};
use crate::wire::dap::codec::FrameError;
use crate::wire::dap::kept::Kept;
use crate::wire::dap::message::request;
use crate::wire::dap::names::Command;
use crate::wire::dap::splice::{NullPeer, Side, Splice, SpliceEvent};

/// `seq` of the requests that the relay itself may put to a worker. A client counts upwards from 1 (Helix from 0), as far
/// as it likes.
pub(super) const OWN_SEQ: i64 = -5678;

/// The worker's end of a session with nobody at the other.
pub(super) struct Spliced {
    pub(super) splice: Splice<NullPeer, Worker>,
    pub(super) memory: Memory,
    pub(super) kept: Kept,
    /// What the relay itself has asked of the debugger.
    pub(super) asked: Asked,
}

impl Keeping for Spliced {
    async fn next(&mut self) -> Heard {
        match self.splice.next().await {
            SpliceEvent::Captured(Side::Worker, body) => match self.asked.answered(&body) {
                Some(value) => value,
                None => Heard::of(&body, &mut self.kept),
            },
            SpliceEvent::Failed(Side::Worker, _) if self.splice.worker().was_kept() => {
                Heard::Ended(Outcome::Upstream)
            }
            SpliceEvent::Eof(Side::Worker) | SpliceEvent::Failed(Side::Worker, _) => Heard::Gone,
            // Whoever comes again is told that something is missing.
            SpliceEvent::Malformed(Side::Worker, FrameError::Short(_)) => {
                self.splice.pass_over();
                self.kept.passed_over();
                Heard::Nothing
            }
            SpliceEvent::Malformed(Side::Worker, _) => Heard::Ended(Outcome::Failed),
            // The rest of what the lost client has sent: what was not whole, or not acted on, never was.
            SpliceEvent::Captured(Side::Client, _)
            | SpliceEvent::Eof(Side::Client)
            | SpliceEvent::Failed(Side::Client, _)
            | SpliceEvent::Malformed(Side::Client, _) => Heard::Nothing,
        }
    }

    /// A prompt is at a line, so it takes no task that runs.
    fn is_ready(&self, taker: Taker) -> bool {
        self.splice.is_ready() && (taker == Taker::Editor || !self.kept.runs())
    }

    async fn evaluate(&mut self, expression: &str) -> bool {
        if !self.splice.is_ready() {
            return false;
        }
        let arguments = park::question(expression);
        let request = request(OWN_SEQ, Command::Evaluate, arguments).to_string();
        let evaluate = Command::Evaluate.as_str().as_bytes();
        self.splice.capture_answers(Side::Worker, evaluate);
        self.splice.insert_body(Side::Worker, request.as_bytes());
        self.asked = Asked::by(OWN_SEQ);
        true
    }

    fn abandon(&mut self) -> bool {
        self.splice.worker_mut().abandon()
    }

    fn pass_on(
        &mut self,
        live: &Live<'_>,
        tenant: Value,
        left: Duration,
    ) -> Option<(OwnedFd, Stored)> {
        let keep = self.memory.keep(live, Some(left))?;
        let worker = self.splice.worker_mut();
        worker.hand_over(tenant, &keep, &mut self.kept)
    }

    fn handed_over(mut self) -> Parked {
        // Nothing is in between, as was looked at.
        let worker = self.splice.worker_mut().moved();
        Parked::Debugpy(Box::new(Debugpy {
            line: Line::Worker(Box::new(worker)),
            memory: self.memory,
            kept: self.kept,
        }))
    }
}
