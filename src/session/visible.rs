//! The list of breakpoints as one principal may know of it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::identity::Principal;
use crate::policy::Scope;
use crate::ray::registry::{Breakpoint, Snapshot};

/// What lets somebody know that a breakpoint exists.
const SEEING: [Scope; 3] = [Scope::List, Scope::View, Scope::Terminal];

/// Of `snapshot`, what `principal` may see. What narrows its rights may become known only after a breakpoint has
/// appeared, so it has to be asked of each snapshot anew.
pub fn visible(principal: &Principal, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    reduced(principal, &SEEING, snapshot)
}

/// Of `snapshot`, what `principal` may do `scope` with.
pub fn within(principal: &Principal, scope: Scope, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    reduced(principal, &[scope], snapshot)
}

/// Whether `principal` has `breakpoint` in the lists and events of HTTP.
pub fn may_list(principal: &Principal, breakpoint: &Breakpoint) -> bool {
    allowed(principal, &[Scope::List], breakpoint)
}

/// Whether `principal` may know that there is a `breakpoint`.
pub fn sees(principal: &Principal, breakpoint: &Breakpoint) -> bool {
    allowed(principal, &SEEING, breakpoint)
}

fn allowed(principal: &Principal, scopes: &[Scope], breakpoint: &Breakpoint) -> bool {
    let rights = principal.access().rights(breakpoint);
    scopes.iter().any(|scope| rights.scopes.contains(*scope))
}

fn reduced(principal: &Principal, scopes: &[Scope], snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    // An empty cluster has no breakpoint to be judged by, so it is asked for by name.
    let on = |cluster: &str| {
        let access = principal.access();
        scopes
            .iter()
            .any(|scope| access.may_somewhere_on(*scope, cluster))
    };
    let all = snapshot.clusters.iter().all(|c| on(&c.name));
    let live = filtered(&snapshot.live, |b| allowed(principal, scopes, b));
    let ended = filtered(&snapshot.ended, |b| allowed(principal, scopes, b));
    if all && matches!((&live, &ended), (Cow::Borrowed(_), Cow::Borrowed(_))) {
        return Arc::clone(snapshot);
    }
    let (live, ended) = (live.into_owned(), ended.into_owned());
    let clusters = snapshot.clusters.iter().filter(|c| on(&c.name));
    Arc::new(Snapshot {
        live,
        ended,
        clusters: clusters.cloned().collect(),
    })
}

/// A list of its own only where something is left out.
fn filtered(
    list: &[Arc<Breakpoint>],
    keep: impl Fn(&Breakpoint) -> bool,
) -> Cow<'_, [Arc<Breakpoint>]> {
    if list.iter().all(|b| keep(b)) {
        return Cow::Borrowed(list);
    }
    Cow::Owned(list.iter().filter(|b| keep(b)).cloned().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::dap::testing::{paused, snapshot};
    use crate::identity::testing;
    use crate::policy::{BreakpointSelector, Pattern, Rule};
    use crate::session::authorise;

    fn somebody(scopes: &str, jobs: &[&str]) -> Principal {
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

    fn of_job(name: &str, n: u8, job: Option<&str>) -> Breakpoint {
        let mut breakpoint = paused(name, n);
        breakpoint.names.job_id = job.map(str::to_owned);
        breakpoint
    }

    #[test]
    fn what_is_anothers_or_of_nobody_yet_is_not_in_the_list() {
        let mine = of_job("mine", 1, Some("01000000"));
        let list = vec![
            mine.clone(),
            of_job("theirs", 2, Some("02000000")),
            of_job("not known yet", 3, None),
        ];
        let all = Arc::new(snapshot(list));
        let seen = visible(&somebody("debug", &["01000000"]), &all);
        assert_eq!(seen.live, [Arc::new(mine)]);
        assert_eq!(seen.clusters.len(), 1);
        let none = visible(&somebody("dashboard:write,admin", &[]), &all);
        assert!(none.live.is_empty() && none.clusters.is_empty());
    }

    #[test]
    fn whoever_sees_everything_gets_the_list_itself() {
        let all = Arc::new(snapshot(vec![paused("square", 1)]));
        assert!(Arc::ptr_eq(&visible(&Principal::anonymous(), &all), &all));
        let lists = somebody("list", &[]);
        assert!(Arc::ptr_eq(&visible(&lists, &all), &all));
        assert!(within(&lists, Scope::View, &all).live.is_empty());
    }

    #[test]
    fn other_permissions_do_not_tell_that_there_is_a_breakpoint() {
        let breakpoint = Arc::new(paused("square", 1));
        let denied = |scopes| authorise(&somebody(scopes, &[]), &breakpoint, Scope::View);
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
