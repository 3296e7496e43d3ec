//! Filters lists of breakpoints for one principal.

use std::sync::Arc;

use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{Breakpoint, Search, Snapshot};

/// Scopes that reveal the existence of a breakpoint.
pub(super) const SEEING_SCOPES: [Scope; 3] = [Scope::List, Scope::View, Scope::Terminal];

/// The part of `snapshot` that `principal` may see. Filter each snapshot again: what narrows the rights may become
/// known only after a breakpoint has appeared.
pub fn visible(principal: &Principal, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    reduced(principal, &SEEING_SCOPES, snapshot)
}

/// The part of `snapshot` that `principal` may do `scope` with.
pub fn within(principal: &Principal, scope: Scope, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    reduced(principal, &[scope], snapshot)
}

/// Whether `principal` sees `breakpoint` in the lists and events of HTTP.
pub fn may_list(principal: &Principal, breakpoint: &Breakpoint) -> bool {
    may(principal, Scope::List, breakpoint)
}

/// Whether `principal` may do `scope` with `breakpoint`.
pub fn may(principal: &Principal, scope: Scope, breakpoint: &Breakpoint) -> bool {
    allowed(principal, &[scope], breakpoint)
}

/// Whether `principal` may know that there is a `breakpoint`.
pub fn sees(principal: &Principal, breakpoint: &Breakpoint) -> bool {
    allowed(principal, &SEEING_SCOPES, breakpoint)
}

/// The newer of a session's breakpoint and the one `listed` under its id, if that is the same stop. Names that narrow
/// rights may have become known since the session began.
pub fn newer<'a>(
    own: &'a Arc<Breakpoint>,
    listed: Option<&'a Arc<Breakpoint>>,
) -> &'a Arc<Breakpoint> {
    listed
        .filter(|listed| listed.stop == own.stop)
        .unwrap_or(own)
}

fn allowed(principal: &Principal, scopes: &[Scope], breakpoint: &Breakpoint) -> bool {
    let rights = principal.access().rights(breakpoint);
    scopes.iter().any(|scope| rights.scopes.contains(*scope))
}

fn reduced(principal: &Principal, scopes: &[Scope], snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    let access = principal.access();
    if scopes.iter().any(|scope| access.may_everywhere(*scope)) {
        return Arc::clone(snapshot);
    }
    // An empty cluster has no breakpoint to match, so it is checked by name.
    let on = |cluster: &str| {
        scopes
            .iter()
            .any(|scope| access.may_somewhere_on(*scope, cluster))
    };
    let search = snapshot.search.as_ref().map(|search| as_seen(search, on));
    let all = snapshot.clusters.iter().all(|c| on(&c.name)) && search == snapshot.search;
    let keep = |b: &Breakpoint| allowed(principal, scopes, b);
    let live = some_of(snapshot.live.iter(), keep);
    let ended = some_of(snapshot.ended.iter(), keep);
    if all && live.is_none() && ended.is_none() {
        return Arc::clone(snapshot);
    }
    let clusters = snapshot.clusters.iter().filter(|c| on(&c.name));
    Arc::new(Snapshot {
        live: live.unwrap_or_else(|| snapshot.live.clone()),
        ended: ended.unwrap_or_else(|| snapshot.ended.clone()),
        clusters: clusters.cloned().collect(),
        search,
    })
}

/// The part of `search` for a user who may see the clusters that `on` accepts.
fn as_seen(search: &Arc<Search>, on: impl Fn(&str) -> bool) -> Arc<Search> {
    let left_out = search.left_out.iter().filter(|one| on(&one.name));
    Arc::new(Search {
        scope: Arc::clone(&search.brief),
        left_out: left_out.cloned().collect(),
        ..Search::clone(search)
    })
}

/// Filters `list`, calling `keep` once for each; `None` if all remain.
fn some_of<'a, L: FromIterator<Arc<Breakpoint>>>(
    list: impl Iterator<Item = &'a Arc<Breakpoint>> + Clone,
    keep: impl Fn(&Breakpoint) -> bool,
) -> Option<L> {
    let mut rest = list.clone();
    let first_out = rest.position(|b| !keep(b))?;
    let filtered = list.take(first_out).chain(rest.filter(|b| keep(b)));
    Some(filtered.cloned().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::session::authorise;
    use ray_relay_access::identity::testing;
    use ray_relay_access::policy::{BreakpointSelector, Pattern, Rule};
    use ray_relay_ray::ray::testing::{paused, snapshot};

    fn principal_with(scopes: &str, jobs: &[&str]) -> Principal {
        let rule = Rule {
            scopes: scopes.parse().unwrap(),
            selector: BreakpointSelector {
                jobs: jobs.iter().map(|job| Pattern::new(*job)).collect(),
                ..BreakpointSelector::default()
            },
            ..Rule::default()
        };
        testing::somebody("ann", [rule], &watch::Sender::default())
    }

    fn breakpoint_of_job(name: &str, n: u8, job: Option<&str>) -> Breakpoint {
        let mut breakpoint = paused(name, n);
        breakpoint.names_mut().job_id = job.map(str::to_owned);
        breakpoint
    }

    #[test]
    fn breakpoints_of_others_and_unknown_jobs_are_hidden() {
        let own = breakpoint_of_job("mine", 1, Some("01000000"));
        let list = vec![
            own.clone(),
            breakpoint_of_job("theirs", 2, Some("02000000")),
            breakpoint_of_job("not known yet", 3, None),
        ];
        let all = Arc::new(snapshot(list));
        let visible_list = visible(&principal_with("debug", &["01000000"]), &all);
        assert!(visible_list.live.iter().eq([&Arc::new(own)]));
        assert_eq!(visible_list.clusters.len(), 1);
        let hidden_list = visible(&principal_with("dashboard:write,admin", &[]), &all);
        assert!(hidden_list.live.is_empty() && hidden_list.clusters.is_empty());
    }

    #[test]
    fn unrestricted_user_gets_the_shared_list() {
        let all = Arc::new(snapshot(vec![paused("square", 1)]));
        assert!(Arc::ptr_eq(&visible(&Principal::anonymous(), &all), &all));
        let lists = principal_with("list", &[]);
        assert!(Arc::ptr_eq(&visible(&lists, &all), &all));
        assert!(within(&lists, Scope::View, &all).live.is_empty());
    }

    #[test]
    fn list_view_or_terminal_shows_a_breakpoint() {
        let breakpoint = breakpoint_of_job("step", 1, Some("01000000"));
        for scope in Scope::ALL {
            let is_reading = ["list", "view", "debug", "terminal"].contains(&scope.word());
            let principal = principal_with(scope.word(), &[]);
            assert_eq!(sees(&principal, &breakpoint), is_reading, "{scope}");
            let principal = principal_with(scope.word(), &["02000000"]);
            assert!(!sees(&principal, &breakpoint), "{scope} on another job");
        }
    }

    #[test]
    fn breakpoint_is_hidden_without_a_reading_permission() {
        let breakpoint = Arc::new(paused("square", 1));
        let denied = |scopes| authorise(&principal_with(scopes, &[]), &breakpoint, Scope::View);
        assert_eq!(
            denied("dashboard:write,admin").unwrap_err(),
            crate::session::Denied::Hidden
        );
        assert!(
            denied("list")
                .unwrap_err()
                .to_string()
                .contains("permission `view`")
        );
    }
}
