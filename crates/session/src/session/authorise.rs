//! Authorises a principal for a breakpoint by the policy's rules.

use std::sync::Arc;

use super::visible::sees;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope, Scopes};
use ray_relay_ray::ray::registry::Breakpoint;

/// Proof that a principal may do something with a breakpoint. Made by [`authorise`], or by [`to_keep`](Self::to_keep)
/// for a park of another process.
#[derive(Debug, Clone)]
pub struct Authorized {
    principal: Principal,
    breakpoint: Arc<Breakpoint>,
    /// `None`: to keep it parked, and no more.
    scope: Option<Scope>,
    rights: Rights,
}

impl Authorized {
    /// Authorises `principal` to have `breakpoint` kept parked, which an earlier process held for them. It grants no
    /// more than that, whatever the policy says now: they are authorised again when they resume.
    pub fn to_keep(principal: &Principal, breakpoint: &Arc<Breakpoint>) -> Self {
        Self {
            principal: principal.clone(),
            breakpoint: breakpoint.clone(),
            scope: None,
            rights: principal.access().rights(breakpoint),
        }
    }

    /// Checks the authorisation again for `breakpoint`, the same worker as known now: its names may have changed.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn renewed(self, breakpoint: &Arc<Breakpoint>) -> Result<Self, Denied> {
        match self.scope {
            Some(scope) => authorise(&self.principal, breakpoint, scope),
            None => Ok(Self::to_keep(&self.principal, breakpoint)),
        }
    }

    /// The authorised principal.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The breakpoint.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.breakpoint
    }

    /// Rights and obligations.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }
}

/// A denied authorisation. `Display` is a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The principal may not even see it: must be answered like a breakpoint that does not exist.
    #[error("there is no such breakpoint")]
    Hidden,
    /// The principal sees it, but lacks a scope.
    #[error(
        "{subject} may not do that here: it needs the permission `{scope}` on {name}; {remedy}"
    )]
    Missing {
        /// Name of the principal.
        subject: String,
        /// The missing scope.
        scope: Scope,
        /// Title of the breakpoint.
        name: String,
        /// How to get it.
        remedy: &'static str,
    },
}

/// Authorises `principal` to do `scope` with `breakpoint`.
///
/// # Errors
/// [`Denied`].
pub fn authorise(
    principal: &Principal,
    breakpoint: &Arc<Breakpoint>,
    scope: Scope,
) -> Result<Authorized, Denied> {
    let rights = principal.access().rights(breakpoint);
    if rights.scopes.contains(scope) {
        return Ok(Authorized {
            principal: principal.clone(),
            breakpoint: breakpoint.clone(),
            scope: Some(scope),
            rights,
        });
    }
    if !sees(principal, breakpoint) {
        return Err(Denied::Hidden);
    }
    Err(Denied::Missing {
        subject: principal.subject().to_owned(),
        scope,
        name: breakpoint.title(),
        remedy: principal.remedy(scope),
    })
}

/// Authorises `principal` to end the worker process of `breakpoint`; `may_end` decides which scopes suffice.
///
/// # Errors
/// [`Denied`].
pub fn authorise_end(
    principal: &Principal,
    breakpoint: &Arc<Breakpoint>,
    may_end: impl FnOnce(Scopes) -> bool,
) -> Result<Authorized, Denied> {
    let scopes = principal.access().rights(breakpoint).scopes;
    let by = match may_end(scopes) && !scopes.contains(Scope::Terminate) {
        true => Scope::Debug,
        false => Scope::Terminate,
    };
    authorise(principal, breakpoint, by)
}
