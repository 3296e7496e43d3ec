//! Cluster sessions and the child sessions that they had a client open.
//!
//! An editor forgets the sessions of an ended parent (VS Code's Call Stack view is then empty), and its user would hold
//! their tasks unseen. So a child session joins its cluster session's family by name, and ends with it. If the editor
//! restarts the parent, it says so on disconnect: the family waits for the next one. It waits as well when the parent's
//! client is lost, if sessions of lost clients are parked. If all disconnect at one moment (`leaving`), a window was
//! closed, which counts as lost.

mod asking;
mod leaving;
mod tasks;
mod telling;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use self::asking::MAX_REPORTS;
pub use self::asking::{Answer, Asked, Expression, Report, TaskPlace, Wish};
pub use self::leaving::{GroupTask, Stop};
use self::leaving::{MemberState, Members, all_disconnect};
pub use self::tasks::GroupTasks;
use ray_relay_access::identity::Principal;
use ray_relay_ray::ray::registry::BreakpointId;

/// How long a family waits for its parent after a restart: an editor reconnects within a second or two.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);

/// All cluster sessions, by the names of their families.
#[derive(Debug, Default)]
pub struct Families(Mutex<HashMap<String, SessionFamily>>);

#[derive(Debug)]
struct SessionFamily {
    founder: Initiator,
    /// Deadline for a new parent; `None` while it has one. Closed with the family.
    waits: watch::Sender<Option<Instant>>,
    members: watch::Sender<Members>,
    /// Queue of its sessions' reports to the lead's client.
    reports: mpsc::Sender<Report>,
}

/// Identifies the opener of a cluster session, to tell a restart from another client.
#[derive(Debug, Clone)]
pub struct Initiator {
    /// Its principal.
    pub principal: Principal,
    /// The client's address.
    pub peer: IpAddr,
    /// The client's name.
    pub client: String,
    /// The attach arguments, without the credential.
    pub arguments: Value,
}

impl Initiator {
    /// Without authentication, the arguments tell users apart who share a forwarded port: the editor's folder is among
    /// them.
    fn is_restart_of(&self, earlier: &Self) -> bool {
        /// The editor may count a restart as a session of its own.
        const OWN: &str = "__sessionId";
        let arguments = |of: &Self| {
            let mut arguments = of.arguments.clone();
            if let Some(keys) = arguments.as_object_mut() {
                keys.shift_remove(OWN);
            }
            arguments
        };
        self.principal.is_same(&earlier.principal)
            && self.peer == earlier.peer
            && self.client == earlier.client
            && arguments(self) == arguments(earlier)
    }
}

impl SessionFamily {
    /// Whether it waits for a parent `now`.
    fn is_waiting(&self, now: Instant) -> bool {
        self.waits.borrow().is_some_and(|until| until > now)
    }
}

impl Families {
    /// Whether a family waits for `founder` after a restart. Builds `founder` only if any family waits.
    pub fn wait_for(&self, founder: impl FnOnce() -> Initiator) -> bool {
        let known = self.lock();
        let now = Instant::now();
        known.values().any(|family| family.is_waiting(now)) && waiting(&known, &founder()).is_some()
    }

    /// Makes `founder` the lead of a family: of the one that waits for it after a restart, else of a new one.
    pub fn lead(self: &Arc<Self>, founder: Initiator) -> GroupRoot {
        let mut known = self.lock();
        let name = match waiting(&known, &founder) {
            Some(name) => name.to_owned(),
            // Unguessable, so that no client can join another's family.
            None => format!("{:032x}", rand::random::<u128>()),
        };
        let (reports, reported) = mpsc::channel(MAX_REPORTS);
        let family = known.entry(name.clone()).or_insert_with(|| SessionFamily {
            founder,
            waits: watch::Sender::new(None),
            members: watch::Sender::default(),
            reports: reports.clone(),
        });
        family.reports = reports;
        family.waits.send_replace(None);
        family.members.send_modify(|members| {
            (members.parent_disconnected, members.park) = (None, false);
        });
        GroupRoot {
            families: Arc::clone(self),
            name,
            members: family.members.subscribe(),
            reported: Some(reported),
            stay: None,
        }
    }

