//! Decides which workers the client of a cluster session is asked to attach to, and when.
//!
//! Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::jobs::JobName;
use crate::attach::{Pass, RelayEndpoint, child_configuration};
use crate::attach_selector::{AttachSelector, fits};
use crate::selection::ChildSessions;
use crate::source_folder;
use ray_relay_access::identity::Secret;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::message::{Request, event, notice, request};
use ray_relay_base::wire::dap::names::{Command, Event, Reverse};
use ray_relay_base::wire::json::put;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, List, Snapshot, State};
use ray_relay_session::session::GroupRoot;
use ray_relay_session::session::family::Stop;
pub(super) use ray_relay_session::session::permit::NAME_TIMEOUT;

/// Concurrent child sessions: each is shown in the user's window.
pub(super) const MAX_CHILDREN: usize = 32;

/// Pause between two children, for a client that shows only one of those that stop at the same moment.
pub(super) const CHILD_INTERVAL: Duration = Duration::from_millis(500);

/// How long a group waits for its processes' ranks before its sessions open under pids.
const RANKS_TIMEOUT: Duration = Duration::from_secs(4);

/// Identifies tasks that run the same code in one job.
type GroupKey = (Arc<str>, Option<String>, Option<String>);

fn group_of(breakpoint: &Breakpoint) -> GroupKey {
    let names = &breakpoint.names;
    let cluster = Arc::clone(&breakpoint.cluster);
    (cluster, names.job_id.clone(), names.group.clone())
}

/// Decides which workers are announced to the client.
pub(crate) struct Announcer {
    attach: Request,
    dialled: RelayEndpoint,
    children: ChildSessions,
    selector: AttachSelector,
    /// Name of the family, which the child sessions present.
    pub(super) family: String,
    /// Last announced stop of each worker.
    announced: HashMap<BreakpointId, u64>,
    seq: u64,
    /// Pause between two children, and the time of the last one.
    apart: Duration,
    last: Option<Timestamp>,
    /// Number beyond [`MAX_CHILDREN`] that wait, as last reported.
    held_back: usize,
    trouble: Option<String>,
    /// Processes that were asked for their ranks: the stop, the time, and whether that is finished.
    ranked: HashMap<BreakpointId, (u64, Timestamp, bool)>,
    /// Processes to be asked for their ranks, since the last drain.
    pub(super) unranked: Vec<Arc<Breakpoint>>,
    /// Jobs of announced workers that are gone, since the last drain.
    pub(super) jobs: Vec<JobName>,
}

impl Announcer {
    /// Creates the announcer for the lead of a family; what its sessions hold since before a restart is not announced
    /// again.
    pub(crate) fn new(
        attach: Request,
        dialled: RelayEndpoint,
        children: ChildSessions,
        selector: AttachSelector,
        parent: &GroupRoot,
    ) -> Self {
        let announced = parent.stops().into_iter().collect();
        let family = parent.name().to_owned();
        Self {
            attach,
            dialled,
            children,
            selector,
            family,
            announced,
            seq: 0,
            apart: Duration::ZERO,
            last: None,
            held_back: 0,
            trouble: None,
            ranked: HashMap::new(),
            unranked: Vec::new(),
            jobs: Vec::new(),
        }
    }

    /// Spaces the children with `apart`, for a client that shows only one of those that stop at the same moment.
    pub(crate) fn spaced(mut self, apart: bool) -> Self {
        if apart {
            self.apart = CHILD_INTERVAL;
        }
        self
    }

    /// The arguments of the client's `attach`, and the selector in them.
    pub(super) fn attach(&self) -> (&Value, &AttachSelector) {
        (&self.attach.arguments, &self.selector)
    }

    /// The success response to the client's `attach`.
    pub(super) fn attached(&self) -> Value {
        self.attach.success(Value::Null)
    }

    /// Number of announced workers that are still at the announced stop.
    pub(super) fn announced(&self) -> usize {
        self.announced.len()
    }

    /// Announces again whatever no session of `parent` holds.
    pub(super) fn again(&mut self, parent: &GroupRoot) {
        self.announced = parent.stops().into_iter().collect();
    }

