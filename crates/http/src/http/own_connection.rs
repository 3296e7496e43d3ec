//! An in-process connection to the relay's own listener, for requests that run as ordinary sessions: `park` and
//! `snapshot`.

use hyper::StatusCode;
use tokio::io::DuplexStream;

use super::exchange::Exchange;
use ray_relay_access::identity::Principal;
use ray_relay_debugger::pdb::PromptError;

/// Opens a connection as `principal`, with the peer address of `exchange`. `None`: the relay is shutting down.
pub(super) async fn dial(exchange: &Exchange<'_>, principal: &Principal) -> Option<DuplexStream> {
    let links = &exchange.ctx.peers.links;
    links.dial(principal, exchange.connection.peer).await
}

/// HTTP status for the failure of such a session.
pub(super) fn status(why: &PromptError) -> StatusCode {
    match why {
        PromptError::NotFound(_) | PromptError::TaskEnded => StatusCode::NOT_FOUND,
        PromptError::Unreachable(_) => StatusCode::BAD_GATEWAY,
        PromptError::Lost(_) => StatusCode::SERVICE_UNAVAILABLE,
        PromptError::Refused(_) | PromptError::NoStop | PromptError::Late(_) => {
            StatusCode::CONFLICT
        }
    }
}
