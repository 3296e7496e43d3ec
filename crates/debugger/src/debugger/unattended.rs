//! A debugger that is kept without a client, by a relay or by an agent, whatever its protocol: what it says meanwhile, what of
//! that has to be seen, and when another client may go on with it.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::Worker;
use super::legacy::LegacySession;
use crate::pdb::{self, Prompt};
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::codec::{FrameError, parse};
use ray_relay_base::wire::dap::kept::{self, Kept, Meaning};
use ray_relay_base::wire::dap::message::{Incoming, request};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::peek::Depth;
use ray_relay_base::wire::dap::scanner::Rules;
use ray_relay_base::wire::dap::splice::{NullPeer, Side, Splice, SpliceEvent};
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// `seq` of the requests that the relay itself may put to a worker. A client counts upwards from 1 (Helix from 0), as far
/// as it likes.
pub const OWN_SEQ: i64 = -5678;

/// How long a debugger that stands may take to be written a question.
const SENT: Duration = Duration::from_secs(5);

/// The prompt of a terminal, over the connection to a worker.
pub type TerminalPrompt = Prompt<Prefixed<Worker>>;

/// A debugger that stays as it is. Dropped, it is left in order.
pub struct Unattended {
    line: Ear,
    /// What it has said since; of the legacy debugger its connection knows that.
    kept: Kept,
    /// What the relay itself has asked of it.
    asked: UnattendedRequest,
}

/// By which it is heard.
enum Ear {
    Splice(Box<KeptSplice>),
    Prompt(Box<TerminalPrompt>),
    Legacy(Box<LegacySession>),
}

/// A connection to a debugger, to which nothing is under way in either direction, for the one who goes on with it.
pub enum IdleConnection {
    /// debugpy, as an editor has left it.
    Worker(Box<Worker>),
    /// As a prompt has.
    Prompt(Box<TerminalPrompt>),
    /// The prompt of the legacy debugger.
    Legacy(Box<LegacySession>),
}

impl IdleConnection {
    /// The connection to debugpy alone; `None`: it is to another debugger, which is left.
    pub fn into_worker(self) -> Option<Worker> {
        match self {
            Self::Worker(worker) => Some(*worker),
            Self::Prompt(mut prompt) => Some(prompt.stream_mut().get_mut().moved()),
            Self::Legacy(_) => None,
        }
    }

    /// Another session has it, as `tenant` says: for the keeper of the connection beyond this process.
    pub fn held_by(&mut self, tenant: Value) {
        match self {
            Self::Worker(worker) => worker.held_by(tenant),
            Self::Prompt(prompt) => prompt.stream_mut().get_mut().held_by(tenant),
            Self::Legacy(entered) => entered.held_by(tenant),
        }
    }
}

/// By what a session is to go on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// A debugger's client.
    Editor,
    /// A prompt of the relay's own.
    Prompt,
    /// A relay, for either.
    Relay,
}

/// What a debugger without a client has said.
pub enum UnattendedEvent {
    /// A thread has stopped.
    Stopped,
    /// No thread is known to stand any more.
    Runs,
    /// What was [asked](Unattended::evaluate) has this value, or none, because of this.
    Value(Result<String, String>),
    /// Nothing that matters to its keeper.
    Nothing,
    /// Its connection or its process is gone, for a reason that the head may know.
    Gone,
    /// Its connection is gone: an agent keeps it, or a prompt has closed by itself.
    Closed,
    /// It is not understood.
    Garbled,
}

impl UnattendedEvent {
    /// Nothing follows.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Gone | Self::Closed | Self::Garbled)
    }
}

/// The question that a debugger is asked, by the number of its request.
#[derive(Debug, Default)]
struct UnattendedRequest(Option<i64>);

impl UnattendedRequest {
    /// What the message with this body answers to it; `None`: it is no answer to that.
    fn answered(&mut self, body: &[u8]) -> Option<UnattendedEvent> {
        let seq = self.0?;
        let message = Incoming::read(parse(body).ok()?);
        if !message.answers(seq) || message.command() != Some(Command::Evaluate) {
            return None;
        }
        self.0 = None;
        Some(UnattendedEvent::Value(match message.success {
            true => Ok(message.result()),
            false => Err(message.message.unwrap_or_default()),
        }))
    }
}

