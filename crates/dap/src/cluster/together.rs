//! Group stop: when a task of a job stops, the job's other tasks do as well, so that the peers of a collective are
//! still there when a user inspects it.
//!
//! Only if the attach arguments (`rayRelay.group`), a rule of the policy, or the task itself
//! (`ray_relay.breakpoint(group=True)`) ask for it. The others become sessions of the same client, with the usual
//! authorisation, and resume when their sessions end. Tasks with an open session are asked to stop ([`super::rounds`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, SelectAll};
use tokio::time::Instant;

use super::jobs::JobName;
use crate::attach_selector::{AttachSelector, fits};
use ray_relay_access::identity::Principal;
use ray_relay_ray::ray::registry::{Breakpoint, Snapshot};
use ray_relay_session::session::family::Stop;

/// Jobs whose tasks are being stopped at a time; further jobs stop as without it.
const MAX_JOINING_JOBS: usize = 8;

/// A task is in neither the list nor a session for a moment in between.
const JOIN_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Progress of stopping a job's tasks.
pub(crate) enum Joined {
    /// Its debugger listens: the client must open a session that pauses it.
    Opened(Arc<Breakpoint>),
    /// A sentence for the client.
    Told(String),
}

/// Whether the others of a job stop with one of its tasks: by the attach arguments, or else by the policy.
#[derive(Clone, Copy)]
pub(crate) struct StopsTogether<'a> {
    requested: Option<bool>,
    principal: &'a Principal,
}

impl<'a> StopsTogether<'a> {
    pub(crate) fn new(selector: &AttachSelector, principal: &'a Principal) -> Self {
        Self {
            requested: selector.together,
            principal,
        }
    }

    /// Whether the attach arguments ask for it.
    pub(super) fn are_wished(&self) -> bool {
        self.requested == Some(true)
    }

    /// Whether others stop with the task at `breakpoint`.
    pub(crate) fn with(&self, breakpoint: &Breakpoint) -> bool {
        let by_rule = || {
            self.principal
                .access()
                .rights(breakpoint)
                .obligations
                .together
        };
        self.requested.unwrap_or_else(by_rule)
    }
}

/// Pauses the running tasks of a job, so many at most.
type StopOthers<'a> = Box<dyn Fn(JobName, usize) -> BoxStream<'a, Joined> + Send + Sync + 'a>;

/// Jobs that are stopped, and whose others are being stopped.
pub(crate) struct Together<'a> {
    selector: AttachSelector,
    pub(super) stops: StopsTogether<'a>,
    stop_others: StopOthers<'a>,
    /// Jobs with a paused task whose others were asked to stop, and when that was last seen.
    stand: HashMap<JobName, Instant>,
    joining: SelectAll<BoxStream<'a, Joined>>,
}

impl<'a> Together<'a> {
    pub(crate) fn new(
        selector: &AttachSelector,
        principal: &'a Principal,
        stop_others: StopOthers<'a>,
    ) -> Self {
        Self {
            selector: selector.clone(),
            stops: StopsTogether::new(selector, principal),
            stop_others,
            stand: HashMap::new(),
            joining: SelectAll::new(),
        }
    }

    /// Stops the others of each job in `list` of which a task has stopped, `room` at most. Of the stops `held` by
    /// sessions of this client, those in `asking` do so by their code.
    pub(super) fn stopped(&mut self, list: &Snapshot, held: &[Stop], asking: &[Stop], room: usize) {
        for job in self.new_jobs(list, held, asking) {
            let joining = (self.stop_others)(job, room);
            self.joining.push(joining);
        }
    }

    /// The jobs of `list` that have just got their first paused task.
    fn new_jobs(&mut self, list: &Snapshot, held: &[Stop], asking: &[Stop]) -> Vec<JobName> {
        let among = |all: &[Stop]| all.iter().copied().collect::<HashMap<_, _>>();
        let (held, asking) = (among(held), among(asking));
        let is_of = |all: &HashMap<_, _>, one: &Breakpoint| all.get(&one.id) == Some(&one.stop);
        let stands = |one: &&Arc<Breakpoint>| {
            let waits = || one.is_paused() && one.is_named() && fits(&self.selector, one);
            is_of(&asking, one) || ((is_of(&held, one) || waits()) && self.stops.with(one))
        };
        let job = |one: &Arc<Breakpoint>| JobName::of(one);
        let now: HashSet<JobName> = list.live.iter().filter(stands).filter_map(job).collect();
        let at = Instant::now();
        self.stand
            .retain(|job, seen| now.contains(job) || *seen + JOIN_GRACE_PERIOD > at);
        let room = MAX_JOINING_JOBS.saturating_sub(self.joining.len());
        let is_new = |job: &&JobName| !self.stand.contains_key(*job);
        let new: Vec<JobName> = now.iter().filter(is_new).take(room).cloned().collect();
        let known = now.into_iter().filter(|job| self.stand.contains_key(job));
        let all: Vec<JobName> = known.chain(new.iter().cloned()).collect();
        self.stand.extend(all.into_iter().map(|job| (job, at)));
        new
    }

