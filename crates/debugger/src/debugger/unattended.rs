//! A debugger without a client, held by a relay or an agent, whatever its protocol: its messages meanwhile, the events
//! among them, and when another client may resume it.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::Worker;
use super::legacy::LegacySession;
use crate::pdb::{self, Prompt};
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::codec::{FrameError, parse};
use ray_relay_base::wire::dap::message::{Incoming, request};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::peek::Depth;
use ray_relay_base::wire::dap::scanner::Rules;
use ray_relay_base::wire::dap::splice::{NullPeer, Side, Splice, SpliceEvent};
use ray_relay_base::wire::dap::stored_messages::{self, Meaning, StoredMessages};
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// `seq` of the requests that the relay itself may send to a worker. A client counts upwards from 1 (Helix from 0),
/// without a limit.
pub const OWN_SEQ: i64 = -5678;

/// Timeout for writing a request to a paused debugger.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The prompt of a terminal, over the connection to a worker.
pub type TerminalPrompt = Prompt<Prefixed<Worker>>;

/// A debugger that stays as it is. Dropping it detaches in order.
pub struct Unattended {
    reader: Reader,
    /// Its messages since; those of the legacy debugger are stored in its connection.
    messages: StoredMessages,
    /// The relay's own pending request.
    pending: PendingRequest,
}

/// How the debugger's messages are read.
enum Reader {
    Splice(Box<KeptSplice>),
    Prompt(Box<TerminalPrompt>),
    Legacy(Box<LegacySession>),
}

/// An idle connection to a debugger, with nothing in transit in either direction, for its next user.
pub enum IdleConnection {
    /// debugpy, as left by an editor.
    Worker(Box<Worker>),
    /// debugpy, as left by a prompt.
    Prompt(Box<TerminalPrompt>),
    /// The prompt of the legacy debugger.
    Legacy(Box<LegacySession>),
}

impl IdleConnection {
    /// The connection to debugpy; `None`: it is to another debugger, which is left.
    pub fn into_worker(self) -> Option<Worker> {
        match self {
            Self::Worker(worker) => Some(*worker),
            Self::Prompt(mut prompt) => Some(prompt.stream_mut().get_mut().moved()),
            Self::Legacy(_) => None,
        }
    }

    /// Records that another session has it, described by `tenant`, for the keeper of the connection.
    pub fn held_by(&mut self, tenant: Value) {
        match self {
            Self::Worker(worker) => worker.held_by(tenant),
            Self::Prompt(prompt) => prompt.stream_mut().get_mut().held_by(tenant),
            Self::Legacy(entered) => entered.held_by(tenant),
        }
    }
}

/// The kind of session that resumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// A debugger's client.
    Editor,
    /// A prompt of the relay's own.
    Prompt,
    /// A relay, for either.
    Relay,
}

/// An event of a debugger without a client.
pub enum UnattendedEvent {
    /// A thread has stopped.
    Stopped,
    /// No thread is known to be paused any more.
    Runs,
    /// The [evaluated](Unattended::evaluate) expression has this value, or failed for this reason.
    Value(Result<String, String>),
    /// Nothing that matters to its owner.
    Nothing,
    /// Its connection or its process is gone, for a reason that the head may know.
    Gone,
    /// Its connection is gone: an agent keeps it, or a prompt has closed by itself.
    Closed,
    /// Its messages are not valid.
    Garbled,
}

impl UnattendedEvent {
    /// Whether it is the last event.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Gone | Self::Closed | Self::Garbled)
    }
}

/// The pending request to a debugger, by its number.
#[derive(Debug, Default)]
struct PendingRequest(Option<i64>);

impl PendingRequest {
    /// The event for the message with this body, if it is the response; `None`: it is not.
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
    /// debugpy, as left by an editor or another process, with the stored `messages`.
    pub fn splice(splice: KeptSplice, messages: StoredMessages) -> Self {
        Self::by(Reader::Splice(Box::new(splice)), messages)
    }