impl Unattended {
    /// debugpy, as an editor has left it, or another process, with what is `kept` of it.
    pub fn splice(splice: KeptSplice, kept: Kept) -> Self {
        Self::by(Ear::Splice(Box::new(splice)), kept)
    }

    /// debugpy, as a prompt has left it.
    pub fn prompt(prompt: Box<TerminalPrompt>) -> Self {
        let mut kept = Kept::default();
        kept.stopped(&prompt.stopped());
        Self::by(Ear::Prompt(prompt), kept)
    }

    /// The prompt of the legacy debugger.
    pub fn legacy(entered: Box<LegacySession>) -> Self {
        Self::by(Ear::Legacy(entered), Kept::default())
    }

    fn by(line: Ear, kept: Kept) -> Self {
        let asked = UnattendedRequest::default();
        Self { line, kept, asked }
    }

    /// The next thing that it says. Cancel safe.
    pub async fn next(&mut self) -> UnattendedEvent {
        match &mut self.line {
            Ear::Splice(splice) => match splice.next().await {
                SpliceEvent::Captured(Side::Worker, body) => self.on_message(&body),
                SpliceEvent::Failed(Side::Worker, _) if splice.worker().was_kept() => {
                    UnattendedEvent::Closed
                }
                SpliceEvent::Eof(Side::Worker) | SpliceEvent::Failed(Side::Worker, _) => {
                    UnattendedEvent::Gone
                }
                // A client that comes again is told that something is missing.
                SpliceEvent::Malformed(Side::Worker, FrameError::Short(_)) => {
                    splice.pass_over();
                    self.kept.passed_over();
                    UnattendedEvent::Nothing
                }
                SpliceEvent::Malformed(Side::Worker, _) => UnattendedEvent::Garbled,
                // The rest of what the lost client has sent: what was not whole, or not acted on, never was.
                SpliceEvent::Captured(Side::Client, _)
                | SpliceEvent::Eof(Side::Client)
                | SpliceEvent::Failed(Side::Client, _)
                | SpliceEvent::Malformed(Side::Client, _) => UnattendedEvent::Nothing,
            },
            Ear::Prompt(prompt) => match prompt.overhear().await {
                Ok(Some(body)) => self.on_message(&body),
                Ok(None) => {
                    self.kept.passed_over();
                    UnattendedEvent::Nothing
                }
                Err(_) if prompt.stream().get_ref().was_kept() => UnattendedEvent::Closed,
                Err(_) => UnattendedEvent::Gone,
            },
            Ear::Legacy(entered) => match entered.overhear().await {
                Ok(1..) => UnattendedEvent::Nothing,
                // It closed by itself.
                Ok(0) | Err(_) => UnattendedEvent::Closed,
            },
        }
    }

    fn on_message(&mut self, body: &[u8]) -> UnattendedEvent {
        if let Some(value) = self.asked.answered(body) {
            return value;
        }
        match self.kept.take(body) {
            Meaning::Stopped => UnattendedEvent::Stopped,
            Meaning::Runs if self.kept.runs() => UnattendedEvent::Runs,
            Meaning::Runs | Meaning::Nothing => UnattendedEvent::Nothing,
            Meaning::Ended => UnattendedEvent::Gone,
        }
    }

    /// Every answer to the lost client is here and thrown away, so that none of them comes to the next client.
    pub fn is_quiet(&self) -> bool {
        match &self.line {
            Ear::Splice(splice) => is_ready(splice),
            Ear::Prompt(prompt) => prompt.is_whole() && prompt.stream().get_ref().is_quiet(),
            Ear::Legacy(entered) => entered.pending() == 0,
        }
    }

    /// An expression of the lost client still runs in the task.
    pub fn evaluates(&self) -> bool {
        match &self.line {
            Ear::Splice(splice) => splice.worker().evaluates(),
            Ear::Prompt(prompt) => prompt.stream().get_ref().evaluates(),
            Ear::Legacy(_) => false,
        }
    }

