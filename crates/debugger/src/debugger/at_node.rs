//! An agent's connection to a worker of its own node: allowed by Ray's attribution, where a relay needs a permit.
//!
//! The session belongs to the relay. The agent has to end the connection in order if the relay is lost, so it follows
//! the traffic in a [`Worker`] of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::legacy::LegacySession;
use super::unattended::{IdleConnection, Unattended, keeping};
use super::worker::Worker;
use super::{Direct, PROBE_AFTER, Stream};
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::codec::{frame, put_frame};
use ray_relay_base::wire::dap::message::notice;
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::peer_stream::PeerStream as _;
use ray_relay_base::wire::{read_through, tcp};

/// Bytes per read of a message that is discarded.
const READ_BYTES: usize = 16 * 1024;

/// Size in bytes up to which a message is written only when it is complete.
const MAX_BUFFERED_BYTES: usize = 1 << 24;

/// Largest message of a debugger without a relay that is parsed, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 24;

/// Timeout of the rest of a message that is discarded.
const REST_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the first of `ways` that accepts, each within `patience`; the next one is tried only if nothing
/// listens.
///
/// # Errors
/// The error of the last attempt.
#[expect(
    clippy::disallowed_methods,
    reason = "here an agent dials workers, at the addresses that Ray attributes to them"
)]
pub async fn dial(ways: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for way in ways {
        let dialled = timeout(patience, TcpStream::connect(way)).await;
        match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                tcp::tune(&stream, PROBE_AFTER)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// A debugger of the agent's node, while a relay has a session with it. Dropping it detaches in order.
#[derive(Debug)]
pub enum Attended {
    /// debugpy.
    Debugpy(Box<Worker>),
    /// The prompt of the legacy debugger.
    Legacy(Box<LegacySession>),
}

impl Attended {
    /// Follows the debugger of this `kind` at the other end of `stream`, a new connection. A task of `tasks` runs the
    /// detach sequence.
    ///
    /// # Errors
    /// If the system refuses an option of the socket.
    pub fn follow(kind: Kind, stream: TcpStream, tasks: TaskTracker) -> io::Result<Self> {
        match kind {
            Kind::Debugpy => {
                tcp::bound_silence(&stream)?;
                let mut worker = Worker::over(stream, tasks);
                if let Some(connection) = worker.connection_mut() {
                    connection.ledger.stored = Some(Box::default());
                }
                Ok(Self::Debugpy(Box::new(worker)))
            }
            Kind::Pdb => {
                let stream = Stream::Direct(Direct::new(stream));
                Ok(Self::Legacy(Box::new(LegacySession::new(stream, &tasks))))
            }
        }
    }

    /// Accepts as much as possible of `bytes`, split anywhere: the relay has ordered its messages already. Empty
    /// `bytes` flush what was accepted before.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Debugpy(worker) => worker.poll_forward(cx, bytes),
            Self::Legacy(entered) => entered.poll_forward(cx, bytes),
        }
    }

    /// Completes the message in progress of the lost relay with its `last` bytes, which were not accepted yet, if they
    /// suffice; the rest never comes.
    pub fn complete(&mut self, last: &[u8]) {
        match self {
            Self::Debugpy(worker) => {
                worker.forget_part();
                worker.complete(last);
            }
            Self::Legacy(entered) => entered.complete(last),
        }
    }

    /// Whether only whole messages were sent, or will be, so that another client could resume.
    pub fn is_resumable(&mut self) -> bool {
        match self {
            Self::Debugpy(worker) => worker.is_resumable(),
            Self::Legacy(entered) => entered.stays(),
        }
    }

    /// Turns it into a debugger without a relay, from the next message on.
    ///
    /// # Errors
    /// The debugger itself, to detach from: it does not finish its current message.
    pub async fn unattended(self) -> Result<Unattended, Self> {
        let mut worker = match self {
            Self::Debugpy(worker) => worker,
            Self::Legacy(entered) => return Ok(Unattended::legacy(entered)),
        };
        let kept = worker.take_stored();
        match timeout(REST_TIMEOUT, worker.skip_rest()).await {
            Ok(Ok(part)) => {
                let splice = keeping(Account::default(), *worker, part, MAX_MESSAGE_BYTES);
                Ok(Unattended::splice(splice, kept))
            }
            Ok(Err(_)) | Err(_) => Err(Self::Debugpy(worker)),
        }
    }

    /// Prepares it for the next client of `debugger`. Returns it with the messages of the meantime and the current
    /// stops, as the debugger would send them.
    pub fn for_next_client(debugger: Unattended) -> (Self, Vec<u8>) {
        let (connection, kept) = debugger.into_idle();
        match connection {
            IdleConnection::Worker(worker) => Self::worker_for_next(worker, kept),
            // No agent has a prompt.
            IdleConnection::Prompt(mut prompt) => {
                let worker = prompt.stream_mut().get_mut().moved();
                Self::worker_for_next(Box::new(worker), kept)
            }
            IdleConnection::Legacy(mut entered) => {
                let missed = entered.missed_output();
                (Self::Legacy(entered), missed)
            }
        }
    }

    fn worker_for_next(mut worker: Box<Worker>, mut kept: StoredMessages) -> (Self, Vec<u8>) {
        let mut frames = Vec::new();
        let (cut, messages) = kept.messages();
        if cut > 0 {
            let text = format!("{cut} messages of output were dropped meanwhile");
            frames.extend(frame(&notice(&text, false)));
        }
        let mut stored = StoredMessages::of(kept.threads.cleared());
        for message in messages {
            put_frame(&mut frames, &message);
        }
        for stop in kept.stops() {
            put_frame(&mut frames, &stop);
            stored.stopped(&stop);
        }
        worker.set_stored(stored);
        (Self::Debugpy(worker), frames)
    }
}

