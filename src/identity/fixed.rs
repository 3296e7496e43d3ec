//! Tokens and tickets for unit tests of what comes after authentication.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::revocation::RevocationList;
use super::{AuthError, CredentialId, Principal, Secret};
use crate::policy::{Access, Rule};
use crate::registry::{Breakpoint, BreakpointId};

/// Who has which.
pub(crate) struct Fixed {
    tokens: HashMap<String, Answer>,
    tickets: Mutex<Vec<(Principal, BreakpointId)>>,
}

/// What a token is answered with.
pub(crate) struct Answer(Result<Principal, AuthError>);

impl From<Principal> for Answer {
    fn from(principal: Principal) -> Self {
        Self(Ok(principal))
    }
}

impl From<Result<Principal, AuthError>> for Answer {
    fn from(answer: Result<Principal, AuthError>) -> Self {
        Self(answer)
    }
}

/// `subject` with a token of the id `id`, who may do what any of `rules` says until `revoked` says otherwise.
pub(crate) fn somebody(
    subject: &str,
    id: &str,
    rules: impl IntoIterator<Item = Rule>,
    revoked: &watch::Sender<Arc<RevocationList>>,
) -> Principal {
    Principal::recognised(
        subject.to_owned(),
        CredentialId::Token { id: id.to_owned() },
        None,
        Access::new(rules.into_iter().map(Arc::new).collect()),
        revoked.subscribe(),
    )
}

#[allow(clippy::unwrap_used)]
impl Fixed {
    pub(super) fn new<T: Into<String>, A: Into<Answer>>(
        table: impl IntoIterator<Item = (T, A)>,
    ) -> Self {
        let one = |(token, answer): (T, A)| (token.into(), answer.into());
        Self {
            tokens: table.into_iter().map(one).collect(),
            tickets: Mutex::default(),
        }
    }

    pub(super) fn token(&self, token: &Secret) -> Result<Principal, AuthError> {
        match self.tokens.get(token.expose()) {
            Some(Answer(answer)) => answer.clone(),
            None => Err(AuthError::Refused),
        }
    }

    pub(super) fn issue_ticket(&self, principal: &Principal, breakpoint: &Breakpoint) -> Secret {
        let mut tickets = self.tickets.lock().unwrap();
        tickets.push((principal.clone(), breakpoint.id));
        Secret::new(format!("ticket-{}", tickets.len() - 1))
    }

    pub(super) fn ticket(&self, ticket: &Secret) -> Result<(Principal, BreakpointId), AuthError> {
        let number = ticket.expose().strip_prefix("ticket-");
        let number: Option<usize> = number.and_then(|n| n.parse().ok());
        let tickets = self.tickets.lock().unwrap();
        let known = number.and_then(|n| tickets.get(n));
        known.cloned().ok_or(AuthError::Refused)
    }
}
