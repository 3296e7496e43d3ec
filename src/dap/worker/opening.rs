//! The relay's own opening towards the worker's debugger: what the client said is said again.

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dap::attach::{Dialled, for_worker};
use crate::dap::conversation::Conversation;
use crate::dap::message::Request;
use crate::dap::policing::Policing;
use crate::session::{Context, Member, Permit};
use crate::upstream::{self, ConnectError};

/// What the client sent so far.
pub(in crate::dap) struct Opening {
    /// The `initialize` message, whole.
    pub(in crate::dap) initialize: Value,
    /// The `attach` request.
    pub(in crate::dap) attach: Request,
    /// `rayRelay.localRoot`.
    pub(in crate::dap) local_root: Option<String>,
    /// Address that the client dialled.
    pub(in crate::dap) dialled: Dialled,
    /// Where a cluster session had the client open it.
    pub(in crate::dap) member: Option<Member>,
}

/// Connects, and says to the worker's debugger what the client has said to the relay.
pub(super) async fn open(
    context: &Context,
    permit: &Permit,
    opening: &Opening,
    policing: &Policing,
) -> Result<Conversation<TcpStream>, ConnectError> {
    let dap = &context.config.dap;
    let mut worker = upstream::connect(
        permit,
        dap.connect_timeout,
        dap.max_handshake_frame,
        &context.shutdown.tasks,
    )
    .await?;
    let seq = opening.initialize.get("seq").cloned().unwrap_or_default();
    let replay = async {
        worker.send(&opening.initialize).await?;
        loop {
            // The client has its answer from the relay; this one, and the greeting before it, stay here.
            let message = worker.read().await?;
            if message["type"] == "response" && message["request_seq"] == seq {
                break;
            }
        }
        let arguments = for_worker(
            &opening.attach.arguments,
            permit.breakpoint(),
            opening.local_root.as_deref(),
        );
        let arguments = policing.attach_arguments(arguments);
        let attach = json!({
            "seq": opening.attach.seq, "type": "request", "command": "attach", "arguments": arguments,
        });
        worker.send(&attach).await
    };
    match timeout(dap.connect_timeout, replay).await {
        Ok(Ok(())) => Ok(worker),
        Ok(Err(over)) => Err(ConnectError::Strange(over)),
        Err(_) => Err(ConnectError::Silent(dap.connect_timeout)),
    }
}
