//! What sessions of other relays hold, by the word of the agents that both are linked with, or of the relays themselves
//! where they are on this machine ([`crate::takeover`]).
//!
//! An agent says with each change which workers are held through it, and by whom ([`Held`]); for its own nodes alone it is
//! believed. What it says stands in for a session: the breakpoint is claimed for it in the registry, so that it is shown,
//! refused and left alone like one that is held here. A worker that this relay did not list when it was taken, because
//! Ray no longer has it as paused, is asked for.
//!
//! A link that breaks, or whose credential has expired, leaves the agent's last word standing for [`KEPT`], or until the next
//! link of the node says another; an agent that has left, or is not to be trusted, leaves none.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Agents;
use super::end::End;
use super::table::{NodeKey, key};
use super::way::{NoWay, Way};
use crate::identity::Ended;
use crate::moment::Moment;
use crate::ray::registry::{Breakpoint, BreakpointId, Claim, Holder, RayNode, Snapshot};
use crate::wire::tunnel::messages::{FromRelay, Held, Name, Parked, Replica};

/// How long the word of an agent stands whose link broke: as long as one that is silent is taken to be there.
pub(super) const KEPT: Duration = Duration::from_secs(15);

/// How long after a worker was asked for in vain it is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Workers that are asked for at a time, and the pause between two: an agent that makes them up costs the head no more.
const ASKED_AT_ONCE: usize = 4;
const ASK_PAUSE: Duration = Duration::from_millis(50);

/// How long an agent may take to leave a worker that it keeps.
const LEFT: Duration = Duration::from_secs(10);

/// Characters of a whole worker id: of less than that several could be meant.
const WORKER_ID: usize = 56;

/// The longest pause between looks.
const LOOK: Duration = Duration::from_secs(3600);

/// What agents have said of sessions, by node. One for the relay.
pub(super) struct Elsewhere {
    words: Mutex<HashMap<NodeKey, Word>>,
    /// Which relays each link's agent is linked with.
    relays: Mutex<HashMap<u64, Vec<Replica>>>,
    /// What stands in for sessions elsewhere.
    claims: Mutex<HashMap<HoldKey, Claim>>,
    /// What other relay processes of this machine have said themselves.
    neighbours: Mutex<HashMap<Replica, Vec<Hold>>>,
    news: watch::Sender<()>,
}

/// The last word of the agent of one node.
struct Word {
    link: u64,
    node: RayNode,
    held: Arc<[Held]>,
    /// Until when it stands, where its link broke.
    until: Option<Instant>,
}

/// A worker that a session of another relay holds.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    /// The node of the worker.
    pub(crate) node: RayNode,
    /// The worker, and who holds it.
    pub(crate) held: Held,
    /// It is another relay process of this machine that says so.
    pub(crate) at_neighbour: bool,
}

/// What tells one hold from another: node, worker, port, relay and session.
type HoldKey = (NodeKey, Name, u16, Replica, Name);

/// The holds that are known.
#[derive(Default)]
struct Known {
    holds: HashMap<HoldKey, Taken>,
    asking: JoinSet<()>,
    /// When a worker may be asked for.
    ask_at: Option<Instant>,
}

#[derive(Default)]
struct Taken {
    /// By whom and where it is kept, as it is shown.
    parked: (Option<Parked>, bool),
    asked: Option<Instant>,
}

impl Hold {
    fn key(&self) -> HoldKey {
        let held = &self.held;
        (
            key(&self.node),
            held.worker_id.clone(),
            held.port,
            held.replica,
            held.session.clone(),
        )
    }

    /// Who holds it.
    pub(super) fn holder(&self) -> Holder {
        Holder {
            at_neighbour: self.at_neighbour,
            ..holder(&self.held)
        }
    }

    /// By whom it is kept, and whether that is another process of this machine.
    fn parked(&self) -> (Option<Parked>, bool) {
        (self.held.parked.clone(), self.at_neighbour)
    }

    /// The breakpoint in `list` that it is of. Where there are several, it is not known which.
    pub(super) fn find<'a>(&self, list: &'a Snapshot) -> Option<&'a Arc<Breakpoint>> {
        let is_it = |b: &&Arc<Breakpoint>| is_of(&self.node, &self.held, b);
        let mut fitting = list.live.iter().filter(is_it);
        let found = fitting.next()?;
        fitting.next().is_none().then_some(found)
    }
}

