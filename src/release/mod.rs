//! Lets paused tasks run on without a person attaching to each: for `POST /relay/v1/release`, and as a policy.
//!
//! [`release`] goes through a [`Permit`] like every session, so what somebody debugs is left alone and whoever comes
//! meanwhile is told. [`auto`] does it to what was forgotten. [`force`] ends the worker where no debugger can let it go.

pub mod auto;
pub mod force;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::dap::conversation::{Conversation, Over};
use crate::dap::mappings;
use crate::dap::refusal::Refusal;
use crate::moment::Moment;
use crate::policy::Authorized;
use crate::registry::{Breakpoint, ClaimError, Holder, Kind, Registry};
use crate::session::Permit;
use crate::terminal::legacy::{self, NOT_EXTERNAL};
use crate::upstream::{self, ConnectError};

/// From the connection to the debugger's last answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the relay calls itself as the holder of a breakpoint.
pub const CLIENT: &str = "ray-relay release";

/// Why a task was not let go. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub enum NotReleased {
    /// Somebody debugs it, it is over, or nothing is known of it.
    #[error(transparent)]
    Unavailable(#[from] Refusal),
    /// A legacy breakpoint that only its own node reaches.
    #[error("{}", NOT_EXTERNAL)]
    Local,
    /// Its debugger was not reached.
    #[error(transparent)]
    Upstream(#[from] ConnectError),
    /// Its debugger did not do as it was told.
    #[error("its debugger does not let it go: {0}")]
    Debugger(String),
}

/// What releasing works with.
#[derive(Clone)]
pub struct Means {
    /// Breakpoints.
    pub registry: Registry,
    /// Resolved configuration.
    pub config: Arc<Config>,
    /// Own what has begun, which a client that leaves does not cut short.
    pub tasks: TaskTracker,
}

/// Lets the task at the breakpoint of `authorized` run on. `holder` has it meanwhile.
///
/// # Errors
/// [`NotReleased`]; the whole takes at most 15 s and `dap.connect_timeout`.
pub async fn release(
    means: &Means,
    authorized: Authorized,
    holder: Holder,
) -> Result<(), NotReleased> {
    let breakpoint = authorized.breakpoint().clone();
    if breakpoint.kind == Kind::Pdb && !legacy::is_within_reach(&means.config, &breakpoint) {
        return Err(NotReleased::Local);
    }
    let permit = Permit::hold(&means.registry, authorized, holder)
        .map_err(|why| unavailable(&breakpoint, why))?;
    let (dap, tasks) = (means.config.dap.clone(), means.tasks.clone());
    let done = means.tasks.spawn(async move {
        let reached = match breakpoint.kind {
            Kind::Debugpy => {
                let patience = dap.connect_timeout;
                match upstream::connect(&permit, patience, dap.max_frame, &tasks).await {
                    Ok(debugger) => let_go(debugger).await,
                    Err(why) => Err((why.into(), false)),
                }
            }
            Kind::Pdb => {
                let left = |stream| legacy::let_go(stream, BytesMut::new());
                match upstream::connect_pdb(&permit, dap.connect_timeout, &tasks, left).await {
                    Ok(stream) => {
                        // It may take its time: the task has been told.
                        let going = tasks.spawn(left(stream));
                        let _ = timeout(PATIENCE, going).await;
                        Ok(())
                    }
                    Err(why) => Err((why.into(), false)),
                }
            }
        };
        match reached {
            Ok(()) => Ok(()),
            Err((why, true)) => Err(why),
            Err((why, false)) => {
                permit.unused();
                Err(why)
            }
        }
    });
    let broke = |_| NotReleased::Debugger("the relay is ending".to_owned());
    done.await.map_err(broke)?
}

fn unavailable(breakpoint: &Breakpoint, why: ClaimError) -> Refusal {
    let now = Moment::now();
    match why {
        ClaimError::Held(holder) => Refusal::held(breakpoint, &holder, now),
        ClaimError::Ended(breakpoint) => Refusal::ended(&breakpoint, now),
        ClaimError::Unknown => Refusal::Nothing("there is no such breakpoint".to_owned()),
    }
}

/// Attaches and leaves; with the error, whether the task may run.
async fn let_go(debugger: Conversation<TcpStream>) -> Result<(), (NotReleased, bool)> {
    let mut leaving = Leaving {
        debugger,
        may_run: false,
    };
    let why = match timeout(PATIENCE, leaving.all()).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => why,
        Err(_) => "it does not answer".to_owned(),
    };
    Err((NotReleased::Debugger(why), leaving.may_run))
}

struct Leaving {
    debugger: Conversation<TcpStream>,
    may_run: bool,
}

impl Leaving {
    async fn all(&mut self) -> Result<(), String> {
        let client = json!({"clientID": "ray-relay", "clientName": CLIENT, "adapterID": "debugpy", "pathFormat": "path"});
        self.ask(1, "initialize", client).await?;
        let attach = json!({
            "name": CLIENT, "request": "attach", "type": "debugpy", "justMyCode": true, "subProcess": false,
            "pathMappings": mappings::none(),
        });
        self.send(2, "attach", attach).await?;
        loop {
            let message = self.read().await?;
            if message["event"] == "initialized" {
                break;
            }
            refused(&message, 2)?;
        }
        self.may_run = true;
        self.ask(3, "configurationDone", Value::Null).await?;
        // Every thread that waits has been let in by now; this lets all of them run.
        self.ask(4, "disconnect", json!({"terminateDebuggee": false}))
            .await
    }

    async fn ask(&mut self, seq: u64, command: &str, arguments: Value) -> Result<(), String> {
        self.send(seq, command, arguments).await?;
        loop {
            let message = self.read().await?;
            refused(&message, seq)?;
            if message["type"] == "response" && message["request_seq"] == seq {
                return Ok(());
            }
        }
    }

    async fn send(&mut self, seq: u64, command: &str, arguments: Value) -> Result<(), String> {
        let mut request = json!({"seq": seq, "type": "request", "command": command});
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        self.debugger.send(&request).await.map_err(broken)
    }

    async fn read(&mut self) -> Result<Value, String> {
        self.debugger.read().await.map_err(broken)
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
        false => crate::dap::message::clean(said, 200),
    })
}

// The words of `Over` are about clients.
#[allow(clippy::needless_pass_by_value)]
fn broken(over: Over) -> String {
    match over {
        Over::Closed => "it closed the connection".to_owned(),
        Over::Broken(error) => match error.kind() {
            io::ErrorKind::ConnectionReset => "it closed the connection".to_owned(),
            kind => format!("the connection broke: {kind}"),
        },
        Over::Malformed(why) => why.to_string(),
    }
}

#[cfg(test)]
mod tests;