    /// Has `session` of `principal`, which holds `stop`, join the family `name`. `None`: it has ended, or is another
    /// user's.
    pub fn join(
        self: &Arc<Self>,
        name: &str,
        principal: &Principal,
        session: u64,
        stop: Stop,
    ) -> Option<GroupMember> {
        let known = self.lock();
        let family = open_to(&known, name, principal)?;
        let waits = family.waits.subscribe();
        family
            .members
            .send_modify(|members| _ = members.sessions.insert(session, MemberState::new(stop)));
        Some(GroupMember {
            members: family.members.subscribe(),
            families: Arc::clone(self),
            name: name.to_owned(),
            session,
            waits,
            requests: None,
            stands: false,
        })
    }

    /// Reports `text` about a session of `principal` that has not joined the family `name` to the lead's client, with
    /// the breakpoint that another session has `taken`. Returns whether the client will see it.
    pub fn not_opened(
        &self,
        name: &str,
        principal: &Principal,
        text: String,
        taken: Option<BreakpointId>,
    ) -> bool {
        let known = self.lock();
        let family = open_to(&known, name, principal);
        family.is_some_and(|family| {
            let report = Report::NotOpened { text, taken };
            family.reports.try_send(report).is_ok()
        })
    }

    /// Whether a session of `principal` could join the family `name` now.
    pub fn accepts(&self, name: &str, principal: &Principal) -> bool {
        open_to(&self.lock(), name, principal).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, SessionFamily>> {
        self.0.lock()
    }
}

fn open_to<'a>(
    known: &'a HashMap<String, SessionFamily>,
    name: &str,
    principal: &Principal,
) -> Option<&'a SessionFamily> {
    let family = known.get(name)?;
    let over = (*family.waits.borrow()).is_some_and(|until| until <= Instant::now());
    (!over && principal.is_same(&family.founder.principal)).then_some(family)
}

fn waiting<'a>(known: &'a HashMap<String, SessionFamily>, founder: &Initiator) -> Option<&'a str> {
    let now = Instant::now();
    let waits =
        |family: &SessionFamily| family.is_waiting(now) && founder.is_restart_of(&family.founder);
    let mut families = known.iter();
    families.find_map(|(name, family)| waits(family).then_some(&**name))
}

/// The lead of a family. Dropping it ends the family, unless its sessions stay.
#[derive(Debug)]
pub struct GroupRoot {
    families: Arc<Families>,
    name: String,
    members: watch::Receiver<Members>,
    reported: Option<mpsc::Receiver<Report>>,
    /// How long its sessions stay after it has ended.
    stay: Option<Duration>,
}

impl GroupRoot {
    /// Name by which its sessions join it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops held by its sessions.
    pub fn stops(&self) -> Vec<Stop> {
        let members = self.members.borrow();
        members.sessions.values().map(|one| one.stop).collect()
    }

    /// The tasks of its sessions.
    pub fn tasks(&self) -> GroupTasks {
        GroupTasks(self.members.clone())
    }

    /// Sets whether its client sees a thread for all tasks, which should have the focus.
    pub fn set_led(&self, leads: bool) {
        if let Some(family) = self.families.lock().get(&self.name) {
            let lead = |members: &mut Members| std::mem::replace(&mut members.led, leads) != leads;
            family.members.send_if_modified(lead);
        }
    }

    /// Reports of its sessions to its client; once.
    pub fn reported(&mut self) -> Option<mpsc::Receiver<Report>> {
        self.reported.take()
    }

    /// Stops of those sessions whose tasks ask the others to stop with them.
    pub fn group_stops(&self) -> Vec<Stop> {
        let members = self.members.borrow();
        let asking = members.sessions.values().filter(|one| one.asks);
        asking.map(|one| one.stop).collect()
    }

    /// Resolves when it has no session. Cancel safe.
    pub async fn childless(&mut self) {
        // The sender lives as long as the family.
        let _ = self.members.wait_for(Members::is_empty).await;
    }

    /// The editor restarts the session: the children stay for [`RESTART_TIMEOUT`].
    pub fn restart(&mut self) {
        self.stay = Some(RESTART_TIMEOUT);
    }