    /// Returns the messages to send now, and when to run again even if nothing changes. `ticket` makes the ticket of a
    /// child.
    pub(super) fn announce(
        &mut self,
        snapshot: &Snapshot,
        now: Timestamp,
        ticket: impl Fn(&Breakpoint) -> Option<Secret>,
    ) -> (Vec<Value>, Option<Duration>) {
        let mut messages = Vec::new();
        let trouble = snapshot.clusters.iter().find_map(|c| c.trouble.clone());
        if trouble != self.trouble {
            let text = match &trouble {
                Some(trouble) => format!("new breakpoints are not seen at the moment: {trouble}"),
                None => "the Ray head answers again".to_owned(),
            };
            messages.push(notice(&text, trouble.is_some()));
            self.trouble = trouble;
        }
        let live: HashMap<_, _> = snapshot.live.iter().map(|b| (b.id, b.stop)).collect();
        for gone in snapshot.ended.iter() {
            let announced = self.announced.get(&gone.id) == Some(&gone.stop);
            if announced && matches!(gone.state, State::Died { .. }) {
                self.jobs.extend(JobName::of(gone));
            }
        }
        self.announced.retain(|id, stop| live.get(id) == Some(stop));
        self.ranked
            .retain(|id, (stop, ..)| live.get(id) == Some(stop));
        let mut waiting: Vec<_> = snapshot
            .paused()
            .filter(|one| fits(&self.selector, one) && !self.announced.contains_key(&one.id))
            .collect();
        // Clients show sessions in the order in which they open them.
        waiting.sort_by_cached_key(|one| {
            let names = &one.names;
            let group = (names.job_id.clone(), names.group.clone());
            (group, names.rank.is_none(), names.rank, one.pid)
        });
        let (unsettled, remaining) = self.ask_ranks(&snapshot.live, &waiting, now);
        let (mut again, mut held_back) = (remaining, 0);
        for breakpoint in waiting {
            if unsettled.contains(&group_of(breakpoint)) {
                continue;
            }
            let age = breakpoint.first_seen.until(now);
            if !breakpoint.is_named() && age < NAME_TIMEOUT {
                let remaining = NAME_TIMEOUT - age;
                again = Some(again.map_or(remaining, |sooner| sooner.min(remaining)));
            } else if self.announced.len() >= MAX_CHILDREN {
                held_back += 1;
            } else if let Some(remaining) = self.remaining_pause(now) {
                again = Some(again.map_or(remaining, |sooner| sooner.min(remaining)));
            } else {
                self.last = Some(now);
                self.announced.insert(breakpoint.id, breakpoint.stop);
                let child = self.child(breakpoint, ticket(breakpoint).as_ref(), false);
                messages.push(child);
            }
        }
        if held_back > self.held_back {
            messages.push(notice(
                &format!("{held_back} more wait; they open as sessions end (at most {MAX_CHILDREN} at once)"),
                false,
            ));
        }
        self.held_back = held_back;
        (messages, again)
    }

    /// Queues rank queries for those processes of `waiting` that belong to a group and whose rank Ray does not know.
    /// Returns the groups with pending answers, and when the wait ends at the latest.
    fn ask_ranks(
        &mut self,
        live: &List,
        waiting: &[&Arc<Breakpoint>],
        now: Timestamp,
    ) -> (HashSet<GroupKey>, Option<Duration>) {
        let mut members: HashMap<GroupKey, usize> = HashMap::new();
        for one in live {
            *members.entry(group_of(one)).or_default() += 1;
        }
        for one in waiting {
            let key = group_of(one);
            let is_of_many = key.2.is_some() && members.get(&key).is_some_and(|count| *count > 1);
            // The first task of a group is alone for a moment.
            if !(is_of_many || one.names.may_be_ranked())
                || one.names.rank_is_certain
                || !one.is_named()
            {
                continue;
            }
            self.ranked.entry(one.id).or_insert_with(|| {
                self.unranked.push(Arc::clone(one));
                (one.stop, now, false)
            });
        }
        let (mut unsettled, mut last) = (HashSet::new(), None::<Duration>);
        // While it is asked, a task is held, and not among the waiting ones.
        for one in live {
            let Some((_, since, false)) = self.ranked.get(&one.id) else {
                continue;
            };
            let remaining = RANKS_TIMEOUT.saturating_sub(since.until(now));
            if !remaining.is_zero() {
                unsettled.insert(group_of(one));
                last = Some(last.map_or(remaining, |other| other.min(remaining)));
            }
        }
        (unsettled, last)
    }

    /// Records that the process at `stop` was asked for its rank.
    pub(super) fn rank_queried(&mut self, stop: Stop) {
        if let Some((at, _, settled)) = self.ranked.get_mut(&stop.0) {
            *settled |= *at == stop.1;
        }
    }

    /// Whether it announces only the jobs of its principal.
    pub(super) fn only_mine(&self) -> bool {
        self.selector.mine
    }

    /// Another session holds `id`: announce it again once it is free.
    pub(super) fn in_use(&mut self, id: BreakpointId) {
        self.announced.remove(&id);
    }

    /// Maps the job's files to `folder` in all later children.
    pub(super) fn map_to(&mut self, folder: &str) {
        source_folder::put_into(&mut self.attach.arguments, folder);
    }

    /// Remaining pause before the next child, if any.
    fn remaining_pause(&self, now: Timestamp) -> Option<Duration> {
        let remaining = self.apart.checked_sub(self.last?.until(now))?;
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Number of further sessions allowed.
    pub(super) fn room(&self) -> usize {
        MAX_CHILDREN.saturating_sub(self.announced.len())
    }

    /// Has the client open a session with `opened`, whose running task is to be paused; `None`: the limit is reached.
    pub(super) fn child_to_pause(
        &mut self,
        opened: &Breakpoint,
        ticket: Option<&Secret>,
    ) -> Option<Value> {
        if self.room() == 0 || self.announced.contains_key(&opened.id) {
            return None;
        }
        self.announced.insert(opened.id, opened.stop);
        Some(self.child(opened, ticket, true))
    }

    fn child(&mut self, breakpoint: &Breakpoint, ticket: Option<&Secret>, pauses: bool) -> Value {
        self.seq += 1;
        let pass = Pass {
            ticket,
            family: Some(&self.family),
            pauses,
        };
        let mut configuration =
            child_configuration(&self.attach.arguments, breakpoint, &self.dialled, pass);
        if self.children == ChildSessions::StartDebugging {
            let arguments = json!({"request": Command::Attach, "configuration": configuration});
            return request(self.seq, Reverse::StartDebugging, arguments);
        }
        // Without `type` the extension ignores the event.
        if configuration.get("type").and_then(Value::as_str).is_none() {
            put(&mut configuration, "type", "debugpy");
        }
        event(Event::DebugpyAttach, configuration)
    }
}
