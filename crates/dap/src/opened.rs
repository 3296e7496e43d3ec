//! The messages of a client up to `attach`, and its refusal.

use serde_json::Value;
use tracing::debug;

use super::attach::RelayEndpoint;
use super::client::DebugClient;
use super::refusal::close_with;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::{Outcome, RefusalKind};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{RefusalCode, Request, show_dialog};
use ray_relay_base::wire::json::typed_at;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::context::Context;
use ray_relay_session::session::Session;
use ray_relay_session::session::refusal::SessionRefusal;

/// The `initialize` message of a client.
pub(super) struct Initialize {
    /// Its `seq`.
    pub(super) seq: Value,
    /// The whole message, as text: as a value it can be twenty times as large, and `attach` may take long to come.
    pub(super) body: String,
}

/// The messages of a client up to `attach`.
pub(super) struct ClientOpening {
    pub(super) client: DebugClient,
    pub(super) initialize: Initialize,
    /// The `attach` request, without the credential.
    pub(super) attach: Request,
    pub(super) dialled: RelayEndpoint,
}

/// Moves `answer`, the refusal of an `attach` with these `arguments` by `principal`, from a dialog to the console of
/// the cluster session that had the client open this one. `in_use` is the breakpoint, if another session holds it.
pub(super) fn in_console(
    context: &Context,
    principal: &Principal,
    arguments: &Value,
    mut answer: Value,
    in_use: Option<BreakpointId>,
) -> Value {
    let family = arguments.pointer("/rayRelay/family");
    let text = typed_at(&answer, "message");
    let is_shown = family.and_then(Value::as_str).is_some_and(|family| {
        let families = &context.sessions.families;
        families.not_opened(family, principal, text, in_use)
    });
    if is_shown {
        show_dialog(&mut answer, false);
    }
    answer
}

/// Refuses `request` with the reason.
pub(super) async fn refused<S>(
    context: &Context,
    session: &Session,
    client: Conversation<S>,
    request: &Request,
    refusal: &SessionRefusal,
) -> Outcome
where
    S: PeerStream,
{
    debug!(%refusal, "refused");
    context.metrics.refused(refusal.kind());
    let sentence = session.summary().refusal(&refusal.to_string());
    let answer = match refusal {
        SessionRefusal::Unreachable(_) => request.refusal(RefusalCode::Unreachable, &sentence),
        SessionRefusal::Nothing(_) | SessionRefusal::Ended { .. } => {
            request.refusal(RefusalCode::NotFound, &sentence)
        }
        _ => request.failure(&sentence),
    };
    let id = request.arguments.pointer("/rayRelay/breakpoint");
    let id = id.and_then(Value::as_str).and_then(|id| id.parse().ok());
    let in_use = id.filter(|_| refusal.kind() == RefusalKind::InUse);
    let answer = match session.principal() {
        Some(principal) => in_console(context, &principal, &request.arguments, answer, in_use),
        None => answer,
    };
    close_with(client, &answer).await;
    Outcome::Refused
}