    /// The editor is lost, maybe with its child sessions: they stay for so long.
    pub fn client_lost(&mut self, stay: Duration) {
        self.stay = Some(stay);
        self.disconnects();
    }

    /// The editor disconnects, and the children are to be parked for so long.
    pub fn park_members(&mut self, stay: Duration) {
        self.stay = Some(stay);
        self.update(|members| members.park = true);
    }

    /// The editor disconnects, maybe with its children.
    pub fn disconnects(&mut self) {
        self.update(|members| members.parent_disconnected = Some(Instant::now()));
    }

    /// Whether all of its sessions, at least one, disconnect with it because a window is closed. Takes a second at
    /// most. Cancel safe.
    pub async fn all_disconnect(&self) -> bool {
        let may = {
            let members = self.members.borrow();
            // A restarting parent must be found at once.
            members.parent_disconnected.is_some() && !members.is_empty()
        };
        may && all_disconnect(self.members.clone()).await
    }

    fn update(&self, what: impl FnOnce(&mut Members)) {
        if let Some(family) = self.families.lock().get(&self.name) {
            family.members.send_modify(what);
        }
    }
}

impl Drop for GroupRoot {
    fn drop(&mut self) {
        let mut known = self.families.lock();
        match (known.get(&self.name), self.stay) {
            (Some(family), Some(stay)) if !family.members.borrow().is_empty() => {
                family.waits.send_replace(Some(Instant::now() + stay));
            }
            _ => _ = known.remove(&self.name),
        }
    }
}

/// A session that a cluster session had its client open.
#[derive(Debug)]
pub struct GroupMember {
    families: Arc<Families>,
    name: String,
    session: u64,
    waits: watch::Receiver<Option<Instant>>,
    members: watch::Receiver<Members>,
    /// Requests of the lead to its task, if it has one.
    requests: Option<mpsc::Receiver<Asked>>,
    /// Whether its task is paused, as last reported to the lead.
    stands: bool,
}

/// Event of a family for one of its sessions.
#[derive(Debug)]
pub enum FromFamily {
    /// Its parent has ended.
    Ended(ChildEnding),
    /// The lead has a request to its task.
    Asked(Asked),
}

/// Fate of a session whose parent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEnding {
    /// It ends, and its task resumes.
    Over,
    /// It is to be parked.
    Parked,
}

impl GroupMember {
    /// Name of its family, by which further sessions, such as those of a subprocess, join it.
    pub fn family(&self) -> &str {
        &self.name
    }

    /// The client of this session disconnects. The future resolves to whether all of the family do so at this moment
    /// because their window is closed; it takes a second at most.
    pub fn disconnects(&self) -> impl Future<Output = bool> + Send + use<> {
        if let Some(family) = self.families.lock().get(&self.name) {
            let session = self.session;
            family
                .members
                .send_modify(|members| members.leaves(session));
        }
        all_disconnect(self.members.clone())
    }

    /// Resolves when the family has ended or is to be parked, or with a request of its lead. Cancel safe.
    pub async fn next(&mut self) -> FromFamily {
        loop {
            if self.members.borrow_and_update().park {
                return FromFamily::Ended(ChildEnding::Parked);
            }
            let waits = *self.waits.borrow_and_update();
            let until = waits.unwrap_or_else(Instant::now);
            let request = async {
                match &mut self.requests {
                    Some(requests) => requests.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.waits.changed() => {
                    if changed.is_err() {
                        return FromFamily::Ended(ChildEnding::Over);
                    }
                }
                changed = self.members.changed() => {
                    if changed.is_err() {
                        return FromFamily::Ended(ChildEnding::Over);
                    }
                }
                Some(request) = request => return FromFamily::Asked(request),
                () = sleep_until(until), if waits.is_some() => return FromFamily::Ended(ChildEnding::Over),
            }
        }
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        let mut known = self.families.lock();
        let Some(family) = known.get(&self.name) else {
            return;
        };
        family
            .members
            .send_modify(|members| _ = members.sessions.remove(&self.session));
        let left_alone = family.waits.borrow().is_some() && family.members.borrow().is_empty();
        if left_alone {
            known.remove(&self.name);
        }
    }
}

#[cfg(test)]
#[path = "family/tests.rs"]
mod tests;
