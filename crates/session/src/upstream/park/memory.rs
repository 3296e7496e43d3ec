//! State of a session that survives its client.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::Value;

use super::terms::Stay;
use crate::session::Permit;
use crate::session::live::Live;
use crate::upstream::{credential, owner};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Rights;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::{Hex, ParkTerms};
use ray_relay_ray::ray::registry::{Breakpoint, EnteredBreakpoint};

/// Largest remembered capabilities of a debugger: debugpy's have some 1,500 bytes.
const MAX_CAPABILITIES_BYTES: usize = 16 * 1024;

/// State that a session retains in case its client is lost.
pub struct ResumeState {
    /// How long it is parked then.
    pub stay: Stay,
    /// The debugger's answer to `initialize`; empty if it was too long.
    pub capabilities: Arc<str>,
    /// Fingerprint of its `attach`, to detect a different one.
    pub attach: u64,
    /// Identifies the cluster session that opened it, if any.
    pub cluster_session: Option<Hex<8>>,
}

impl ResumeState {
    /// For a debugger with these `capabilities` that received an `attach` with this fingerprint.
    pub fn new(stay: Stay, capabilities: &Value, attach: u64) -> Self {
        let capabilities = capabilities.to_string();
        let short = capabilities.len() <= MAX_CAPABILITIES_BYTES;
        Self {
            stay,
            capabilities: shared(if short { &capabilities } else { "" }),
            attach,
            cluster_session: None,
        }
    }

    /// For a prompt of the legacy debugger, which has no other state; or for a client that is still to attach.
    pub fn of_prompt(stay: Stay) -> Self {
        Self {
            stay,
            capabilities: Arc::default(),
            attach: 0,
            cluster_session: None,
        }
    }

    /// For a session that was parked by `keep`.
    pub fn of(keep: &ParkTerms) -> Self {
        Self {
            stay: Duration::from_millis(keep.keeps_ms).into(),
            capabilities: (&*keep.capabilities).into(),
            attach: keep.attach,
            cluster_session: keep.cluster_session,
        }
    }

    /// Marks it as a session of the family of this name.
    pub fn in_family(self, name: Option<&str>) -> Self {
        // Hashed: the name itself admits sessions to the family, and must stay secret.
        let id = |name: &str| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            Hex(hasher.finish().to_be_bytes())
        };
        Self {
            cluster_session: name.map(id),
            ..self
        }
    }

    /// Park terms for another process that keeps the worker of `live`; exactly for the `remaining` time if it is parked
    /// already. `None`: it cannot be kept.
    pub fn keep(&self, live: &Live<'_>, remaining: Option<Duration>) -> Option<Box<ParkTerms>> {
        self.keep_for(live.worker.principal(), live, remaining)
    }

    /// The same for `owner`, who has the parent task of this subprocess.
    pub(super) fn keep_for(
        &self,
        owner: &Principal,
        live: &Live<'_>,
        remaining: Option<Duration>,
    ) -> Option<Box<ParkTerms>> {
        let worker = &live.worker;
        let lasted = live.began.elapsed();
        self.terms(
            owner,
            worker.rights(),
            worker.breakpoint(),
            lasted,
            remaining,
        )
    }

    /// The same for a session by `permit` that has not reached its worker yet.
    pub fn keep_from_now(&self, permit: &Permit) -> Option<Box<ParkTerms>> {
        let (principal, breakpoint) = (permit.principal(), permit.breakpoint());
        self.terms(principal, permit.rights(), breakpoint, Duration::ZERO, None)
    }

    fn terms(
        &self,
        principal: &Principal,
        rights: &Rights,
        breakpoint: &Breakpoint,
        lasted: Duration,
        remaining: Option<Duration>,
    ) -> Option<Box<ParkTerms>> {
        let expires = principal.expires();
        let expires = expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let limit = rights.obligations.session_limit;
        let limit = limit.map(|limit| limit.saturating_sub(lasted));
        let at_most = [expires, limit, remaining].into_iter().flatten().min();
        let now = Timestamp::now();
        let at_least = self.stay.at_least.filter(|_| remaining.is_none());
        let at_least = at_least.map(|until| now.until(until));
        let credential = match principal.is_anonymous() {
            true => None,
            // A credential that cannot be identified could not be revoked.
            false => Some(credential(principal)?),
        };
        // Boxed: some holders keep it for long.
        Some(Box::new(ParkTerms {
            owner: owner(principal)?,
            credential,
            keeps_ms: milliseconds(remaining.unwrap_or(self.stay.time)),
            at_least_ms: at_least.map(milliseconds),
            at_most_ms: at_most.map(milliseconds),
            lasted_ms: milliseconds(lasted),
            capabilities: (&*self.capabilities).into(),
            attach: self.attach,
            cluster_session: self.cluster_session,
            entered: EnteredBreakpoint::to_text(breakpoint),
        }))
    }
}

/// Interns `capabilities`, which most sessions share: their debuggers are of one version.
fn shared(capabilities: &str) -> Arc<str> {
    static LAST: Mutex<Option<Arc<str>>> = Mutex::new(None);
    let mut last = LAST.lock();
    let same = last.take().filter(|last| **last == *capabilities);
    Arc::clone(last.insert(same.unwrap_or_else(|| capabilities.into())))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
