//! The detach sequence of a connection to a worker's debugger, in the order that debugpy survives.
//!
//! Everything that the client or the relay left open is finished first: the greeting is read, a running `attach`
//! reaches its `initialized`, every `evaluate` its response. Function breakpoints are cleared, since they would stop
//! the task at the next call without a client, and path mappings, which the next user would see. Then come
//! `disconnect`, its response, the end of the stream, and a moment for the adapter. Every step has its deadline, after
//! which the next is taken: a debugger that does not answer is no worse off.
//!
//! It runs in a task of its own that only the end of the process cancels. It holds the breakpoint until the response,
//! and keeps the next client from connecting until the end, so that none attaches to a debugger in mid-detach.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::debug;

use super::Tenant;
use super::connection::DebuggerConnection;
use super::progress::Attach;
use super::protocol_tracker::ProtocolTracker;
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::request;
use ray_relay_base::wire::dap::names::Command;

/// The deadline of the first message of a debugger's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline of the rest of the greeting, which older debuggers leave out. The thread that accepts connections sends
/// it, and ends for good if its client is gone by then (debugpy 1.8.14 and 1.8.22: within a few such connections; after
/// the whole greeting never).
const REATTACH_GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// The deadline of `initialized`: debugpy itself waits 15 s for the process before it refuses an attach.
const INITIALIZED_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an expression of a former client may run before it is interrupted.
const INTERRUPT_AFTER: Duration = Duration::from_secs(1);
/// The deadline of an evaluation in the task: the task cannot resume before it ends. An adapter whose client is gone
/// when the result arrives ends (debugpy 1.8.0 to 1.8.22), so the detach waits for it, longer than a person would.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(60);
/// The deadline of the response to one request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline for the adapter to close, which debugpy does after its response.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause for the adapter's cleanup after it has closed the connection. A client that connects before the adapter
/// has finished the session ends the thread that accepts connections, and the worker becomes unreachable (debugpy
/// 1.8.22, an idle machine: 1 in 40 that connected at once; the session was over within 5 ms of the close, next to
/// three busy loops too). A waiting client connects at the very end of the pause, and 100 ms were too few once next to
/// several compilers (debugpy 1.8.14).
const SETTLE_PERIOD: Duration = Duration::from_millis(300);
/// Number of sleeps that make up the pause. If the machine is busy or suspended meanwhile, as virtual ones may be, the
/// adapter is delayed together with this process: however long that lasts, it uses up one of the sleeps.
const SETTLE_SLEEPS: u32 = 15;
/// How long Ray takes after `configurationDone` to record that a thread no longer waits, if the thread has not
/// stopped: an earlier list would show the task as waiting once more.
const RAY_RECORD_PERIOD: Duration = Duration::from_millis(100);
/// `seq` of these requests: the client with other pending requests is gone.
const SEQ: u64 = 0x7fff_5678;

/// Bytes per read from the debugger.
const READ_BYTES: usize = 16 * 1024;

/// Runs the detach sequence over `connection`, releases the breakpoint, closes the connection, and looks after the
/// task.
///
/// The breakpoint is listed again when the debugger has responded. A client that takes it before the debugger has
/// finished this session waits for that before it connects; no other client has to.
pub(super) async fn run(connection: DebuggerConnection) {
    // Boxed separately: the seconds of looking after a task must not hold the memory of the connection.
    if let Some(tenant) = Box::pin(end_session(connection)).await {
        tenant.look_after().await;
    }
}

/// Resolves when a debugger whose connection was just closed has finished its session.
pub async fn settled() {
    for _ in 0..SETTLE_SLEEPS {
        sleep(SETTLE_PERIOD / SETTLE_SLEEPS).await;
    }
}

/// Ends the connection; returns the tenant whose task needs looking after.
async fn end_session(mut connection: DebuggerConnection) -> Option<Box<dyn Tenant>> {
    connection.finish().await;
    if let Some(since) = connection
        .configured
        .filter(|_| !connection.ledger.progress.stopped)
    {
        sleep_until(since + RAY_RECORD_PERIOD).await;
    }
    let mut settling = None;
    if let Some(tenant) = &mut connection.tenant {
        settling = tenant.settling();
        tenant.release();
    }
    if connection.ledger.progress.attach != Attach::No {
        connection.exchange(CLOSE_TIMEOUT, |_| false).await;
    }
    let DebuggerConnection {
        stream,
        ledger,
        tenant,
        ..
    } = connection;
    stream.end().await;
    if ledger.progress.greeted && settling.is_some() {
        settled().await;
    }
    drop(settling);
    tenant.filter(|_| ledger.progress.configured)
}