    /// debugpy, as left by a prompt.
    pub fn prompt(prompt: Box<TerminalPrompt>) -> Self {
        let mut messages = StoredMessages::default();
        messages.stopped(&prompt.stopped());
        Self::by(Reader::Prompt(prompt), messages)
    }

    /// The prompt of the legacy debugger.
    pub fn legacy(entered: Box<LegacySession>) -> Self {
        Self::by(Reader::Legacy(entered), StoredMessages::default())
    }

    fn by(reader: Reader, messages: StoredMessages) -> Self {
        let pending = PendingRequest::default();
        Self {
            reader,
            messages,
            pending,
        }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> UnattendedEvent {
        match &mut self.reader {
            Reader::Splice(splice) => match splice.next().await {
                SpliceEvent::Captured(Side::Worker, body) => self.on_message(&body),
                SpliceEvent::Failed(Side::Worker, _) if splice.worker().was_kept() => {
                    UnattendedEvent::Closed
                }
                SpliceEvent::Eof(Side::Worker) | SpliceEvent::Failed(Side::Worker, _) => {
                    UnattendedEvent::Gone
                }
                // The next client is notified that something is missing.
                SpliceEvent::Malformed(Side::Worker, FrameError::Short(_)) => {
                    splice.pass_over();
                    self.messages.passed_over();
                    UnattendedEvent::Nothing
                }
                SpliceEvent::Malformed(Side::Worker, _) => UnattendedEvent::Garbled,
                // The rest of the lost client's messages: incomplete or unhandled ones are ignored.
                SpliceEvent::Captured(Side::Client, _)
                | SpliceEvent::Eof(Side::Client)
                | SpliceEvent::Failed(Side::Client, _)
                | SpliceEvent::Malformed(Side::Client, _) => UnattendedEvent::Nothing,
            },
            Reader::Prompt(prompt) => match prompt.receive_unattended().await {
                Ok(Some(body)) => self.on_message(&body),
                Ok(None) => {
                    self.messages.passed_over();
                    UnattendedEvent::Nothing
                }
                Err(_) if prompt.stream().get_ref().was_kept() => UnattendedEvent::Closed,
                Err(_) => UnattendedEvent::Gone,
            },
            Reader::Legacy(entered) => match entered.receive_unattended().await {
                Ok(1..) => UnattendedEvent::Nothing,
                // It closed by itself.
                Ok(0) | Err(_) => UnattendedEvent::Closed,
            },
        }
    }

    fn on_message(&mut self, body: &[u8]) -> UnattendedEvent {
        if let Some(value) = self.pending.answered(body) {
            return value;
        }
        match self.messages.take(body) {
            Meaning::Stopped => UnattendedEvent::Stopped,
            Meaning::Runs if self.messages.runs() => UnattendedEvent::Runs,
            Meaning::Runs | Meaning::Nothing => UnattendedEvent::Nothing,
            Meaning::Ended => UnattendedEvent::Gone,
        }
    }

    /// Whether every response to the lost client has arrived and been dropped, so that none reaches the next client.
    pub fn is_quiet(&self) -> bool {
        match &self.reader {
            Reader::Splice(splice) => is_ready(splice),
            Reader::Prompt(prompt) => prompt.is_whole() && prompt.stream().get_ref().is_quiet(),
            Reader::Legacy(entered) => entered.pending() == 0,
        }
    }

    /// Whether an expression of the lost client still runs in the task.
    pub fn evaluates(&self) -> bool {
        match &self.reader {
            Reader::Splice(splice) => splice.worker().evaluates(),
            Reader::Prompt(prompt) => prompt.stream().get_ref().evaluates(),
            Reader::Legacy(_) => false,
        }
    }

    /// Whether it is a legacy prompt that does not ask for a command, because a statement runs in it.
    pub fn is_busy_prompt(&self) -> bool {
        match &self.reader {
            Reader::Splice(_) | Reader::Prompt(_) => false,
            Reader::Legacy(entered) => !entered.is_paused(),
        }
    }

    /// Whether it is [quiet](Self::is_quiet), and a `taker` can resume it now. A prompt needs a paused task.
    pub fn is_ready(&self, taker: Taker) -> bool {
        let can = match (&self.reader, taker) {
            (Reader::Legacy(_), Taker::Editor) => false,
            (Reader::Splice(_) | Reader::Prompt(_), Taker::Prompt) => !self.runs(),
            _ => true,
        };
        can && self.is_quiet()
    }

    /// Whether no thread is known to be paused.
    pub fn runs(&self) -> bool {
        match &self.reader {
            Reader::Splice(_) | Reader::Prompt(_) => self.messages.runs(),
            Reader::Legacy(_) => false,
        }
    }

    /// Requests the value of `expression`, which arrives as [`UnattendedEvent::Value`]; returns `false` if it accepts
    /// no request now. It is evaluated in a thread of the debugger, and in no frame of the program. Not cancel safe.
    pub async fn evaluate(&mut self, expression: &str) -> bool {
        if !self.is_ready(Taker::Editor) {
            return false;
        }
        let arguments = json!({"expression": expression, "context": "clipboard"});
        match &mut self.reader {
            Reader::Splice(splice) => {
                let request = request(OWN_SEQ, Command::Evaluate, arguments).to_string();
                let evaluate = Command::Evaluate.as_str().as_bytes();
                splice.capture_answers(Side::Worker, evaluate, true);
                splice.insert_body(Side::Worker, request.as_bytes());
                self.pending = PendingRequest(Some(OWN_SEQ));
                true
            }
            Reader::Prompt(prompt) => {
                let sent = timeout(SEND_TIMEOUT, prompt.evaluate(arguments)).await;
                let Ok(Ok(seq)) = sent else { return false };
                self.pending = PendingRequest(i64::try_from(seq).ok());
                true
            }
            Reader::Legacy(_) => false,
        }
    }

    /// Interrupts expressions of the lost client; native code continues. Not cancel safe.
    pub async fn interrupt(&mut self) {
        let arguments = pdb::interrupt();
        match &mut self.reader {
            Reader::Splice(splice) => {
                let request = request(OWN_SEQ, Command::Evaluate, arguments).to_string();
                splice.insert_body(Side::Worker, request.as_bytes());
            }
            Reader::Prompt(prompt) => drop(timeout(SEND_TIMEOUT, prompt.evaluate(arguments)).await),
            Reader::Legacy(_) => {}
        }
    }

    /// The value of `expression`, [evaluated](Self::evaluate) now; `None`: there is none within `patience`. Other
    /// messages meanwhile are stored.
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
                    UnattendedEvent::Value(result) => value = Some(result),
                    UnattendedEvent::Gone | UnattendedEvent::Closed | UnattendedEvent::Garbled => {
                        return;
                    }
                    UnattendedEvent::Stopped | UnattendedEvent::Runs | UnattendedEvent::Nothing => {
                    }
                }
            }
        };
        // A timeout leaves no value.
        let _ = timeout(patience, answered).await;
        value
    }

    /// Whether no message is in transit in either direction.
    fn is_whole(&self) -> bool {
        match &self.reader {
            Reader::Splice(splice) => splice.is_whole() && splice.drained(Side::Worker),
            Reader::Prompt(prompt) => prompt.is_whole(),
            Reader::Legacy(_) => true,
        }
    }

    /// The announced subprocesses, which wait for a client.
    pub fn subprocesses(&self) -> impl Iterator<Item = u32> {
        self.messages.subprocesses()
    }

    /// The connection to debugpy, if it is one.
    pub fn worker_mut(&mut self) -> Option<&mut Worker> {
        match &mut self.reader {
            Reader::Splice(splice) => Some(splice.detaching_worker()),
            Reader::Prompt(prompt) => Some(prompt.stream_mut().get_mut()),
            Reader::Legacy(_) => None,
        }
    }

    /// Sets the terms for keeping it when this process is lost, and the new holder if `tenant` is given. Cancel safe.
    pub async fn keep_by(&mut self, tenant: Option<Value>, keep: &ParkTerms) {
        let worker = match &mut self.reader {
            Reader::Splice(splice) => splice.worker_mut(),
            Reader::Prompt(prompt) => prompt.stream_mut().get_mut(),
            Reader::Legacy(entered) => {
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

    /// Loses this end if the debugger is kept then; returns whether it is.
    pub fn abandon(&mut self) -> bool {
        match &mut self.reader {
            Reader::Legacy(entered) => entered.abandon(),
            _ => self.worker_mut().is_some_and(Worker::abandon),
        }
    }

    /// Returns debugpy and its messages since, for a client that replaces the lost one; `None`: it is another
    /// debugger, or in the middle of a message.
    pub fn into_splice(self) -> Option<(KeptSplice, StoredMessages)> {
        let is_whole = self.is_whole();
        match self.reader {
            Reader::Splice(splice) if is_whole => Some((*splice, self.messages)),
            _ => None,
        }
    }

    /// Returns the connection and the messages since, for its next user. Nothing may be in transit, as
    /// [`is_ready`](Self::is_ready) tells.
    pub fn into_idle(self) -> (IdleConnection, StoredMessages) {
        let connection = match self.reader {
            Reader::Splice(mut splice) => {
                IdleConnection::Worker(Box::new(splice.detaching_worker().moved()))
            }
            Reader::Prompt(prompt) => IdleConnection::Prompt(prompt),
            Reader::Legacy(entered) => IdleConnection::Legacy(entered),
        };
        (connection, self.messages)
    }
}

impl fmt::Debug for Unattended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unattended").finish_non_exhaustive()
    }
}

