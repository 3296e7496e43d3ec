//! What a client has said when it is known what it wants, and the answer where it gets nothing.

use serde_json::Value;
use tracing::debug;

use super::attach::RelayEndpoint;
use super::client::DebugClient;
use super::refusal::close_with;
use crate::context::Context;
use crate::session::Session;
use crate::session::refusal::SessionRefusal;
use crate::telemetry::metrics::Outcome;
use crate::wire::dap::conversation::Conversation;
use crate::wire::dap::message::{RefusalCode, Request};
use crate::wire::peer_stream::PeerStream;

/// The `initialize` message of a client.
pub(super) struct Initialize {
    /// Its `seq`.
    pub(super) seq: Value,
    /// The whole. As text: as a value it can be twenty times as large, and `attach` may be a long time coming.
    pub(super) body: String,
}

/// What a client has said when it is known what it wants.
pub(super) struct ClientOpening {
    pub(super) client: DebugClient,
    pub(super) initialize: Initialize,
    /// The `attach` request, without the credential.
    pub(super) attach: Request,
    pub(super) dialled: RelayEndpoint,
}

/// Refuses `request`, and says why.
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
    close_with(client, &answer).await;
    Outcome::Refused
}
