//! The relay's own opening towards the worker's debugger: what the client said is said again.

use serde_json::Value;
use tokio::time::timeout;

use crate::context::Context;
use crate::dap::attach::{RelayEndpoint, for_worker};
use crate::dap::client::Goodbye;
use crate::dap::message_filter::MessageFilter;
use crate::ray::registry::Breakpoint;
use crate::session::{Member, Permit};
use crate::upstream::{self, ConnectError, Worker};
use crate::wire::dap::conversation::Conversation;
use crate::wire::dap::message::{Request, request};
use crate::wire::dap::names::Command;

/// What the client sent so far.
pub(in crate::dap) struct Opening {
    /// The `initialize` message, whole.
    pub(in crate::dap) initialize: Value,
    /// The `attach` request.
    pub(in crate::dap) attach: Request,
    /// The client's own folder of the source files, `rayRelay.localRoot`.
    pub(in crate::dap) local_root: Option<String>,
    /// Address that the client dialled.
    pub(in crate::dap) dialled: RelayEndpoint,
    /// How the client will say that it leaves.
    pub(in crate::dap) goodbye: Goodbye,
    /// The cluster session that had the client open this one, where one did.
    pub(in crate::dap) member: Option<Member>,
}

impl Opening {
    /// The arguments of the `attach` that goes to the worker.
    pub(super) fn arguments(&self, breakpoint: &Breakpoint, filter: &MessageFilter) -> Value {
        let (own, root) = (&self.attach.arguments, self.local_root.as_deref());
        filter.attach_arguments(for_worker(own, breakpoint, root))
    }
}

/// Connects, and says to the worker's debugger what the client has said to the relay. Returns as well what it answered to
/// `initialize`: its capabilities.
pub(super) async fn open(
    context: &Context,
    permit: &Permit,
    opening: &Opening,
    filter: &MessageFilter,
) -> Result<(Conversation<Worker>, Value), ConnectError> {
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
        let capabilities = loop {
            // The client has its answer from the relay; this one, and the greeting before it, stay here.
            let mut message = worker.read().await?;
            if message["type"] != "response" || message["request_seq"] != seq {
                continue;
            }
            if message["success"] != true {
                return Err(ConnectError::declined(&message["message"]));
            }
            break message["body"].take();
        };
        let arguments = opening.arguments(permit.breakpoint(), filter);
        let attach = request(opening.attach.seq.clone(), Command::Attach, arguments);
        worker.send(&attach).await?;
        Ok::<_, ConnectError>(capabilities)
    };
    match timeout(dap.connect_timeout, replay).await {
        Ok(Ok(capabilities)) => Ok((worker, capabilities)),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(ConnectError::TimedOut(dap.connect_timeout)),
    }
}
