//! A connection to a worker's debugger that is always closed in order, however its user ends.
//!
//! debugpy's adapter does not survive a client that disconnects at the wrong moment. One that closes during `attach`,
//! or that ends its stream right behind `disconnect`, takes the adapter with it. The task (or the worker's next
//! breakpoint) then waits for ever (debugpy 1.8.0 to 1.8.22, seen each time). So only [`detach`] closes this
//! connection: dropping a [`Worker`], at any await of any task, passes it to a task of its own that runs the detach
//! sequence. The breakpoint stays taken until that is done.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::connection::DebuggerConnection;
use super::kept::Stored;
use super::progress::Attach;
use super::protocol_tracker::ProtocolTracker;
use super::{Direct, Stream, Tenant, detach};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// The stream to a worker's debugger. Messages must be written whole, each in one piece, or
/// [passed](PeerStream::poll_pass).
#[derive(Debug)]
pub struct Worker {
    /// `None` once it has been left.
    connection: Option<DebuggerConnection>,
}

impl Worker {
    /// A new connection without a session here, such as an agent's. Requires a runtime.
    pub fn over(stream: TcpStream, tasks: TaskTracker) -> Self {
        Self::new(Stream::Direct(Direct::new(stream)), None, tasks)
    }

    /// A new connection for `tenant`. Requires a runtime.
    pub fn new(stream: Stream, tenant: Option<Box<dyn Tenant>>, tasks: TaskTracker) -> Self {
        let stored = stream.kept().map(|_| Box::default());
        Self {
            connection: Some(DebuggerConnection {
                stream,
                ledger: ProtocolTracker::with_stored(stored),
                unsent: Vec::new(),
                part: Vec::new(),
                configured: None,
                held: Vec::new(),
                tenant,
                kept: false,
                tasks,
                runtime: Handle::current(),
            }),
        }
    }

    /// A connection to a debugger that an agent has kept: it is attached and configured.
    pub fn resumed(stream: Stream, tenant: Option<Box<dyn Tenant>>, tasks: TaskTracker) -> Self {
        let mut worker = Self::new(stream, tenant, tasks);
        if let Some(connection) = &mut worker.connection {
            connection.ledger = ProtocolTracker::resumed();
            // Notifies the tenant.
            connection.sent(&[]);
        }
        worker
    }

    /// Moves the connection out of this value.
    pub fn moved(&mut self) -> Self {
        Self {
            connection: self.connection.take(),
        }
    }

    /// Whether a keeper can hold the debugger when this end is lost, once it has [the terms](Self::keep_by).
    pub fn has_keeper(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.stream.has_keeper())
    }

    /// Records that another session has it, described by `tenant`, for the keeper of the connection.
    pub fn held_by(&mut self, tenant: Value) {
        let connection = self.connection.as_mut();
        if let Some(kept) = connection.and_then(|connection| connection.stream.kept_mut()) {
            kept.held_by(tenant);
        }
    }

    /// Sets the terms for keeping the debugger when this end is lost: with an agent in between that supports it, or
    /// with the keeper of the connection. The last terms count. Cancel safe.
    pub async fn keep_by(&mut self, keep: &ParkTerms) {
        if let Some(connection) = &mut self.connection {
            connection.kept = connection.stream.keep_by(keep).await;
        }
    }

    /// Whether the debugger is kept when this end is lost on purpose, by an agent or the keeper of the connection.
    pub fn is_kept(&self) -> bool {
        let beyond = |connection: &DebuggerConnection| connection.stream.outlives_the_end();
        let kept = |connection: &DebuggerConnection| {
            connection.kept || beyond(connection) && connection.ledger.between_messages()
        };
        self.stays() && self.connection.as_ref().is_some_and(kept)
    }

    /// Whether an agent keeps the debugger, although this end may be lost by now.
    pub fn was_kept(&self) -> bool {
        let kept = |connection: &DebuggerConnection| {
            let ledger = &connection.ledger;
            connection.kept && ledger.progress.configured && !ledger.progress.disconnect
        };
        self.connection.as_ref().is_some_and(kept)
    }

    /// Loses this end if the debugger is kept then; returns whether it is.
    pub fn abandon(&mut self) -> bool {
        let is_kept = self.is_kept();
        if is_kept && let Some(connection) = self.connection.take() {
            connection.stream.leave();
        }
        is_kept
    }

    /// Whether the debugger has accepted the attach, and waits to be configured or has been: it responds to requests.
    pub fn is_attached(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.ledger.progress.attach == Attach::Initialized)
    }

    /// Whether the debugger has answered `disconnect` and every other request.
    pub fn owes_nothing(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.ledger.owes_nothing())
    }

    /// Whether an expression of a client is pending.
    pub fn evaluates(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.ledger.progress.evaluating > 0)
    }

    /// Whether the client's request `seq` is an expression that may be pending.
    pub fn evaluates_request(&self, seq: u64) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.ledger.evaluations.contains(&seq))
    }

    /// Whether no request is pending.
    pub fn is_quiet(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.ledger.is_quiet())
    }

    /// Whether the debugger is attached and configured and was not sent `disconnect`, so that another client could
    /// resume.
    pub fn stays(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.ledger.stays() && connection.held.is_empty())
    }

    /// Whether the debugger has path mappings, which it keeps after a detach.
    pub fn has_mappings(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.ledger.progress.mapped)
    }

    /// Records path mappings that are set other than by an `attach`.
    pub fn maps(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.ledger.progress.mapped = true;
        }
    }

    /// Restores a connection of another process from its `stored` state.
    pub fn restored(
        stream: Stream,
        stored: &Stored,
        tenant: Option<Box<dyn Tenant>>,
        tasks: TaskTracker,
    ) -> Self {
        let mut worker = Self::new(stream, tenant, tasks);
        if let Some(connection) = &mut worker.connection {
            connection.ledger = ProtocolTracker::restored(stored);
            // Notifies the tenant.
            connection.sent(&[]);
        }
        worker
    }

    pub(super) fn connection_mut(&mut self) -> Option<&mut DebuggerConnection> {
        self.connection.as_mut()
    }

    /// Starts the detach sequence, in a task of its own. Reads return the end of the stream from now on; writes are
    /// discarded.
    pub fn leave(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            if connection.ledger.progress.attach == Attach::No
                && let Some(tenant) = &mut connection.tenant
            {
                // The debugger is not busy with its client yet: another client may come.
                tenant.release();
            }
            let (tasks, runtime) = (connection.tasks.clone(), connection.runtime.clone());
            tasks.spawn_on(detach::run(connection).in_current_span(), &runtime);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.leave();
    }
}

