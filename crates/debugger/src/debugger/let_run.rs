//! Attaching to a worker only to detach, which resumes a waiting task.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::debug;

use super::Worker;
use crate::pdb::{SnapshotLimits, busy, snapshot_expression};
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::{Incoming, request};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::text::shortened;

/// The deadline from the connection to the debugger's last response.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(15);

/// The client name of the relay, for the debugger and as the holder of the breakpoint.
pub const CLIENT: &str = "ray-relay release";

/// A task was not resumed, because its debugger did not cooperate.
#[derive(Debug, thiserror::Error)]
#[error("its debugger does not let it go: {0}")]
pub struct NotLetRun(String);

/// How long the first waiting thread may take to reach its stop after `configurationDone`, on a busy machine too.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for each further thread. debugpy stops all threads with the first, and need not report each.
const FURTHER_STOP_TIMEOUT: Duration = Duration::from_millis(300);

/// Attaches to the debugger behind `connected`, waits until its `threads` waiting threads have reached their stops,
/// and detaches: all of them resume. A debugger that does not answer is left to [`super::detach`].
///
/// A thread that is released without waiting for its stop would run with a debugger attached. If it reaches its next
/// breakpoint before the detach, it runs past it: Ray waits for no client then, and pydevd does not stop in Ray's
/// helpers with `justMyCode` (debugpy 1.8.22: five of eight stops of a task with one each millisecond). A paused
/// thread reaches its next breakpoint after the debugger has processed the detach, and waits.
///
/// # Errors
/// [`NotLetRun`]; the whole takes at most 15 s.
pub async fn let_run(connected: Conversation<Worker>, threads: u32) -> Result<(), NotLetRun> {
    visit(connected, Visit::Threads(threads)).await
}

/// The same without configuring: a thread paused at a stop resumes, and one that waits for a debugger keeps waiting.
///
/// # Errors
/// As [`let_run`].
pub async fn touch(connected: Conversation<Worker>) -> Result<(), NotLetRun> {
    visit(connected, Visit::Touch).await
}

/// Resumes the subprocess `process` of the worker behind `connected`, which waits until a client has configured. One
/// that has ended counts as resumed.
///
/// # Errors
/// As [`let_run`].
pub async fn let_subprocess_run(
    connected: Conversation<Worker>,
    process: u32,
) -> Result<(), NotLetRun> {
    visit(connected, Visit::Subprocess(process)).await
}

/// The action of a visit.
#[derive(Clone, Copy)]
enum Visit {
    /// This many waiting threads are released and resume.
    Threads(u32),
    /// Nothing: paused threads resume.
    Touch,
    /// A waiting subprocess is released.
    Subprocess(u32),
}

async fn visit(debugger: Conversation<Worker>, visit: Visit) -> Result<(), NotLetRun> {
    let leaving = Leaving { debugger, stops: 0 };
    let done = timeout(RELEASE_TIMEOUT, leaving.all(visit)).await;
    let done = done.unwrap_or_else(|_| Err("it does not answer".to_owned()));
    done.map_err(NotLetRun)
}

struct Leaving {
    debugger: Conversation<Worker>,
    /// Number of reported stops.
    stops: u32,
}