/// Whether `held`, which the agent of `node` says, is `breakpoint`.
fn is_of(node: &RayNode, held: &Held, breakpoint: &Breakpoint) -> bool {
    // Ray before 2.40 does not say on which node a legacy breakpoint is.
    let there = match breakpoint.node_id.is_empty() {
        true => breakpoint.node_ip == node.address || breakpoint.node_ip.is_loopback(),
        false => breakpoint.node_id == node.node_id,
    };
    there
        && breakpoint.kind == held.kind
        && breakpoint.port == held.port
        && *breakpoint.worker_id == *held.worker_id
        && breakpoint.cluster == node.cluster
}

/// Who `held` says that it is.
pub(super) fn holder(held: &Held) -> Holder {
    let since = Duration::from_millis(held.since_unix_ms);
    let since = SystemTime::UNIX_EPOCH.checked_add(since);
    let (name, until) = match &held.parked {
        Some(parked) => (&*parked.owner, Some(parked.until_unix_ms)),
        None => (&*held.name, None),
    };
    let until = until.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    Holder {
        session: held.session.parse().unwrap_or_default(),
        subject: (!name.is_empty()).then(|| name.to_owned()),
        client: held.client.to_string(),
        peer: held.peer,
        since: Moment::written(since.unwrap_or(SystemTime::UNIX_EPOCH)),
        replica: Some(held.replica),
        parked_until: until.map(Moment::announced),
        at_neighbour: false,
    }
}

/// Whether `held` is no session of the relay `own`: another's, or one that an agent keeps.
fn is_elsewhere(held: &Held, own: Replica) -> bool {
    held.replica != own || held.parked.is_some()
}

impl Elsewhere {
    pub(super) fn new() -> Self {
        Self {
            words: Mutex::default(),
            relays: Mutex::default(),
            claims: Mutex::default(),
            neighbours: Mutex::default(),
            news: watch::Sender::default(),
        }
    }

    /// The agent of the link `link`, which speaks for `nodes`, has said what is `held` through it.
    pub(super) fn hear(&self, link: u64, nodes: Vec<RayNode>, held: &Arc<[Held]>) {
        let mut words = self.words.lock();
        words.retain(|_, word| word.link != link);
        for node in nodes {
            let word = Word {
                link,
                held: Arc::clone(held),
                until: None,
                node,
            };
            words.insert(key(&word.node), word);
        }
        drop(words);
        self.news.send_replace(());
    }

    /// The agent of the link `link` has said which relays it is linked with.
    pub(super) fn hear_relays(&self, link: u64, replicas: Vec<Replica>) {
        self.relays.lock().insert(link, replicas);
        self.news.send_replace(());
    }

    /// The link `link` has ended at `now`.
    pub(super) fn leave(&self, link: u64, end: &End, now: Instant) {
        self.relays.lock().remove(&link);
        let stands = matches!(end, End::Broken | End::Replaced | End::Over(Ended::Expired));
        self.words.lock().retain(|_, word| {
            if word.link == link {
                word.until = Some(now + KEPT);
            }
            stands || word.link != link
        });
        self.news.send_replace(());
    }