    /// It is [quiet](Self::is_quiet), and a `taker` can go on with it now. A prompt is at a line, so it takes no task that runs.
    pub fn is_ready(&self, taker: Taker) -> bool {
        let can = match (&self.line, taker) {
            (Ear::Legacy(_), Taker::Editor) => false,
            (Ear::Splice(_) | Ear::Prompt(_), Taker::Prompt) => !self.runs(),
            _ => true,
        };
        can && self.is_quiet()
    }

    /// No thread of it is known to stand.
    pub fn runs(&self) -> bool {
        match &self.line {
            Ear::Splice(_) | Ear::Prompt(_) => self.kept.runs(),
            Ear::Legacy(_) => false,
        }
    }

    /// Asks for the value of `expression`, which [`UnattendedEvent::Value`] answers; `false`: it takes no question now. It is evaluated in
    /// a thread of the debugger's own, and in no frame of the program's. To be polled to its end.
    pub async fn evaluate(&mut self, expression: &str) -> bool {
        if !self.is_ready(Taker::Editor) {
            return false;
        }
        let arguments = json!({"expression": expression, "context": "clipboard"});
        match &mut self.line {
            Ear::Splice(splice) => {
                let request = request(OWN_SEQ, Command::Evaluate, arguments).to_string();
                let evaluate = Command::Evaluate.as_str().as_bytes();
                splice.capture_answers(Side::Worker, evaluate);
                splice.insert_body(Side::Worker, request.as_bytes());
                self.asked = UnattendedRequest(Some(OWN_SEQ));
                true
            }
            Ear::Prompt(prompt) => {
                let sent = timeout(SENT, prompt.evaluate(arguments)).await;
                let Ok(Ok(seq)) = sent else { return false };
                self.asked = UnattendedRequest(i64::try_from(seq).ok());
                true
            }
            Ear::Legacy(_) => false,
        }
    }

    /// Interrupts what the lost client has had evaluated; native code goes on. To be polled to its end.
    pub async fn interrupt(&mut self) {
        let arguments = pdb::interrupt();
        match &mut self.line {
            Ear::Splice(splice) => {
                let request = request(OWN_SEQ, Command::Evaluate, arguments).to_string();
                splice.insert_body(Side::Worker, request.as_bytes());
            }
            Ear::Prompt(prompt) => drop(timeout(SENT, prompt.evaluate(arguments)).await),
            Ear::Legacy(_) => {}
        }
    }

    /// The value of `expression`, [evaluated](Self::evaluate) now; `None`: there is none within `patience`. What else it says
    /// meanwhile is kept.
    pub async fn value_of(
        &mut self,
        expression: &str,
        patience: Duration,
    ) -> Option<Result<String, String>> {
        if !self.evaluate(expression).await {
            return None;
        }
        let mut value = None;
        let answered = async {
            while value.is_none() || !self.is_whole() {
                match self.next().await {
                    UnattendedEvent::Value(told) => value = Some(told),
                    UnattendedEvent::Gone | UnattendedEvent::Closed | UnattendedEvent::Garbled => {
                        return;
                    }
                    UnattendedEvent::Stopped | UnattendedEvent::Runs | UnattendedEvent::Nothing => {
                    }
                }
            }
        };
        // Late is as good as never.
        let _ = timeout(patience, answered).await;
        value
    }

    /// No message is under way in either direction.
    fn is_whole(&self) -> bool {
        match &self.line {
            Ear::Splice(splice) => splice.is_whole() && splice.drained(Side::Worker),
            Ear::Prompt(prompt) => prompt.is_whole(),
            Ear::Legacy(_) => true,
        }
    }

    /// The subprocesses that it has named, which wait for a client.
    pub fn subprocesses(&self) -> impl Iterator<Item = u32> {
        self.kept.subprocesses()
    }

    /// The connection to debugpy, where it is that.
    pub fn worker_mut(&mut self) -> Option<&mut Worker> {
        match &mut self.line {
            Ear::Splice(splice) => Some(splice.worker_mut()),
            Ear::Prompt(prompt) => Some(prompt.stream_mut().get_mut()),
            Ear::Legacy(_) => None,
        }
    }

