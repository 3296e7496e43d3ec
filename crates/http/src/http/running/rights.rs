//! The rights of a principal on running tasks.

use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::Running;

/// Whether `principal` has `scope` on `running`.
pub(in crate::http) fn may(principal: &Principal, scope: Scope, running: &Running) -> bool {
    let rights = principal.access().rights_on_running(running);
    rights.scopes.contains(scope)
}

/// Whether `principal` may know that `running` exists.
pub(in crate::http) fn may_know(principal: &Principal, running: &Running) -> bool {
    may(principal, Scope::List, running) || may(principal, Scope::View, running)
}
