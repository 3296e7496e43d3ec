//! What is remembered of a session, for who goes on with it.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::session::live::Live;
use crate::upstream::{credential, owner};
use crate::wire::tunnel::messages::Keep;

/// Bytes of a debugger's capabilities that are remembered at most: debugpy's have some 1,500.
const LONGEST_CAPABILITIES: usize = 16 * 1024;

/// What a session with debugpy remembers for the case that its client is lost.
pub(crate) struct Memory {
    /// How long it is kept then.
    pub(crate) keeps: Duration,
    /// What the worker's debugger answered to `initialize`; empty where that was too long to be remembered.
    pub(crate) capabilities: Box<str>,
    /// Tells an `attach` that asks for something else.
    pub(crate) attach: u64,
}

impl Memory {
    /// Of a debugger that has answered `capabilities` and was sent an `attach` with this fingerprint.
    pub(crate) fn new(keeps: Duration, capabilities: &Value, attach: u64) -> Self {
        let capabilities = capabilities.to_string();
        let short = capabilities.len() <= LONGEST_CAPABILITIES;
        Self {
            keeps,
            capabilities: if short { capabilities } else { String::new() }.into(),
            attach,
        }
    }

    /// By what an agent keeps the worker of `live`, for `left` at most. `None`: by nothing.
    pub(crate) fn keep(&self, live: &Live<'_>, left: Option<Duration>) -> Option<Keep> {
        let principal = live.worker.principal();
        let expires = principal.expires();
        let expires = expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let lasted = live.began.elapsed();
        let limit = live.worker.rights().obligations.session_limit;
        let limit = limit.map(|limit| limit.saturating_sub(lasted));
        let at_most = [expires, limit, left].into_iter().flatten().min();
        let credential = match principal.is_anonymous() {
            true => None,
            // One that cannot be told apart from others could not be ended by its revocation.
            false => Some(credential(principal)?),
        };
        Some(Keep {
            owner: owner(principal)?,
            credential,
            keeps_ms: milliseconds(self.keeps),
            at_most_ms: at_most.map(milliseconds),
            lasted_ms: milliseconds(lasted),
            capabilities: (&*self.capabilities).into(),
            attach: self.attach,
        })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
