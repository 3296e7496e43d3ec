//! The end of a connection to a worker's debugger, in the order that debugpy survives.
//!
//! What the client or the relay has left open is finished first: the greeting is read, a running `attach` comes to its
//! `initialized`, every `evaluate` to its answer; function breakpoints, which would stop the task at the next call with
//! no client there, are cleared, and path mappings, which the next person would meet; then `disconnect`, its answer, the
//! end of the stream, and a moment for the adapter. Every step has its deadline, after which the next is taken: a debugger that does not answer is no
//! worse off.
//!
//! It runs in a task of its own that nothing cancels but the end of the process. It keeps the breakpoint taken until the
//! answer, and the next client from dialling until the end, so that none attaches to a debugger that is being left.

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
use super::line::DebuggerConnection;
use super::progress::Attach;
use super::protocol_tracker::ProtocolTracker;
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::request;
use ray_relay_base::wire::dap::names::Command;

/// The deadline of the first message of a debugger's greeting.
const GREETING: Duration = Duration::from_secs(10);
/// The deadline of the rest of it, which older debuggers leave out. The thread that accepts connections says it, and
/// ends for good where its client is gone by then (debugpy 1.8.14 and 1.8.22: within a few such connections; after the
/// whole greeting never).
const WELCOME: Duration = Duration::from_secs(3);
/// The deadline of `initialized`: debugpy itself waits 15 s for the process before it refuses an attach.
const ATTACH: Duration = Duration::from_secs(30);
/// How long an expression of a client that is gone may go on before it is interrupted.
const INTERRUPT_AFTER: Duration = Duration::from_secs(1);
/// The deadline of what is being evaluated in the task, which cannot run on before. An adapter whose client is gone
/// when it has the answer ends (debugpy 1.8.0 to 1.8.22), so it is waited for, however long a person would not.
const EVALUATED: Duration = Duration::from_secs(60);
/// The deadline of the answer to one request.
const ANSWER: Duration = Duration::from_secs(10);
/// The deadline for the adapter to close, which debugpy does once it has answered.
const CLOSE: Duration = Duration::from_millis(500);
/// The pause for what the adapter still does after its end of the connection is closed. A client that comes before its
/// session is over there ends the thread that accepts connections (debugpy 1.8.22, an idle machine: 1 in 40 that came
/// at once; the session was over within 5 ms of the close, beside three busy loops too), and the worker cannot be reached
/// any more. A client that waits for it dials at its very end, and 100 ms were too few once beside several compilers
/// (debugpy 1.8.14).
const SETTLED: Duration = Duration::from_millis(300);
/// The parts of it. A machine that stands still meanwhile, as virtual ones do, or that is busy, keeps the adapter from its
/// end as it keeps this process from the next part: however long that lasts, it counts as one.
const PARTS: u32 = 15;
/// How long Ray takes, from `configurationDone` on, to write down that a thread no longer waits, where that thread has not
/// stopped: a list from before would have the task as waiting once more.
const WRITTEN_DOWN: Duration = Duration::from_millis(100);
/// `seq` of these requests: the client with other requests under way is gone.
const SEQ: u64 = 0x7fff_5678;

/// Bytes of a debugger's that are read at once.
const READ: usize = 16 * 1024;

/// Says goodbye over `line`, gives the breakpoint back, ends the connection, and looks after the task.
///
/// The breakpoint is in the lists again when the debugger has answered. A client that takes it before the debugger is over this
/// session waits for that with dialling, which no other client is made to do.
pub(super) async fn say(line: DebuggerConnection) {
    // In boxes of their own: what looks after a task for seconds holds nothing of the connection that it had.
    if let Some(tenant) = Box::pin(end(line)).await {
        tenant.look_after().await;
    }
}

/// Resolves when a debugger whose connection was just closed is over its session.
pub async fn settled() {
    for _ in 0..PARTS {
        sleep(SETTLED / PARTS).await;
    }
}

/// Ends the connection; gives the tenant whose task is to be looked after.
async fn end(mut line: DebuggerConnection) -> Option<Box<dyn Tenant>> {
    line.finish().await;
    if let Some(since) = line.configured.filter(|_| !line.ledger.progress.stopped) {
        sleep_until(since + WRITTEN_DOWN).await;
    }
    let mut settling = None;
    if let Some(tenant) = &mut line.tenant {
        settling = tenant.settling();
        tenant.give_back();
    }
    if line.ledger.progress.attach != Attach::No {
        line.exchange(CLOSE, |_| false).await;
    }
    let DebuggerConnection {
        stream,
        ledger,
        tenant,
        ..
    } = line;
    stream.end().await;
    if ledger.progress.greeted && settling.is_some() {
        settled().await;
    }
    drop(settling);
    tenant.filter(|_| ledger.progress.configured)
}