    /// Resolves with the progress of the others; never without any. Cancel safe.
    pub(super) async fn next(&mut self) -> Joined {
        match self.joining.next().await {
            Some(joined) => joined,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::stream;
    use serde_json::json;

    use super::*;
    use crate::attach_selector::read_selector;
    use ray_relay_access::identity::testing::{authenticator, principal};
    use ray_relay_ray::ray::testing::{paused, snapshot};

    fn rank(n: u8, job: &str) -> Breakpoint {
        let mut rank = paused("step", n);
        rank.names_mut().job_id = Some(job.to_owned());
        rank
    }

    fn together_as(principal: &'static Principal, block: &serde_json::Value) -> Together<'static> {
        let selector = read_selector(&json!({ "rayRelay": block })).unwrap();
        let notices = |job: JobName, room: usize| {
            let text = Joined::Told(format!("{} {room}", job.id));
            stream::iter([text]).boxed()
        };
        Together::new(&selector, principal, Box::new(notices))
    }

    fn together(block: &serde_json::Value) -> Together<'static> {
        together_as(Box::leak(Box::new(Principal::anonymous())), block)
    }

    /// Creates the group stops of a user who attaches with `block`, under a policy with one rule for each job.
    async fn together_by_rules(
        rules: &[(&str, &str)],
        block: &serde_json::Value,
    ) -> Together<'static> {
        let rule = |(job, words): &(&str, &str)| {
            format!(
                "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\njobs = [{job:?}]\n{words}\n"
            )
        };
        let policy: String = rules.iter().map(rule).collect();
        let ann = principal(&authenticator(&policy), "ann").await;
        together_as(Box::leak(Box::new(ann)), block)
    }

    fn notices(together: &mut Together<'_>) -> Vec<String> {
        let mut notices = Vec::new();
        while let Some(Some(Joined::Told(text))) =
            futures_util::FutureExt::now_or_never(together.joining.next())
        {
            notices.push(text);
        }
        notices.sort();
        notices
    }

    #[tokio::test(start_paused = true)]
    async fn other_ranks_are_stopped_once_per_stop_of_their_job() {
        let mut together = together(&json!({"group": "job"}));
        let first = rank(1, "01000000");
        together.stopped(
            &snapshot(vec![first.clone(), rank(2, "01000000")]),
            &[],
            &[],
            31,
        );
        assert_eq!(notices(&mut together), ["01000000 31"]);
        // The next stop is in another job. The first task is about to get its session.
        together.stopped(&snapshot(vec![rank(3, "02000000")]), &[], &[], 30);
        assert_eq!(notices(&mut together), ["02000000 30"]);
        let in_session = [(first.id, first.stop)];
        let list = snapshot(vec![first.clone()]);
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(60)).await;
            together.stopped(&list, &in_session, &[], 30);
        }
        assert_eq!(notices(&mut together), [""; 0]);
        // All tasks resume, and one stops again.
        tokio::time::advance(Duration::from_secs(60)).await;
        together.stopped(&snapshot(Vec::new()), &[], &[], 30);
        together.stopped(&list, &[], &[], 30);
        assert_eq!(notices(&mut together), ["01000000 30"]);
    }

    #[tokio::test]
    async fn attach_arguments_override_the_group_rule() {
        let rules = [("01*", "group = \"job\""), ("02*", "")];
        let list = || {
            let first = rank(1, "01000000");
            snapshot(vec![first, rank(2, "02000000"), rank(3, "03000000")])
        };
        for (block, stopped) in [
            (json!({}), vec!["01000000 31"]),
            (json!({"group": "none"}), vec![]),
            (
                json!({"group": "job"}),
                vec!["01000000 31", "02000000 31", "03000000 31"],
            ),
        ] {
            let mut together = together_by_rules(&rules, &block).await;
            together.stopped(&list(), &[], &[], 31);
            assert_eq!(notices(&mut together), stopped, "{block}");
        }
        let mut together = together_by_rules(&rules[1..], &json!({})).await;
        together.stopped(&list(), &[], &[], 31);
        assert_eq!(notices(&mut together), [""; 0]);
    }

    #[tokio::test]
    async fn without_group_no_other_rank_is_stopped() {
        let mut together = together(&json!({"all": true}));
        let first = rank(1, "01000000");
        let in_session = [(first.id, first.stop)];
        let other = rank(2, "02000000");
        let list = snapshot(vec![first, other.clone()]);
        together.stopped(&list, &[], &[], 31);
        together.stopped(&list, &in_session, &[], 31);
        assert_eq!(notices(&mut together), [""; 0]);
        // A task that requests a group stop is the exception.
        let both = [in_session[0], (other.id, other.stop)];
        together.stopped(&list, &both, &in_session, 31);
        together.stopped(&list, &both, &in_session, 31);
        assert_eq!(notices(&mut together), ["01000000 31"]);
    }
}