/// Captures the worker's messages that its owner has to see, of at most `max_captured` bytes.
pub fn rules(max_captured: usize) -> Rules {
    Rules {
        depth: Depth::Deciding,
        captures: stored_messages::matters,
        examined: |_, _| None,
        max_captured,
        max_passed: usize::MAX / 2,
    }
}

/// A worker without a client.
pub type KeptSplice = Splice<NullPeer, Worker>;

/// Holds `worker` without a client; `from_worker` was read from it already. Bytes in transit are charged to `account`.
pub fn keeping(
    account: Account,
    worker: Worker,
    from_worker: Vec<u8>,
    max_captured: usize,
) -> KeptSplice {
    let (up, down) = (rules(max_captured), rules(max_captured));
    Splice::new(account, NullPeer, Vec::new(), up, worker, from_worker, down)
}

/// Whether every response to the lost client has arrived and been dropped, so that none reaches the next one, which
/// counts its requests from 1 as well.
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
        for (is_stopped, has_request) in [(true, false), (false, false), (true, true)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap());
            let (near, far) = tokio::join!(near, listener.accept());
            let stream = Stream::Direct(Direct::new(near.unwrap()));
            let mut worker = Worker::resumed(stream, None, TaskTracker::new());
            if has_request {
                let question = request(9, Command::Threads, json!({}));
                worker.write_all(&frame(&question)).await.unwrap();
            }
            let mut stored = StoredMessages::default();
            if is_stopped {
                stored.stopped(STOP);
            }
            let splice = keeping(Account::default(), worker, Vec::new(), 1 << 20);
            let unattended = Unattended::splice(splice, stored);
            assert_eq!(unattended.is_ready(Taker::Editor), !has_request);
            assert_eq!(unattended.is_ready(Taker::Relay), !has_request);
            let is_ready_for_prompt = is_stopped && !has_request;
            assert_eq!(unattended.is_ready(Taker::Prompt), is_ready_for_prompt);
            drop(far);
        }
    }
}
