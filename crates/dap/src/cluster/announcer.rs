//! Which worker the client of a cluster session is told of, and when.
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

/// Children at once: each is a session in a person's window.
pub(super) const MAX_CHILDREN: usize = 32;

/// How long after one child the next is announced, to a client that shows only one of those that stop at once.
pub(super) const APART: Duration = Duration::from_millis(500);

/// How long a group waits for the ranks of its processes before its sessions open under pids.
const RANKS_TIMEOUT: Duration = Duration::from_secs(4);

/// Those that run the same in one job.
type GroupKey = (Arc<str>, Option<String>, Option<String>);

fn group_of(breakpoint: &Breakpoint) -> GroupKey {
    let names = &breakpoint.names;
    let cluster = Arc::clone(&breakpoint.cluster);
    (cluster, names.job_id.clone(), names.group.clone())
}

/// Decides which workers the client is told of.
pub(crate) struct Announcer {
    attach: Request,
    dialled: RelayEndpoint,
    children: ChildSessions,
    selector: AttachSelector,
    /// Name of the family, which the sessions that it announces present to belong to it.
    pub(super) family: String,
    /// The stop of each worker that was announced last.
    announced: HashMap<BreakpointId, u64>,
    seq: u64,
    /// How long after one child the next is announced, and when that was.
    apart: Duration,
    last: Option<Timestamp>,
    /// How many wait beyond [`MAX_CHILDREN`], as last told.
    held_back: usize,
    trouble: Option<String>,
    /// Whose processes were asked for their ranks, at which stop and when; whether that is over.
    ranked: HashMap<BreakpointId, (u64, Timestamp, bool)>,
    /// Those that are to be asked, since last looked at.
    pub(super) unranked: Vec<Arc<Breakpoint>>,
    /// Jobs of announced workers that are gone, since last asked.
    pub(super) jobs: Vec<JobName>,
}

impl Announcer {
    /// An announcer for the lead of a family; what sessions of it hold since before a restart is not announced again.
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

    /// The same; with `apart` for a client that shows only one of the children that stop at once.
    pub(crate) fn spaced(mut self, apart: bool) -> Self {
        if apart {
            self.apart = APART;
        }
        self
    }

    /// The good answer to the client's `attach`.
    pub(super) fn attached(&self) -> Value {
        self.attach.success(Value::Null)
    }

    /// Workers that the client was told of, and that stand where they did.
    pub(super) fn announced(&self) -> usize {
        self.announced.len()
    }

    /// Announces once more whatever no session of `parent` holds.
    pub(super) fn again(&mut self, parent: &GroupRoot) {
        self.announced = parent.stops().into_iter().collect();
    }

    /// What to send now, and when to look again even if nothing changes.
    /// `ticket` is what a child presents.
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
            if let (State::Died { .. }, Some(job), true) =
                (&gone.state, &gone.names.job_id, announced)
            {
                self.jobs.push((gone.cluster.clone(), job.clone()));
            }
        }
        self.announced.retain(|id, stop| live.get(id) == Some(stop));
        self.ranked
            .retain(|id, (stop, ..)| live.get(id) == Some(stop));
        let mut waiting: Vec<_> = snapshot
            .paused()
            .filter(|one| fits(&self.selector, one) && !self.announced.contains_key(&one.id))
            .collect();
        // A client shows sessions in the order in which it opens them.
        waiting.sort_by_cached_key(|one| {
            let names = &one.names;
            let group = (names.job_id.clone(), names.group.clone());
            (group, names.rank.is_none(), names.rank, one.pid)
        });
        let (unsettled, left) = self.ask_ranks(&snapshot.live, &waiting, now);
        let (mut again, mut held_back) = (left, 0);
        for breakpoint in waiting {
            if unsettled.contains(&group_of(breakpoint)) {
                continue;
            }
            let age = breakpoint.first_seen.until(now);
            if !breakpoint.is_named() && age < NAME_TIMEOUT {
                let left = NAME_TIMEOUT - age;
                again = Some(again.map_or(left, |sooner| sooner.min(left)));
            } else if self.announced.len() >= MAX_CHILDREN {
                held_back += 1;
            } else if let Some(left) = self.too_soon(now) {
                again = Some(again.map_or(left, |sooner| sooner.min(left)));
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

    /// Has the processes of `waiting` be asked for their ranks that are of many and do not say them by Ray. The groups of those
    /// that have not answered, and when that is over at the latest.
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
            // The first of many is alone for a moment.
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
        // While it is asked, a task is held, and not among those that wait.
        for one in live {
            let Some((_, since, false)) = self.ranked.get(&one.id) else {
                continue;
            };
            let left = RANKS_TIMEOUT.saturating_sub(since.until(now));
            if !left.is_zero() {
                unsettled.insert(group_of(one));
                last = Some(last.map_or(left, |other| other.min(left)));
            }
        }
        (unsettled, last)
    }

    /// The process at `stop` was asked for its rank.
    pub(super) fn was_asked(&mut self, stop: Stop) {
        if let Some((at, _, settled)) = self.ranked.get_mut(&stop.0) {
            *settled |= *at == stop.1;
        }
    }

    /// Whether it announces the jobs of its principal alone.
    pub(super) fn mine(&self) -> bool {
        self.selector.mine
    }

    /// Another session has `id`: it is announced once it is free.
    pub(super) fn taken(&mut self, id: BreakpointId) {
        self.announced.remove(&id);
    }

    /// Has the children to come take `folder` for the job's files.
    pub(super) fn map_to(&mut self, folder: &str) {
        source_folder::put_into(&mut self.attach.arguments, folder);
    }

    /// How long the next child has to wait, where it has to.
    fn too_soon(&self, now: Timestamp) -> Option<Duration> {
        let left = self.apart.checked_sub(self.last?.until(now))?;
        (!left.is_zero()).then_some(left)
    }

    /// How many more sessions there is room for.
    pub(super) fn room(&self) -> usize {
        MAX_CHILDREN.saturating_sub(self.announced.len())
    }

    /// Has the client open a session with `opened`, whose task runs and is to stop; `None`: there is no room for it.
    pub(super) fn stopping(
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