impl DebuggerConnection {
    async fn finish(&mut self) {
        self.exchange(GREETING, |ledger| ledger.progress.greeted)
            .await;
        if self.ledger.progress.attach == Attach::No {
            return self
                .exchange(WELCOME, |ledger| ledger.progress.welcomed)
                .await;
        }
        if self.ledger.progress.attach == Attach::Sent {
            self.exchange(ATTACH, |ledger| ledger.progress.attach != Attach::Sent)
                .await;
        }
        let evaluated = |ledger: &ProtocolTracker| ledger.progress.evaluating == 0;
        self.exchange(INTERRUPT_AFTER, evaluated).await;
        if !evaluated(&self.ledger)
            && !self.ledger.progress.configured
            && let Some(tenant) = &mut self.tenant
        {
            // The hold of a snapshot ends with it, also where native code keeps the debugger from its answer.
            tenant.give_back();
        }
        if !evaluated(&self.ledger) && !self.ledger.progress.disconnect {
            self.request(Command::Evaluate, crate::pdb::interrupt());
            self.exchange(EVALUATED, evaluated).await;
        }
        self.say_held();
        if !self.ledger.progress.disconnect {
            if self.ledger.progress.attach == Attach::Initialized {
                let answered = self.ledger.functions_answered;
                self.request(Command::SetFunctionBreakpoints, json!({"breakpoints": []}));
                self.exchange(ANSWER, |ledger| ledger.functions_answered > answered)
                    .await;
                if self.ledger.progress.mapped {
                    self.request(Command::Evaluate, mappings::forgetting());
                    self.exchange(EVALUATED, |ledger| ledger.progress.evaluating == 0)
                        .await;
                }
            }
            self.request(Command::Disconnect, json!({"terminateDebuggee": false}));
        }
        self.exchange(ANSWER, |ledger| ledger.progress.answered)
            .await;
    }

    /// Puts a request behind what is still to be sent. One cannot follow on half a message.
    fn request(&mut self, command: Command, arguments: Value) {
        if self.ledger.between_messages() && !self.ledger.closed {
            let bytes = frame(&request(SEQ, command, arguments));
            self.ledger.sent(&bytes);
            self.unsent.extend_from_slice(&bytes);
        }
    }

    /// Sends what is to be sent and reads, until `done`, the debugger's end, or `patience` is over.
    async fn exchange(&mut self, patience: Duration, done: impl Fn(&ProtocolTracker) -> bool) {
        let (ledger, unsent) = (&mut self.ledger, &mut self.unsent);
        let stream = &mut self.stream;
        // A debugger that takes nothing more is noticed by reading.
        let mut takes = true;
        // Both at once: a debugger that waits for its own words to be read takes none.
        let both = poll_fn(|cx| {
            while takes && !unsent.is_empty() {
                match Pin::new(&mut *stream).poll_write(cx, unsent) {
                    Poll::Ready(Ok(n @ 1..)) => drop(unsent.drain(..n)),
                    Poll::Ready(_) => takes = false,
                    Poll::Pending => break,
                }
            }
            let mut heard = true;
            while heard && !done(ledger) && !ledger.closed {
                // Thousands may be left at once, and none of them is to hold memory while it waits.
                let mut room = [MaybeUninit::uninit(); READ];
                let mut bytes = ReadBuf::uninit(&mut room);
                match Pin::new(&mut *stream).poll_read(cx, &mut bytes) {
                    Poll::Ready(Ok(())) if !bytes.filled().is_empty() => {
                        ledger.received(bytes.filled());
                    }
                    Poll::Ready(_) => ledger.closed = true,
                    Poll::Pending => heard = false,
                }
            }
            let written = unsent.is_empty() || !takes;
            match heard && written {
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

        fn give_back(&mut self) {
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
            let next = timeout(2 * ANSWER, debugger.read()).await;
            let asked = next.expect("in time").unwrap();
            let command = asked["command"].as_str().unwrap().to_owned();
            assert!(!spy.0.load(Ordering::SeqCst), "free before {command}");
            if command == "disconnect" {
                assert_eq!(asked["arguments"]["terminateDebuggee"], false);
            }
            let answer = json!({"seq": 1, "type": "response", "request_seq": asked["seq"], "command": command,
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
        timeout(2 * ANSWER, tasks.wait()).await.unwrap();
        assert!(spy.0.load(Ordering::SeqCst));
    }

    /// debugpy's adapter exits if its client is gone when an expression ends.
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
        let mut asked = Vec::new();
        for _ in 0..2 {
            let next = timeout(2 * ANSWER, debugger.read()).await;
            asked.push(next.expect("in time").unwrap());
            assert_eq!(asked.last().unwrap()["command"], "evaluate");
        }
        let early = timeout(Duration::from_millis(200), debugger.read()).await;
        assert!(early.is_err(), "{early:?}");
        for asked in asked {
            let answer = json!({"seq": 1, "type": "response", "request_seq": asked["seq"], "command": "evaluate",
                "success": true, "body": {"result": "None"}});
            debugger.send(&answer).await.unwrap();
        }
        let next = timeout(2 * ANSWER, debugger.read()).await.unwrap();
        assert_eq!(next.unwrap()["command"], "setFunctionBreakpoints");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_stands_still_is_waited_for() {
        const STANDS: Duration = Duration::from_secs(5);
        let began = Instant::now();
        let pause = tokio::spawn(settled());
        tokio::task::yield_now().await;
        advance(STANDS).await;
        pause.await.unwrap();
        assert!(began.elapsed() >= STANDS + SETTLED / 2);
    }
}