impl AsyncRead for Worker {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(()));
        };
        // Held bytes may wait to be written; reading reports a failure as well.
        let _ = connection.poll_unsent(cx);
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut connection.stream).poll_read(cx, buf));
        connection.received(&buf.filled()[before..]);
        if connection.ledger.progress.evaluating == 0 && !connection.held.is_empty() {
            connection.send_held();
            let _ = connection.poll_unsent(cx);
        }
        Poll::Ready(read)
    }
}

/// It can be read directly; writes are always tracked.
impl PeerStream for Worker {
    fn source(&self) -> Option<&TcpStream> {
        let waits = |connection: &&DebuggerConnection| {
            !connection.unsent.is_empty() || !connection.held.is_empty()
        };
        let connection = self
            .connection
            .as_ref()
            .filter(|connection| !waits(connection))?;
        connection.stream.socket()
    }

    /// Accepts no more than can be written, unlike [`poll_write`](AsyncWrite::poll_write), so that the rest of a bulk
    /// transfer is not copied.
    fn poll_pass(&mut self, cx: &mut Context<'_>, messages: &[u8]) -> Poll<io::Result<usize>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(messages.len()));
        };
        ready!(connection.poll_unsent(cx))?;
        let all = messages.len();
        let now = match connection.ledger.under_way(messages) {
            0 if connection.held.is_empty()
                && connection.ledger.up_to_disconnect(messages) == (all, all) =>
            {
                all
            }
            0 => return Pin::new(self).poll_write(cx, messages),
            rest => rest,
        };
        connection.sends(&messages[..now]);
        let written = ready!(Pin::new(&mut connection.stream).poll_write(cx, &messages[..now]))?;
        connection.sent(&messages[..written]);
        Poll::Ready(Ok(written))
    }

    fn complete(&mut self, rest: &[u8]) {
        if let Some(connection) = &mut self.connection {
            let rest = &rest[..connection.ledger.under_way(rest)];
            connection.unsent.extend_from_slice(rest);
            connection.sent(rest);
        }
    }
}

