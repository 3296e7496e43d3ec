//! Who a client is: the first thing that is asked of an attach.
//!
//! Called by [`super::serve`] after `attach` and before anything in it is looked at; nothing is said of any breakpoint,
//! and no worker hears of the client, until this has an answer.

use tokio::time::{Instant, timeout_at};

use super::presented::Presented;
use crate::connection::ConnectionInfo;
use crate::identity::{AuthError, Authenticator, Principal};
use crate::registry::BreakpointId;

/// A client that was recognised.
#[derive(Debug)]
pub(super) struct Guest {
    /// Who.
    pub(super) principal: Principal,
    /// The only breakpoint that it may attach to: it came with a ticket.
    pub(super) only: Option<BreakpointId>,
}

/// Recognises whoever presents `presented`. What is said in the attach arguments goes before the certificate of the
/// connection, and if it is wrong nothing else is tried: a person behind a machine's certificate is meant as that person.
///
/// # Errors
/// [`AuthError`]; at `deadline` at the latest.
pub(super) async fn recognise(
    auth: &Authenticator,
    connection: &ConnectionInfo,
    presented: &Presented,
    deadline: Instant,
) -> Result<Guest, AuthError> {
    let peer = connection.peer.ip();
    let (principal, only) = match (presented, &connection.certificate) {
        (Presented::Ticket(ticket), _) => {
            let (principal, breakpoint) = auth.ticket(ticket, peer)?;
            (principal, Some(breakpoint))
        }
        (Presented::Token(token), _) => {
            let late = |_| AuthError::Unavailable("it takes too long; try again".to_owned());
            let verified = timeout_at(deadline, auth.token(token, peer)).await;
            (verified.map_err(late)??, None)
        }
        (Presented::Nothing, Some(certificate)) => (certificate.clone(), None),
        (Presented::Nothing, None) => (auth.anonymous().ok_or(AuthError::Missing)?, None),
    };
    // A certificate was looked at when the connection began.
    match principal.is_over() {
        Some(_) => Err(AuthError::Refused),
        None => Ok(Guest { principal, only }),
    }
}