read_through!([] Attended { Self::Debugpy(worker) => worker, Self::Legacy(entered) => entered });

impl Worker {
    /// Whether only whole messages were sent, or will be, so that another client could resume.
    pub fn is_resumable(&mut self) -> bool {
        let whole = |connection: &mut super::connection::DebuggerConnection| {
            connection.ledger.between_messages()
        };
        self.stays() && self.connection_mut().is_some_and(whole)
    }

    /// The paused threads. The caller tracks stops and resumes from now on.
    pub fn take_stored(&mut self) -> StoredMessages {
        let stored = self
            .connection_mut()
            .and_then(|connection| connection.ledger.stored.take());
        stored.map_or_else(StoredMessages::default, |stored| *stored)
    }

    /// Tracks the paused threads itself again, starting from `kept`.
    pub fn set_stored(&mut self, kept: StoredMessages) {
        if let Some(connection) = self.connection_mut() {
            connection.ledger.stored = Some(Box::new(kept));
        }
    }

    /// Reads and discards the rest of the debugger's current message; returns the part of the next header that was
    /// read.
    ///
    /// # Errors
    /// If the connection is gone.
    pub(crate) async fn skip_rest(&mut self) -> io::Result<Vec<u8>> {
        let mut room = vec![0; READ_BYTES];
        loop {
            let Some(connection) = self.connection_mut() else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let (remaining, part) = connection.ledger.rest();
            if remaining == 0 {
                return Ok(part.to_vec());
            }
            let now = remaining.min(READ_BYTES);
            if self.read(&mut room[..now]).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Accepts as much as possible of `bytes`, split anywhere: the relay has ordered its messages already. A message
    /// is written only when it is complete: after half a message of a lost relay, the debugger could understand no
    /// other. One of more than [`MAX_BUFFERED_BYTES`] bytes is written as it comes. The rest of a message that was
    /// begun must be [handed over](ray_relay_base::wire::peer_stream::PeerStream::complete) at the end.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(connection) = self.connection_mut() else {
            return Poll::Ready(Ok(bytes.len()));
        };
        ready!(connection.poll_unsent(cx))?;
        let mut accepted = bytes.len();
        if connection.part.is_empty() {
            let whole = &bytes[..connection.ledger.whole(bytes)];
            if !whole.is_empty() {
                let written = ready!(Pin::new(&mut connection.stream).poll_write(cx, whole))?;
                connection.sent(&bytes[..written]);
                return Poll::Ready(Ok(written));
            }
        } else {
            accepted = connection.ledger.under_way(bytes);
        }
        connection.part.extend_from_slice(&bytes[..accepted]);
        connection.sent(&bytes[..accepted]);
        if connection.ledger.between_messages() || connection.part.len() > MAX_BUFFERED_BYTES {
            connection.unsent = std::mem::take(&mut connection.part);
        }
        Poll::Ready(Ok(accepted))
    }

    /// Discards a partial message whose rest will never come.
    pub(crate) fn forget_part(&mut self) {
        if let Some(connection) = self.connection_mut()
            && !connection.part.is_empty()
        {
            connection.part = Vec::new();
            connection.ledger.forget_part();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use ray_relay_base::wire::tcp::free_port;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn next_address_is_dialled_if_the_first_refuses() {
        let refusing = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let accepting = open.local_addr().unwrap();
        let timeout = Duration::from_secs(5);
        let dialled = dial(&[refusing, accepting], timeout).await.unwrap();
        assert_eq!(dialled.peer_addr().unwrap(), accepting);
        for addresses in [&[refusing, refusing][..], &[refusing]] {
            let error = dial(addresses, timeout).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(dial(&[], timeout).await.is_err());
    }
}