impl DebuggerConnection {
    async fn finish(&mut self) {
        self.exchange(GREETING_TIMEOUT, |ledger| ledger.progress.greeted)
            .await;
        if self.ledger.progress.attach == Attach::No {
            return self
                .exchange(REATTACH_GREETING_TIMEOUT, |ledger| ledger.progress.welcomed)
                .await;
        }
        if self.ledger.progress.attach == Attach::Sent {
            self.exchange(INITIALIZED_TIMEOUT, |ledger| {
                ledger.progress.attach != Attach::Sent
            })
            .await;
        }
        let evaluated = |ledger: &ProtocolTracker| ledger.progress.evaluating == 0;
        self.exchange(INTERRUPT_AFTER, evaluated).await;
        if !evaluated(&self.ledger)
            && !self.ledger.progress.configured
            && let Some(tenant) = &mut self.tenant
        {
            // This ends the hold of a snapshot, even if native code keeps the debugger from responding.
            tenant.release();
        }
        if !evaluated(&self.ledger) && !self.ledger.progress.disconnect {
            self.request(Command::Evaluate, crate::pdb::interrupt());
            self.exchange(EVALUATION_TIMEOUT, evaluated).await;
        }
        self.send_held();
        if !self.ledger.progress.disconnect {
            if self.ledger.progress.attach == Attach::Initialized {
                let answered = self.ledger.functions_answered;
                self.request(Command::SetFunctionBreakpoints, json!({"breakpoints": []}));
                self.exchange(RESPONSE_TIMEOUT, |ledger| {
                    ledger.functions_answered > answered
                })
                .await;
                if self.ledger.progress.mapped {
                    self.request(Command::Evaluate, mappings::forgetting());
                    self.exchange(EVALUATION_TIMEOUT, |ledger| ledger.progress.evaluating == 0)
                        .await;
                }
            }
            self.request(Command::Disconnect, json!({"terminateDebuggee": false}));
        }
        self.exchange(RESPONSE_TIMEOUT, |ledger| ledger.progress.answered)
            .await;
    }

    /// Appends a request to the unsent bytes. It cannot follow half a message.
    fn request(&mut self, command: Command, arguments: Value) {
        if self.ledger.between_messages() && !self.ledger.closed {
            let bytes = frame(&request(SEQ, command, arguments));
            self.ledger.sent(&bytes);
            self.unsent.extend_from_slice(&bytes);
        }
    }