    /// What other relays than `own` hold at `now`, and when that is to be looked at again at the latest.
    fn holds(&self, own: Replica, now: Instant) -> (Vec<Hold>, Instant) {
        let mut words = self.words.lock();
        words.retain(|_, word| word.until.is_none_or(|until| until > now));
        let next = words.values().filter_map(|word| word.until).min();
        let rows = words.values().flat_map(|word| {
            let others = word.held.iter().filter(|held| is_elsewhere(held, own));
            others.map(|held| Hold {
                node: word.node.clone(),
                held: held.clone(),
                at_neighbour: false,
            })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.extend(self.neighbours.lock().values().flatten().cloned());
        (rows, next.unwrap_or(now + LOOK))
    }

    /// The relays beside `own` that agents are linked with.
    fn others(&self, own: Replica) -> HashSet<Replica> {
        let (relays, neighbours) = (self.relays.lock(), self.neighbours.lock());
        let all = relays.values().flatten().chain(neighbours.keys()).copied();
        all.filter(|replica| *replica != own).collect()
    }
}

impl Agents {
    /// Who holds `breakpoint` through another relay.
    pub(super) fn holder_elsewhere(&self, breakpoint: &Breakpoint) -> Option<Holder> {
        let (words, now) = (self.elsewhere.words.lock(), Instant::now());
        let neighbours = self.elsewhere.neighbours.lock();
        let is_it = |hold: &&Hold| is_of(&hold.node, &hold.held, breakpoint);
        if let Some(hold) = neighbours.values().flatten().find(is_it) {
            return Some(hold.holder());
        }
        let stands = |word: &&Word| word.until.is_none_or(|until| until > now);
        let held = words.values().filter(stands).find_map(|word| {
            let here = |held: &&Held| is_of(&word.node, held, breakpoint);
            word.held
                .iter()
                .filter(|held| is_elsewhere(held, self.replica))
                .find(here)
        })?;
        Some(holder(held))
    }

    /// The relay process `replica` of this machine has said what its sessions hold.
    pub(crate) fn hear_neighbour(&self, replica: Replica, holds: Vec<Hold>) {
        self.elsewhere.neighbours.lock().insert(replica, holds);
        self.elsewhere.news.send_replace(());
    }

    /// The relay process `replica` of this machine has ended.
    pub(crate) fn lose_neighbour(&self, replica: Replica) {
        self.elsewhere.neighbours.lock().remove(&replica);
        self.elsewhere.news.send_replace(());
    }

    /// Whatever other relay processes of this machine hold, and is listed, is shown as held.
    pub(crate) fn has_claimed(&self) -> bool {
        let (list, neighbours) = (self.registry.snapshot(), self.elsewhere.neighbours.lock());
        let is_free = |hold: &Hold| hold.find(&list).is_some_and(|b| b.is_free());
        !neighbours.values().flatten().any(is_free)
    }

    /// What sessions of other relays hold now, each session once.
    pub(super) fn holds_elsewhere(&self) -> Vec<Hold> {
        let (mut holds, _) = self.elsewhere.holds(self.replica, Instant::now());
        // A node may be known by several names of its cluster.
        let session = |hold: &Hold| {
            let held = &hold.held;
            let session = held.session.parse::<u64>().unwrap_or_default();
            let worker = held.worker_id.to_string();
            (held.replica.digits(), session, worker, held.port)
        };
        holds.sort_by_cached_key(session);
        holds.dedup_by_key(|hold| session(hold));
        holds
    }

    /// The relays beside this one that agents are linked with, by what they are told apart by.
    pub(crate) fn other_relays(&self) -> BTreeSet<String> {
        let others = self.elsewhere.others(self.replica);
        others.iter().map(Replica::digits).collect()
    }

    /// Has the registry know what other relays hold, until `shutdown`.
    pub(super) async fn follow_holds(&self, shutdown: CancellationToken) {
        let mut lists = self.registry.watch();
        let mut news = self.elsewhere.news.subscribe();
        let mut known = Known::default();
        let mut others = HashSet::new();
        let mut revocations = self.auth.revocations();
        debug!("no agent is linked yet: this relay stands alone, and knows of its own sessions");
        loop {
            lists.mark_unchanged();
            news.mark_unchanged();
            let known_now = self.elsewhere.others(self.replica);
            if known_now != others {
                match known_now.len() {
                    0 => info!("no other relay is linked with the agents: this one stands alone"),
                    relays => info!(relays, "other relays are linked with the same agents"),
                }
                others = known_now;
            }
            let next = self.take_holds(&mut known);
            self.end_revoked();
            let revoked = async {
                match &mut revocations {
                    Some(list) => list.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                Ok(()) = lists.changed() => {}
                Ok(()) = news.changed() => {}
                Ok(()) = revoked => {}
                Some(_) = known.asking.join_next() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Claims what others hold, gives back what they do no longer, and says when to look again at the latest.
    fn take_holds(&self, known: &mut Known) -> Instant {
        let now = Instant::now();
        let (holds, mut next) = self.elsewhere.holds(self.replica, now);
        let holds: HashMap<_, _> = holds.iter().map(|hold| (hold.key(), hold)).collect();
        known.holds.retain(|key, _| holds.contains_key(key));
        let mut claims = self.elsewhere.claims.lock();
        claims.retain(|key, claim| {
            let stays = holds.contains_key(key);
            if !stays {
                // Whether the task was let run is not known here: a poll says at once what waits, as another stop.
                claim.lease().let_run();
            }
            stays
        });
        let list = self.registry.snapshot();
        for (key, hold) in holds {
            let taken = known.holds.entry(key.clone()).or_default();
            if let Some(claim) = claims.get(&key) {
                let parked = hold.parked();
                if taken.parked != parked {
                    taken.parked = parked;
                    claim.held_by(hold.holder());
                }
                continue;
            }
            match hold.find(&list) {
                Some(breakpoint) if breakpoint.is_free() => {
                    let claim = self.registry.claim(breakpoint.id, hold.holder());
                    if let Ok(claim) = claim {
                        taken.parked = hold.parked();
                        claims.insert(key, claim);
                    }
                }
                // A session of this relay has it meanwhile: the agent says to one of them that the other was first.
                Some(_) => {}
                // The GCS forgets a registered breakpoint that was entered.
                None if hold.held.kind.is_registered() => {}
                None => {
                    let due = taken.asked.map_or(now, |at| at + ASK_AGAIN).max(now);
                    let due = known.ask_at.map_or(due, |at| at.max(due));
                    if due > now {
                        next = next.min(due);
                    } else if known.asking.len() < ASKED_AT_ONCE {
                        (taken.asked, known.ask_at) = (Some(now), Some(now + ASK_PAUSE));
                        self.ask_for(hold, &mut known.asking);
                        next = next.min(now + ASK_AGAIN);
                    }
                }
            }
        }
        next
    }

    /// What stands in for the session with `breakpoint` that an agent keeps, and the way there; for who goes on with it.
    ///
    /// # Errors
    /// [`NoWay`]; without a claim, nothing is kept there any more.
    pub(crate) async fn take_kept(
        &self,
        breakpoint: &Breakpoint,
    ) -> Result<Option<(Claim, Way)>, NoWay> {
        let way = self.way_to_agent(breakpoint).await?;
        Ok(self.take_claim(breakpoint.id).map(|claim| (claim, way)))
    }

    /// What stands in for a session elsewhere with the breakpoint `id`, for who goes on with it here.
    pub(crate) fn take_claim(&self, id: BreakpointId) -> Option<Claim> {
        let mut claims = self.elsewhere.claims.lock();
        let is_it = |claim: &Claim| claim.breakpoint().id == id;
        let key = claims
            .iter()
            .find(|(_, claim)| is_it(claim))
            .map(|(key, _)| key.clone());
        key.and_then(|key| claims.remove(&key))
    }

    /// Has the agent of its node let the task of `breakpoint` run on, which it keeps for somebody. Resolves when the worker was
    /// left, or after [`LEFT`] at the latest.
    ///
    /// # Errors
    /// [`NoWay`].
    pub(crate) async fn let_run_kept(&self, breakpoint: &Breakpoint) -> Result<(), NoWay> {
        let mut lists = self.registry.watch();
        if let Way::Agent { link, .. } = self.way_to_agent(breakpoint).await? {
            link.tell(FromRelay::LetRun {
                worker_id: (&*breakpoint.worker_id).into(),
                port: breakpoint.port,
            });
        }
        let left = |list: &Arc<Snapshot>| {
            let row = list.find(breakpoint.id);
            row.and_then(|row| row.holder())
                .is_none_or(|holder| holder.parked_until.is_none())
        };
        // The registry outlives this.
        let _ = timeout(LEFT, lists.wait_for(left)).await;
        Ok(())
    }

    /// Has the head asked for the worker of `hold`: it is in the list afterwards, where Ray knows it.
    fn ask_for(&self, hold: &Hold, asking: &mut JoinSet<()>) {
        let worker = hold.held.worker_id.to_string();
        let cluster = Arc::clone(&hold.node.cluster);
        let registry = self.registry.clone();
        if worker.len() == WORKER_ID {
            asking.spawn(async move {
                let _ = registry.look_again(Some(&cluster), &worker).await;
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "elsewhere/tests.rs"]
mod tests;
