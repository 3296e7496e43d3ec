//! Attaching to a worker for no other purpose than to leave it, which lets a task that waits run on.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::ConnectError;
use super::worker::Worker;
use crate::wire::dap::conversation::{Closed, Conversation};
use crate::wire::dap::mappings;
use crate::wire::dap::message::request;
use crate::wire::dap::names::{Command, Event};
use crate::wire::text::shortened;

/// The deadline from the connection to the debugger's last answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the relay calls itself, towards the debugger and as the holder of the breakpoint.
pub const CLIENT: &str = "ray-relay release";

/// Why a task was not let run.
#[derive(Debug, thiserror::Error)]
pub enum LetRunError {
    /// Its debugger was not reached.
    #[error(transparent)]
    Upstream(#[from] ConnectError),
    /// Its debugger did not do as it was told.
    #[error("its debugger does not let it go: {0}")]
    Debugger(String),
}

/// Attaches to the debugger that `connected` leads to, and leaves it: every thread that waits there runs on. A debugger
/// that does not answer is left to [`super::goodbye`].
///
/// # Errors
/// [`LetRunError::Debugger`]; the whole takes at most 15 s.
pub async fn let_run(connected: Conversation<Worker>) -> Result<(), LetRunError> {
    visit(connected, true).await
}

/// The same without configuring: a thread that stands at a stop runs on, and one that waits for a debugger waits on.
///
/// # Errors
/// As [`let_run`].
pub(super) async fn touch(connected: Conversation<Worker>) -> Result<(), LetRunError> {
    visit(connected, false).await
}

async fn visit(debugger: Conversation<Worker>, configure: bool) -> Result<(), LetRunError> {
    let done = timeout(PATIENCE, Leaving(debugger).all(configure)).await;
    let done = done.unwrap_or_else(|_| Err("it does not answer".to_owned()));
    done.map_err(LetRunError::Debugger)
}

struct Leaving(Conversation<Worker>);

impl Leaving {
    async fn all(mut self, configure: bool) -> Result<(), String> {
        let client = json!({"clientID": "ray-relay", "clientName": CLIENT, "adapterID": "debugpy", "pathFormat": "path"});
        self.ask(1, Command::Initialize, client).await?;
        let attach = json!({
            "name": CLIENT, "request": Command::Attach, "type": "debugpy", "justMyCode": true, "subProcess": false,
            "pathMappings": mappings::none(),
        });
        self.send(2, Command::Attach, attach).await?;
        loop {
            let message = self.read().await?;
            if message["event"] == Event::Initialized.as_str() {
                break;
            }
            refused(&message, 2)?;
        }
        if configure {
            self.ask(3, Command::ConfigurationDone, Value::Null).await?;
        }
        // Every thread that waits has been let in by now; this lets all of them run.
        self.ask(4, Command::Disconnect, json!({"terminateDebuggee": false}))
            .await
    }

    async fn ask(&mut self, seq: u64, command: Command, arguments: Value) -> Result<(), String> {
        self.send(seq, command, arguments).await?;
        loop {
            let message = self.read().await?;
            refused(&message, seq)?;
            if message["type"] == "response" && message["request_seq"] == seq {
                return Ok(());
            }
        }
    }

    async fn send(&mut self, seq: u64, command: Command, arguments: Value) -> Result<(), String> {
        let request = request(seq, command, arguments);
        self.0.send(&request).await.map_err(broken)
    }

    async fn read(&mut self) -> Result<Value, String> {
        self.0.read().await.map_err(broken)
    }
}

fn refused(message: &Value, seq: u64) -> Result<(), String> {
    let is_answer = message["type"] == "response" && message["request_seq"] == seq;
    if !is_answer || message["success"] == true {
        return Ok(());
    }
    let said = message["message"].as_str().unwrap_or_default();
    Err(match said.contains("already being debugged") {
        true => "somebody who reached it without this relay debugs it".to_owned(),
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
