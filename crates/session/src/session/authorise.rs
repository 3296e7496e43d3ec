//! Whether a principal may do something with a breakpoint: the policy's rules, asked for one of both.

use std::sync::Arc;

use super::visible::sees;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope, Scopes};
use ray_relay_ray::ray::registry::Breakpoint;

/// A principal may do something with a breakpoint: proof of it. Made by [`authorise`], or [`left`](Self::left) by another process.
#[derive(Debug, Clone)]
pub struct Authorized {
    principal: Principal,
    breakpoint: Arc<Breakpoint>,
    /// `None`: to have it kept, and no more.
    scope: Option<Scope>,
    rights: Rights,
}

impl Authorized {
    /// Leave for `principal` to have `breakpoint` kept, which a process before this one has held for them: it is no more than
    /// that, whatever the policy says now. They are authorised anew when they go on.
    pub fn left(principal: &Principal, breakpoint: &Arc<Breakpoint>) -> Self {
        Self {
            principal: principal.clone(),
            breakpoint: breakpoint.clone(),
            scope: None,
            rights: principal.access().rights(breakpoint),
        }
    }

    /// The same for `breakpoint`, which is the same worker as it is known now: its names may have changed since.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn renewed(self, breakpoint: &Arc<Breakpoint>) -> Result<Self, Denied> {
        match self.scope {
            Some(scope) => authorise(&self.principal, breakpoint, scope),
            None => Ok(Self::left(&self.principal, breakpoint)),
        }
    }

    /// Whose leave it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The breakpoint that it is for.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.breakpoint
    }

    /// What it allows, and under which obligations.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }
}

/// It is not allowed. `Display` is a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The principal may not even know of it: to be answered like a breakpoint that does not exist.
    #[error("there is no such breakpoint")]
    Hidden,
    /// The principal sees it, but lacks a scope.
    #[error(
        "{subject} may not do that here: it needs the permission `{scope}` on {name}; {remedy}"
    )]
    Missing {
        /// The name of who lacks it.
        subject: String,
        /// What is missing.
        scope: Scope,
        /// Title of the breakpoint.
        name: String,
        /// What gives it.
        remedy: &'static str,
    },
}

/// Leave for `principal` to do `scope` with `breakpoint`.
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

/// Leave for `principal` to end the worker process of `breakpoint`,
/// where `may_end` says which scopes are enough for that.
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