impl AsyncWrite for Worker {
    /// Accepts all of `buf` or nothing. Bytes that cannot be written now are stored, and written before anything else,
    /// so that no message is cut in two by its sender's end. A `disconnect` waits until no evaluation is pending, and
    /// is the last message: bytes behind it are dropped.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(buf.len()));
        };
        ready!(connection.poll_unsent(cx))?;
        let (now, all) = match connection.held.is_empty() {
            true => connection.ledger.up_to_disconnect(buf),
            false => (0, 0),
        };
        let (now, held) = buf[..all].split_at(now);
        if !now.is_empty() {
            connection.sends(now);
            let written = ready!(Pin::new(&mut connection.stream).poll_write(cx, now))?;
            connection.unsent.extend_from_slice(&now[written..]);
            connection.sent(now);
        }
        connection.held.extend_from_slice(held);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(()));
        };
        ready!(connection.poll_unsent(cx))?;
        Pin::new(&mut connection.stream).poll_flush(cx)
    }

    /// Does nothing: a half-close would take the adapter with it. [`Self::leave`] ends the connection.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::debugger::Direct;
    use crate::debugger::kept::KeptConnection;
    use crate::debugger::progress::Progress;
    use crate::keeper::testing as keeper;
    use ray_relay_base::wire::dap::codec::{Frames, frame, parse};

    fn request(command: &str, filler: usize) -> Value {
        json!({"seq": 1, "type": "request", "command": command, "arguments": {"x": "y".repeat(filler)}})
    }

    #[tokio::test]
    async fn partial_message_is_completed_before_disconnect() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let mut debugger = far.unwrap().0;
        let tasks = TaskTracker::new();
        let mut worker = Worker::over(near.unwrap(), tasks.clone());

        worker
            .write_all(&frame(&request("attach", 0)))
            .await
            .unwrap();
        let large = frame(&request("setVariable", 32 << 20));
        let mut written = 0;
        std::future::poll_fn(|cx| {
            while let Poll::Ready(count) = worker.poll_pass(cx, &large[written..]) {
                written += count.unwrap();
            }
            Poll::Ready(())
        })
        .await;
        assert!((1..large.len()).contains(&written), "{written}");
        // The next message was not begun, and is dropped.
        worker.complete(&[&large[written..], &frame(&request("pause", 0))].concat());
        drop(worker);

        for event in ["output", "debugpySockets", "initialized"] {
            let event = json!({"seq": 1, "type": "event", "event": event, "body": {}});
            debugger.write_all(&frame(&event)).await.unwrap();
        }
        let mut frames = Frames::new(1 << 26);
        let mut received = Vec::new();
        while received.len() < 3 {
            assert!(debugger.read_buf(frames.buffer()).await.unwrap() > 0);
            while let Some(body) = frames.next_body().unwrap() {
                let message = parse(&body).unwrap();
                received.push((message["command"].as_str().unwrap().to_owned(), body.len()));
            }
        }
        let commands: Vec<_> = received
            .iter()
            .map(|(command, _)| command.as_str())
            .collect();
        assert_eq!(
            commands,
            ["attach", "setVariable", "setFunctionBreakpoints"]
        );
        drop(debugger);
        tasks.close();
        tasks.wait().await;
    }

    /// With an outdated record the next process would detach a running task and end its busy adapter.
    #[tokio::test]
    async fn resuming_request_is_stored_before_it_is_sent() {
        for (command, attach, starting) in [
            ("attach", Attach::Sent, false),
            ("configurationDone", Attach::No, true),
            ("evaluate", Attach::No, false),
        ] {
            let keeper_path = keeper::place();
            let _keeper = keeper::keeper(&keeper_path).await;
            let relay = keeper::relay(&keeper_path).await;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap());
            let (near, far) = tokio::join!(near, listener.accept());
            let (near, _debugger) = (near.unwrap(), far.unwrap());
            let slot = relay.keeper.keep(near.as_fd()).unwrap();
            // Fill the socket, so that nothing more can be sent.
            near.writable().await.unwrap();
            while near.try_write(&[b' '; 1 << 16]).is_ok() {}
            let connection = KeptConnection::new(slot, Stored::of(Value::Null));
            let stream = Stream::Direct(Direct::kept(near, connection));
            let mut worker = Worker::new(stream, None, TaskTracker::new());
            let message = frame(&request(command, 0));
            let writing = timeout(Duration::from_millis(100), worker.write(&message));
            assert!(writing.await.is_err(), "{command} is not sent");

            relay.killed().await;
            let mut next = keeper::relay(&keeper_path).await;
            let unclaimed = next.is_left(1).await.remove(0);
            let stored: Stored = serde_json::from_slice(&unclaimed.record).unwrap();
            assert!(!stored.midway, "{command}");
            let expected = Progress {
                attach,
                mapped: command == "attach",
                configured: starting,
                starting,
                ..Progress::default()
            };
            assert_eq!(stored.progress, expected, "{command}");
        }
    }
}