    /// Sends the unsent bytes and reads, until `done`, the debugger's end, or the timeout `patience`.
    async fn exchange(&mut self, patience: Duration, done: impl Fn(&ProtocolTracker) -> bool) {
        let (ledger, unsent) = (&mut self.ledger, &mut self.unsent);
        let stream = &mut self.stream;
        // Reading detects a debugger that accepts nothing more.
        let mut takes = true;
        // Both at once: a debugger that waits for its own messages to be read accepts none.
        let both = poll_fn(|cx| {
            while takes && !unsent.is_empty() {
                match Pin::new(&mut *stream).poll_write(cx, unsent) {
                    Poll::Ready(Ok(n @ 1..)) => drop(unsent.drain(..n)),
                    Poll::Ready(_) => takes = false,
                    Poll::Pending => break,
                }
            }
            let mut received = true;
            while received && !done(ledger) && !ledger.closed {
                // Thousands may detach at once, and none of them may hold memory while it waits.
                let mut room = [MaybeUninit::uninit(); READ_BYTES];
                let mut bytes = ReadBuf::uninit(&mut room);
                match Pin::new(&mut *stream).poll_read(cx, &mut bytes) {
                    Poll::Ready(Ok(())) if !bytes.filled().is_empty() => {
                        ledger.received(bytes.filled());
                    }
                    Poll::Ready(_) => ledger.closed = true,
                    Poll::Pending => received = false,
                }
            }
            let written = unsent.is_empty() || !takes;
            match received && written {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        if timeout(patience, both).await.is_err() {
            debug!(?patience, "a worker's debugger does not answer the detach");
        }
        self.note();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::any::Any;
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, advance};
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::debugger::{Direct, Stream, Worker};
    use ray_relay_base::wire::dap::conversation::Conversation;

    /// Records whether the worker is free.
    #[derive(Debug, Clone, Default)]
    struct Spy(Arc<AtomicBool>);

    impl Tenant for Spy {
        fn let_run(&self) {}

        fn settling(&self) -> Option<Box<dyn Any + Send>> {
            Some(Box::new(()))
        }

        fn release(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }

        fn look_after(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn worker_is_free_after_the_debugger_has_answered_disconnect() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let mut debugger = Conversation::new(far.unwrap().0, 1 << 20);
        let (spy, tasks) = (Spy::default(), TaskTracker::new());
        let stream = Stream::Direct(Direct::new(near.unwrap()));
        let tenant = Box::new(spy.clone());
        drop(Worker::resumed(stream, Some(tenant), tasks.clone()));
        let mut commands = Vec::new();
        while commands.last().is_none_or(|last| last != "disconnect") {
            let next = timeout(2 * RESPONSE_TIMEOUT, debugger.read()).await;
            let request = next.expect("in time").unwrap();
            let command = request["command"].as_str().unwrap().to_owned();
            assert!(!spy.0.load(Ordering::SeqCst), "free before {command}");
            if command == "disconnect" {
                assert_eq!(request["arguments"]["terminateDebuggee"], false);
            }
            let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"], "command": command,
                "success": true, "body": {"result": "None"}});
            debugger.send(&answer).await.unwrap();
            commands.push(command);
        }
        // Function breakpoints and path mappings are cleared first.
        assert_eq!(
            commands,
            ["setFunctionBreakpoints", "evaluate", "disconnect"]
        );
        drop(debugger);
        tasks.close();
        timeout(2 * RESPONSE_TIMEOUT, tasks.wait()).await.unwrap();
        assert!(spy.0.load(Ordering::SeqCst));
    }

    /// debugpy's adapter exits if its client has disconnected when an expression ends.
    #[tokio::test]
    async fn detach_interrupts_a_running_expression_and_waits_for_its_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let mut debugger = Conversation::new(far.unwrap().0, 1 << 20);
        let stream = Stream::Direct(Direct::new(near.unwrap()));
        let mut worker = Worker::resumed(stream, None, TaskTracker::new());
        let arguments = json!({"expression": "while True: pass"});
        let expression = frame(&request(9, Command::Evaluate, arguments));
        worker.write_all(&expression).await.unwrap();
        drop(worker);
        let mut requests = Vec::new();
        for _ in 0..2 {
            let next = timeout(2 * RESPONSE_TIMEOUT, debugger.read()).await;
            requests.push(next.expect("in time").unwrap());
            assert_eq!(requests.last().unwrap()["command"], "evaluate");
        }
        let premature = timeout(Duration::from_millis(200), debugger.read()).await;
        assert!(premature.is_err(), "{premature:?}");
        for requests in requests {
            let answer = json!({"seq": 1, "type": "response", "request_seq": requests["seq"], "command": "evaluate",
                "success": true, "body": {"result": "None"}});
            debugger.send(&answer).await.unwrap();
        }
        let next = timeout(2 * RESPONSE_TIMEOUT, debugger.read())
            .await
            .unwrap();
        assert_eq!(next.unwrap()["command"], "setFunctionBreakpoints");
    }

    #[tokio::test(start_paused = true)]
    async fn settling_waits_for_a_machine_that_was_paused() {
        const STOP_TIMEOUT: Duration = Duration::from_secs(5);
        let started = Instant::now();
        let pause = tokio::spawn(settled());
        tokio::task::yield_now().await;
        advance(STOP_TIMEOUT).await;
        pause.await.unwrap();
        assert!(started.elapsed() >= STOP_TIMEOUT + SETTLE_PERIOD / 2);
    }
}
