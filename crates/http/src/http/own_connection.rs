//! A connection of the process's own to its listener, for what is done by a session like every other: `park` and `snapshot`.

use hyper::StatusCode;
use tokio::io::DuplexStream;

use super::exchange::Exchange;
use ray_relay_access::identity::Principal;
use ray_relay_debugger::pdb::PromptError;

/// A connection of `principal`, as if it came from where that of `exchange` does. `None`: the relay is ending.
pub(super) async fn dial(exchange: &Exchange<'_>, principal: &Principal) -> Option<DuplexStream> {
    let links = &exchange.ctx.peers.links;
    links.dial(principal, exchange.connection.peer).await
}

/// What such a connection has come to, as an answer.
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