impl Leaving {
    async fn all(mut self, visit: Visit) -> Result<(), String> {
        let client = json!({"clientID": "ray-relay", "clientName": CLIENT, "adapterID": "debugpy", "pathFormat": "path"});
        self.ask(1, Command::Initialize, client).await?;
        let mut attach = json!({
            "name": CLIENT, "request": Command::Attach, "type": "debugpy", "justMyCode": false, "subProcess": false,
            "pathMappings": mappings::none(),
        });
        if let Visit::Subprocess(process) = visit {
            attach["subProcessId"] = process.into();
        }
        self.send(2, Command::Attach, attach).await?;
        loop {
            let message = self.read().await?;
            match message.event() {
                Some(Event::Initialized) => break,
                // There is no subprocess with that number.
                Some(Event::Terminated) => return Ok(()),
                _ => {}
            }
            refused(&message, 2)?;
        }
        if let Visit::Subprocess(_) = visit {
            self.ask(4, Command::ConfigurationDone, Value::Null).await?;
        }
        if let Visit::Threads(threads) = visit {
            // Without it, a thread at a post-mortem stop would not pause, but fail at once.
            let uncaught = json!({"filters": ["uncaught"]});
            self.ask(3, Command::SetExceptionBreakpoints, uncaught)
                .await?;
            self.ask(4, Command::ConfigurationDone, Value::Null).await?;
            self.wait_for_stops(threads).await?;
            if self.stops == 0 {
                self.moves().await?;
            }
        }
        self.ask(5, Command::Disconnect, json!({"terminateDebuggee": false}))
            .await
    }

    /// Waits until this many threads are paused, as far as each is reported.
    async fn wait_for_stops(&mut self, threads: u32) -> Result<(), String> {
        while self.stops < threads.max(1) {
            let patience = match self.stops {
                0 => STOP_TIMEOUT,
                _ => FURTHER_STOP_TIMEOUT,
            };
            match timeout(patience, self.read()).await {
                Ok(read) => drop(read?),
                Err(_) => {
                    debug!(self.stops, threads, "no further thread has come to stand");
                    break;
                }
            }
        }
        Ok(())
    }

    async fn ask(&mut self, seq: i64, command: Command, arguments: Value) -> Result<(), String> {
        self.send(seq, command, arguments).await?;
        loop {
            let message = self.read().await?;
            refused(&message, seq)?;
            if message.answers(seq) {
                return Ok(());
            }
        }
    }

    /// Checks that the thread is free to resume, and not busy with something for a debugger.
    async fn moves(&mut self) -> Result<(), String> {
        let limits = SnapshotLimits {
            locals: false,
            ..SnapshotLimits::default()
        };
        let arguments = json!({"expression": snapshot_expression(&limits), "context": "clipboard"});
        self.send(6, Command::Evaluate, arguments).await?;
        let answer = async {
            loop {
                let message = self.read().await?;
                refused(&message, 6)?;
                if message.answers(6) {
                    return Ok(busy(&message.result()));
                }
            }
        };
        match timeout(STOP_TIMEOUT, answer).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(does))) => {
                let does = shortened(&does, 200);
                Err(format!("its thread is in {does}, and has not resumed"))
            }
            Ok(Err(why)) => Err(why),
            Err(_) => Err("it does not answer; native code may hold the GIL".to_owned()),
        }
    }

    async fn send(&mut self, seq: i64, command: Command, arguments: Value) -> Result<(), String> {
        let request = request(seq, command, arguments);
        self.debugger.send(&request).await.map_err(broken)
    }

    async fn read(&mut self) -> Result<Incoming, String> {
        let message = Incoming::read(self.debugger.read().await.map_err(broken)?);
        if message.event() == Some(Event::Stopped) {
            self.stops = self.stops.saturating_add(1);
        }
        Ok(message)
    }
}

fn refused(message: &Incoming, seq: i64) -> Result<(), String> {
    if !message.answers(seq) || message.success {
        return Ok(());
    }
    let reason = message.message.as_deref().unwrap_or_default();
    Err(match reason.contains("already being debugged") {
        true => "a client that bypasses this relay debugs it".to_owned(),
        false => shortened(reason, 200),
    })
}

// The messages of `Closed` are about clients.
#[allow(clippy::needless_pass_by_value)]
fn broken(closed: Closed) -> String {
    match closed {
        Closed::ByPeer => "it closed the connection".to_owned(),
        Closed::Broken(error) => match error.kind() {
            io::ErrorKind::ConnectionReset => "it closed the connection".to_owned(),
            kind => format!("the connection broke: {kind}"),
        },
        Closed::Malformed(why) => why.to_string(),
    }
}