    /// It is kept by `keep` when this process is lost, for another person where `tenant` names one. Cancel safe.
    pub async fn keep_by(&mut self, tenant: Option<Value>, keep: &ParkTerms) {
        let worker = match &mut self.line {
            Ear::Splice(splice) => splice.beside(),
            Ear::Prompt(prompt) => prompt.stream_mut().get_mut(),
            Ear::Legacy(entered) => {
                if let Some(tenant) = tenant {
                    entered.held_by(tenant);
                }
                return entered.keep_by(keep).await;
            }
        };
        if let Some(tenant) = tenant {
            worker.held_by(tenant);
        }
        Box::pin(worker.keep_by(keep)).await;
    }

    /// Loses this end where the debugger is kept then, and says whether it is.
    pub fn abandon(&mut self) -> bool {
        match &mut self.line {
            Ear::Legacy(entered) => entered.abandon(),
            _ => self.worker_mut().is_some_and(Worker::abandon),
        }
    }

    /// debugpy as it is, with what it has said since, for a client that takes its place; `None`: it is another debugger, or in the
    /// middle of a message.
    pub fn into_splice(self) -> Option<(KeptSplice, Kept)> {
        let is_whole = self.is_whole();
        match self.line {
            Ear::Splice(splice) if is_whole => Some((*splice, self.kept)),
            _ => None,
        }
    }

    /// For the one who goes on with it: the connection, and what it has said since. Nothing is in between, as was
    /// [looked at](Self::is_ready).
    pub fn into_line(self) -> (IdleConnection, Kept) {
        let line = match self.line {
            Ear::Splice(mut splice) => {
                IdleConnection::Worker(Box::new(splice.worker_mut().moved()))
            }
            Ear::Prompt(prompt) => IdleConnection::Prompt(prompt),
            Ear::Legacy(entered) => IdleConnection::Legacy(entered),
        };
        (line, self.kept)
    }
}

impl fmt::Debug for Unattended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unattended").finish_non_exhaustive()
    }
}

/// Of a worker's messages those that its keeper has to see, of at most `max_captured` bytes.
pub fn rules(max_captured: usize) -> Rules {
    Rules {
        depth: Depth::Deciding,
        captures: kept::matters,
        max_captured,
        max_passed: usize::MAX / 2,
    }
}

/// A worker that is kept without a client.
pub type KeptSplice = Splice<NullPeer, Worker>;

/// Keeps `worker` without a client; `from_worker` was read from it already. What is under way is taken from `account`.
pub fn keeping(
    account: Account,
    worker: Worker,
    from_worker: Vec<u8>,
    max_captured: usize,
) -> KeptSplice {
    let (up, down) = (rules(max_captured), rules(max_captured));
    Splice::new(account, NullPeer, Vec::new(), up, worker, from_worker, down)
}

/// Every answer to the lost client is here and thrown away, so that none of them comes to the next one, who counts its requests
/// from 1 as that one did.
fn is_ready(splice: &KeptSplice) -> bool {
    splice.worker().is_quiet()
        && splice.drained(Side::Worker)
        && splice.is_whole()
        && splice.idle(Side::Client)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::debugger::{Direct, Stream};
    use ray_relay_base::wire::dap::codec::frame;

    const STOP: &[u8] = br#"{"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": 3, "reason": "step"}}"#;

    #[tokio::test]
    async fn park_is_ready_when_quiet_and_for_a_prompt_when_stopped() {
        for (stands, asked) in [(true, false), (false, false), (true, true)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap());
            let (near, far) = tokio::join!(near, listener.accept());
            let stream = Stream::Direct(Direct::new(near.unwrap()));
            let mut worker = Worker::resumed(stream, None, TaskTracker::new());
            if asked {
                let question = request(9, Command::Threads, json!({}));
                worker.write_all(&frame(&question)).await.unwrap();
            }
            let mut kept = Kept::default();
            if stands {
                kept.stopped(STOP);
            }
            let splice = keeping(Account::default(), worker, Vec::new(), 1 << 20);
            let unattended = Unattended::splice(splice, kept);
            assert_eq!(unattended.is_ready(Taker::Editor), !asked);
            assert_eq!(unattended.is_ready(Taker::Relay), !asked);
            let for_prompt = stands && !asked;
            assert_eq!(unattended.is_ready(Taker::Prompt), for_prompt);
            drop(far);
        }
    }
}
