//! Attaching to a worker for no other purpose than to leave it, which lets a task that waits run on.

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

/// The deadline from the connection to the debugger's last answer.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(15);

/// What the relay calls itself, towards the debugger and as the holder of the breakpoint.
pub const CLIENT: &str = "ray-relay release";

/// Why a task was not let run: its debugger did not do as it was told.
#[derive(Debug, thiserror::Error)]
#[error("its debugger does not let it go: {0}")]
pub struct NotLetRun(String);

/// How long the first of the threads that wait may take to come to its stop once it is let in, on a busy machine too.
const STANDS: Duration = Duration::from_secs(5);
/// The same of each one behind it. debugpy stops all threads with the first, and need not say so of each.
const STANDS_TOO: Duration = Duration::from_millis(300);

/// Attaches to the debugger that `connected` leads to, waits until the `threads` that wait there stand at their stops, and
/// leaves it: every one of them runs on. A debugger that does not answer is left to [`super::goodbye`].
///
/// A thread that were let in and not awaited would run with a debugger attached, and past its next breakpoint where it
/// comes to that before the goodbye: Ray waits for no client then, and pydevd stops in no helper of Ray's with `justMyCode`
/// (debugpy 1.8.22: five of eight stops of a task that has one each millisecond). One that stands comes to its next
/// breakpoint when the debugger has noted the goodbye, and waits.
///
/// # Errors
/// [`NotLetRun`]; the whole takes at most 15 s.
pub async fn let_run(connected: Conversation<Worker>, threads: u32) -> Result<(), NotLetRun> {
    visit(connected, Visit::Threads(threads)).await
}

/// The same without configuring: a thread that stands at a stop runs on, and one that waits for a debugger waits on.
///
/// # Errors
/// As [`let_run`].
pub async fn touch(connected: Conversation<Worker>) -> Result<(), NotLetRun> {
    visit(connected, Visit::Touch).await
}

/// Has the subprocess `process` of the worker whose debugger `connected` leads to run: it waits for a client until one has
/// configured. One that has ended is none.
///
/// # Errors
/// As [`let_run`].
pub async fn let_subprocess_run(
    connected: Conversation<Worker>,
    process: u32,
) -> Result<(), NotLetRun> {
    visit(connected, Visit::Subprocess(process)).await
}

/// What is done there.
#[derive(Clone, Copy)]
enum Visit {
    /// So many threads that wait are let in and run on.
    Threads(u32),
    /// Nothing: what stands runs on.
    Touch,
    /// A subprocess that waits is let in.
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
    /// Stops that it has told of.
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
                // There is none of that number.
                Some(Event::Terminated) => return Ok(()),
                _ => {}
            }
            refused(&message, 2)?;
        }
        if let Visit::Subprocess(_) = visit {
            self.ask(4, Command::ConfigurationDone, Value::Null).await?;
        }
        if let Visit::Threads(threads) = visit {
            // Without it a thread at a post-mortem stop would not stand, but fail at once.
            let uncaught = json!({"filters": ["uncaught"]});
            self.ask(3, Command::SetExceptionBreakpoints, uncaught)
                .await?;
            self.ask(4, Command::ConfigurationDone, Value::Null).await?;
            self.stand(threads).await?;
            if self.stops == 0 {
                self.moves().await?;
            }
        }
        self.ask(5, Command::Disconnect, json!({"terminateDebuggee": false}))
            .await
    }

    /// Waits until so many threads stand, as far as is told of each.
    async fn stand(&mut self, threads: u32) -> Result<(), String> {
        while self.stops < threads.max(1) {
            let patience = match self.stops {
                0 => STANDS,
                _ => STANDS_TOO,
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

    /// Makes sure that no thread is kept from running on by what it does for a debugger.
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
        match timeout(STANDS, answer).await {
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
    let said = message.message.as_deref().unwrap_or_default();
    Err(match said.contains("already being debugged") {
        true => "a client that bypasses this relay debugs it".to_owned(),
        false => shortened(said, 200),
    })
}

// The words of `Closed` are about clients.
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
