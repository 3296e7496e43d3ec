//! A connection of the process's own to its listener, for what is done by a session like every other: `park` and `snapshot`.

use hyper::{Response, StatusCode};
use tokio::io::{DuplexStream, duplex};
use tokio_util::either::Either;

use super::answer::{self, Body};
use super::connection::Connection;
use crate::connect::Arrived;
use crate::context::Context;
use crate::identity::Principal;
use crate::pdb::PromptError;
use crate::session::shares::{Share, Shortage};
use crate::telemetry::metrics::RefusalKind;

/// Bytes that wait in each direction.
const ROOM: usize = 16 * 1024;

/// A connection of `principal`, as if it came from where `connection` does. `None`: the relay is ending.
pub(super) async fn dial(
    ctx: &Context,
    connection: &Connection,
    principal: &Principal,
) -> Option<DuplexStream> {
    let (near, far) = duplex(ROOM);
    let arrived = Arrived {
        stream: Either::Right(far),
        principal: principal.clone(),
        peer: connection.peer,
    };
    ctx.links.deliver(arrived).await.then_some(near)
}

/// What such a connection has come to, as an answer.
pub(super) fn status(why: &PromptError) -> StatusCode {
    match why {
        PromptError::NotFound(_) => StatusCode::NOT_FOUND,
        PromptError::Unreachable(_) => StatusCode::BAD_GATEWAY,
        PromptError::Lost(_) => StatusCode::SERVICE_UNAVAILABLE,
        PromptError::Refused(_) | PromptError::NoStop => StatusCode::CONFLICT,
    }
}

/// The place of one task that is looked at or parked, or the answer where there is none.
pub(super) fn share(ctx: &Context, principal: &Principal) -> Result<Share, Box<Response<Body>>> {
    let shortage = match ctx.snapshots.take(principal) {
        Ok(share) => return Ok(share),
        Err(shortage) => shortage,
    };
    ctx.metrics.refused(RefusalKind::Limited);
    let (status, sentence) = match shortage {
        Shortage::All(most) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "{most} tasks are being looked at or parked, which is all that may be: try again"
            ),
        ),
        Shortage::Yours(most) => (
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "you are looking at {most} tasks, or parking them, which is all that one person may: try again"
            ),
        ),
    };
    Err(Box::new(answer::error(status, sentence)))
}
