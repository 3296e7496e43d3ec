//! The relay ends a session: a principal's time is over, a limit is reached, or the cluster session that opened it ends.

use serde_json::{Value, json};

use super::Relaying;
use super::from_client::OWN_SEQ;
use crate::dap::farewell::{Farewell, Unexplained};
use crate::dap::splice::Side;
use crate::session::Member;
use crate::session::live::Closing;
use crate::wire::dap::codec::frame;
use crate::wire::dap::conversation::Conversation;
use crate::wire::dap::mappings;
use crate::wire::dap::message::{Request, event, notice, request};
use crate::wire::dap::names::{Command, Event};
use crate::wire::peer_stream::PeerStream;

/// Why a session ends whose client asked for it by ending another.
pub(super) const PARENT_ENDED: &str = "the cluster session that opened it has ended";

/// Resolves when the cluster session that opened this one has ended; never for one that was opened by itself. Cancel safe.
pub(super) async fn parent_ended(member: &mut Option<Member>) {
    match member {
        Some(member) => Box::pin(member.ended()).await,
        None => std::future::pending().await,
    }
}

impl<'a, S: PeerStream> Relaying<'a, S> {
    /// Leaves the worker, and keeps a client that has yet to say goodbye.
    pub(super) fn part(self) -> (Option<Farewell<S>>, Closing<'a>) {
        let last = |said: &Request| self.parted && said.known() == Some(Command::Disconnect);
        let left = self.live.is_cut_off()
            || self.client_closed
            || self.parting.as_deref().is_some_and(last);
        let Self {
            live,
            splice,
            parting,
            unexplained,
            ..
        } = self;
        // The goodbye to the worker goes on in a task of its own, and keeps the breakpoint until it is said.
        let client = splice.into_client();
        let (worker, closing) = live.part();
        let unexplained = unexplained.map(|closed| Unexplained { worker, closed });
        let limit = self.context.config.dap.max_handshake_frame;
        let farewell = client
            .filter(|_| self.bereft && !left)
            .map(|(stream, rest)| Farewell {
                client: Conversation::resume(stream, &rest, limit),
                asked: parting.filter(|_| !self.parted).map(|asked| *asked),
                unexplained,
            });
        (farewell, closing)
    }

    /// Takes along, before a goodbye, what debugpy 1.8 keeps when its client leaves: the function breakpoints, at which the
    /// task would stop with nobody there, and the path mappings, which the next person would meet. The goodbye waits until
    /// those are forgotten, as for every evaluation ([`crate::upstream::Worker`]).
    pub(super) fn leave_nothing_behind(&mut self) {
        if !self.splice.worker().is_attached() {
            return;
        }
        self.request(Command::SetFunctionBreakpoints, json!({"breakpoints": []}));
        if self.splice.worker().has_mappings() {
            // Answers to the client's own evaluations pass unseen until now.
            let evaluate = Command::Evaluate.as_str().as_bytes();
            self.splice.capture_answers(Side::Worker, evaluate);
            self.request(Command::Evaluate, mappings::forgetting());
        }
    }

    /// Puts a request of the relay's own to the worker. Its answer is not for the client.
    pub(super) fn request(&mut self, command: Command, arguments: Value) {
        let request = request(OWN_SEQ, command, arguments);
        self.splice.insert(Side::Worker, &frame(&request));
    }

    /// The client has closed its half without a goodbye: one is said behind all that it asked, so that it has its answers.
    /// A worker that is not attached yet is left as it is, to [`crate::upstream::Worker`].
    pub(super) fn say_goodbye(&mut self) {
        if self.splice.worker().is_attached() {
            self.leave_nothing_behind();
            self.request(Command::Disconnect, json!({"terminateDebuggee": false}));
        }
    }

    /// Leaves the worker and tells the client why. From here on nothing of the client's is forwarded. `important`: as
    /// [`notice`] has it.
    pub(super) fn let_go(&mut self, why: &str, important: bool) {
        // What the worker's debugger does from now on is no death.
        self.live.cut_off();
        self.splice.worker_mut().leave();
        let title = self.live.worker.breakpoint().title();
        let text = format!("this session with {title} ends, because {why}; the task runs on");
        self.tell(&notice(&text, important));
        if !self.terminated {
            self.tell(&event(Event::Terminated, Value::Null));
        }
        self.terminated = true;
    }
}
