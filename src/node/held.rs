//! Which workers sessions hold through this agent, and which it keeps itself. Every relay is told, so that all show the same
//! holders.
//!
//! It keeps as many as a relay would, whose parks are lost with it: of one person [`EACH`], a cluster
//! session counted as one; in all as many as it can [tell of](kept_fit).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::keeping::Keeping;
use super::look::Refused;
use crate::debugger::unattended::{EACH, FAMILY};
use crate::moment::unix_ms;
use crate::wire::tunnel::messages::{
    Client, Held, Hex, Holder, Keep, Name, Open, Parked, Refusal, Replica, Subject, kept_fit,
    written,
};

/// The table. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Table {
    rows: Arc<Mutex<Vec<Row>>>,
    numbers: Arc<AtomicU64>,
    shown: Arc<watch::Sender<Arc<[Held]>>>,
}

#[derive(Debug)]
struct Row {
    id: u64,
    held: Held,
    /// Connections of the session.
    streams: usize,
    /// Of a worker that is kept.
    kept: Option<KeptRow>,
}

#[derive(Debug)]
struct KeptRow {
    /// To ask for it.
    asks: mpsc::Sender<Ask>,
    /// Whose sessions count as one with this.
    cluster_session: Option<Hex<8>>,
    /// Of its row in a message.
    bytes: usize,
}

/// What is asked of whoever keeps a worker. One whose time is over drops the question.
#[derive(Debug)]
pub(super) enum Ask {
    /// That somebody goes on with it.
    HandOver(oneshot::Sender<Result<Box<Keeping>, Refused>>),
    /// That its task runs on.
    LetRun,
}

/// A session's hold of a worker: given back when this and all others of the session are dropped.
#[derive(Debug)]
pub(super) struct Hold {
    table: Table,
    /// Of its row.
    id: u64,
    /// As they were when it was taken.
    worker_id: Name,
    port: u16,
    session: Name,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            rows: Arc::default(),
            numbers: Arc::default(),
            shown: Arc::new(watch::Sender::new(Arc::new([]))),
        }
    }

    /// All rows, and from now on whenever they change.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<[Held]>> {
        self.shown.subscribe()
    }

    /// Takes a worker for the session that `open` of `replica` names.
    ///
    /// # Errors
    /// Who holds it, where that is a session of another relay.
    pub(super) fn take(&self, open: &Open, replica: Replica) -> Result<Hold, Box<Held>> {
        let mut rows = self.rows.lock();
        let of_worker =
            |row: &Row| row.held.worker_id == open.worker_id && row.held.port == open.port;
        if let Some(row) = rows
            .iter()
            .find(|row| of_worker(row) && (row.held.replica != replica || row.kept.is_some()))
        {
            return Err(Box::new(row.held.clone()));
        }
        // A further connection belongs to whatever session of that relay has the worker.
        let session = match &open.holder {
            Some(holder) => Some(holder.session.clone()),
            None => rows
                .iter()
                .find(|row| of_worker(row))
                .map(|row| row.held.session.clone()),
        };
        let session = session.unwrap_or_default();
        let same = |row: &&mut Row| of_worker(row) && row.held.session == session;
        if let Some(row) = rows.iter_mut().find(same) {
            row.streams += 1;
            return Ok(self.hold(row.id, open, session));
        }
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut held = Held {
            worker_id: open.worker_id.clone(),
            kind: open.kind,
            port: open.port,
            name: Name::default(),
            session: session.clone(),
            client: Client::default(),
            peer: None,
            replica,
            since_unix_ms: unix_ms(SystemTime::now()),
            parked: None,
        };
        if let Some(holder) = &open.holder {
            held.show(holder);
        }
        rows.push(Row {
            id,
            held,
            streams: 1,
            kept: None,
        });
        self.show(&rows);
        Ok(self.hold(id, open, session))
    }

    fn hold(&self, id: u64, open: &Open, session: Name) -> Hold {
        Hold {
            table: self.clone(),
            id,
            worker_id: open.worker_id.clone(),
            port: open.port,
            session,
        }
    }

    /// The worker that is kept for the owner that `open` names, as soon as its debugger has answered what it was asked.
    ///
    /// # Errors
    /// [`Refused`]: it is not kept, or for somebody else, or its debugger is at work.
    pub(super) async fn hand_over(&self, open: &Open) -> Result<Box<Keeping>, Refused> {
        let gone = || Refused::new(Refusal::Other, "nothing is kept there for that owner");
        let asks = self.kept(&open.worker_id, open.port);
        let (owner, asks) = asks.ok_or_else(gone)?;
        if open.resume.as_ref() != Some(&owner) {
            return Err(gone());
        }
        let (answer, handed_over) = oneshot::channel();
        let busy = |_| Refused::new(Refusal::Kept, "somebody goes on with it at this moment");
        asks.try_send(Ask::HandOver(answer)).map_err(busy)?;
        handed_over.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Has the task of a worker that is kept run on.
    pub(super) fn let_run(&self, worker_id: &Name, port: u16) {
        if let Some((_, asks)) = self.kept(worker_id, port) {
            // Where somebody goes on with it, that one is asked next.
            _ = asks.try_send(Ask::LetRun);
        }
    }

    fn kept(&self, worker_id: &Name, port: u16) -> Option<(Subject, mpsc::Sender<Ask>)> {
        let rows = self.rows.lock();
        let mut of_worker = rows
            .iter()
            .filter(|row| row.held.worker_id == *worker_id && row.held.port == port);
        of_worker.find_map(|row| {
            let owner = row.held.parked.as_ref()?.owner.clone();
            Some((owner, row.kept.as_ref()?.asks.clone()))
        })
    }

    /// A connection of nobody's session, such as a relay's look after a worker that was left, is not shown.
    fn show(&self, rows: &[Row]) {
        let named = rows.iter().filter(|row| !row.held.session.is_empty());
        let all = named.map(|row| row.held.clone()).collect();
        self.shown.send_replace(all);
    }
}

impl Hold {
    /// Resolves when no other session of the same relay still leaves the worker. Cancel safe.
    pub(super) async fn settled(&self) {
        let mut rows = self.table.watch();
        let alone = |rows: &Arc<[Held]>| {
            let of_worker = |row: &&Held| row.worker_id == self.worker_id && row.port == self.port;
            let mut others = rows.iter().filter(of_worker);
            others.all(|row| row.session == self.session)
        };
        // The table outlives this.
        _ = rows.wait_for(alone).await;
    }

    /// Shows the worker as kept by `keep` for so long from now; gives what is asked of whoever keeps it. `None`: that one, or
    /// all together, have as many as may be.
    pub(super) fn park(&self, keep: &Keep, left: Duration) -> Option<mpsc::Receiver<Ask>> {
        let mut rows = self.table.rows.lock();
        if !has_place(&rows, keep) {
            return None;
        }
        let others = rows.iter().filter_map(|row| Some(row.kept.as_ref()?.bytes));
        let others: Vec<usize> = others.collect();
        let row = rows.iter_mut().find(|row| row.id == self.id)?;
        let held = Held {
            parked: Some(Parked {
                owner: keep.owner.clone(),
                credential: keep.credential.clone(),
                until_unix_ms: unix_ms(SystemTime::now() + left),
            }),
            ..row.held.clone()
        };
        let bytes = written(&held).len();
        if !kept_fit(others.into_iter().chain([bytes])) {
            return None;
        }
        let (ask, asks) = mpsc::channel(1);
        row.held = held;
        row.kept = Some(KeptRow {
            asks: ask,
            cluster_session: keep.cluster_session,
            bytes,
        });
        self.table.show(&rows);
        Some(asks)
    }

    /// Shows the worker as that of the session which `open` of `replica` names.
    pub(super) fn resume(&self, open: &Open, replica: Replica) {
        let mut rows = self.table.rows.lock();
        if let Some(row) = rows.iter_mut().find(|row| row.id == self.id) {
            (row.kept, row.held.parked, row.held.replica) = (None, None, replica);
            row.held.since_unix_ms = unix_ms(SystemTime::now());
            if let Some(holder) = &open.holder {
                row.held.show(holder);
            }
        }
        self.table.show(&rows);
    }
}

/// Whether the owner of `keep` may have one more of those that are kept among `rows`. Where nobody is authenticated, nobody's
/// share is known.
fn has_place(rows: &[Row], keep: &Keep) -> bool {
    if keep.owner.is_empty() {
        return true;
    }
    let (mut places, mut families) = (0, HashMap::<Hex<8>, usize>::new());
    let parked =
        |row: &&Row| row.held.parked.as_ref().map(|parked| &parked.owner) == Some(&keep.owner);
    for row in rows.iter().filter(parked) {
        match row.kept.as_ref().and_then(|kept| kept.cluster_session) {
            Some(family) => *families.entry(family).or_default() += 1,
            None => places += 1,
        }
    }
    places += families
        .values()
        .map(|kept| kept.div_ceil(FAMILY))
        .sum::<usize>();
    let own = keep.cluster_session.and_then(|own| families.get(&own));
    places < EACH || own.is_some_and(|kept| kept % FAMILY != 0)
}

impl Held {
    fn show(&mut self, holder: &Holder) {
        self.name = holder.name.clone();
        self.session = holder.session.clone();
        self.client = holder.client.clone();
        self.peer = holder.peer;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut rows = self.table.rows.lock();
        let own = rows.iter_mut().position(|row| row.id == self.id);
        let Some(at) = own else { return };
        rows[at].streams -= 1;
        if rows[at].streams == 0 {
            rows.remove(at);
            self.table.show(&rows);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::wire::tunnel::messages::{FromAgent, Kind, LARGEST, MOST_KEPT, MOST_ROWS};

    fn open(worker: &str, session: Option<&str>) -> Open {
        Open {
            stream: Hex([1; 8]),
            secret: Hex([2; 16]),
            cluster: "default".into(),
            node_id: "aaaa".into(),
            worker_id: worker.into(),
            kind: Kind::Debugpy,
            port: 4000,
            holder: session.map(|session| Holder {
                name: "ada".into(),
                session: session.into(),
                client: "nvim".into(),
                peer: Some("192.0.2.1:5000".parse().unwrap()),
            }),
            resume: None,
        }
    }

    #[test]
    fn a_worker_is_one_relays_until_its_last_connection_has_ended() {
        let table = Table::new();
        let mut shown = table.watch();
        let (one, other) = (Hex([1; 8]), Hex([2; 8]));
        let first = table.take(&open("w", Some("7")), one).unwrap();
        assert_eq!(shown.borrow_and_update().len(), 1);
        assert_eq!(&*shown.borrow().first().unwrap().name, "ada");
        let child = table.take(&open("w", None), one).unwrap();
        assert!(!shown.has_changed().unwrap());
        let holder = table.take(&open("w", Some("8")), other).unwrap_err();
        assert_eq!((&*holder.name, holder.replica), ("ada", one));
        assert!(table.take(&open("w", None), other).is_err());
        let elsewhere = table.take(&open("v", Some("9")), other).unwrap();
        drop(first);
        assert!(table.take(&open("w", Some("8")), other).is_err());
        drop(child);
        // The next session of the same relay may come while the one before is being left.
        let left = table.take(&open("w", Some("8")), other).unwrap();
        let next = table.take(&open("w", Some("9")), other).unwrap();
        assert_eq!(shown.borrow_and_update().len(), 3);
        drop((left, next, elsewhere));
        assert!(shown.borrow_and_update().is_empty());
    }

    fn keep(owner: &str) -> Keep {
        Keep {
            owner: owner.into(),
            credential: None,
            keeps_ms: 1000,
            at_least_ms: None,
            at_most_ms: None,
            lasted_ms: 0,
            capabilities: "{}".into(),
            attach: 7,
            cluster_session: None,
        }
    }

    const LEFT: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_has_more_kept_than_may_be_and_all_together_neither() {
        let table = Table::new();
        let take = |worker: &str| table.take(&open(worker, Some("7")), Hex([1; 8])).unwrap();
        let mut kept = Vec::new();
        for n in 0..MOST_KEPT {
            let hold = take(&n.to_string());
            let asks = hold.park(&keep(&(n / EACH).to_string()), LEFT);
            kept.push((hold, asks.unwrap()));
        }
        let more = take("more");
        assert!(more.park(&keep("another"), LEFT).is_none());
        kept.pop();
        assert!(more.park(&keep("0"), LEFT).is_none());
        assert!(more.park(&keep("another"), LEFT).is_some());
    }

    #[test]
    fn a_cluster_session_is_one_of_a_persons_whatever_its_size() {
        let table = Table::new();
        let mut kept = Vec::new();
        let mut park = |owner: &str, family: Option<u8>| {
            let worker = kept.len().to_string();
            let hold = table.take(&open(&worker, Some("7")), Hex([1; 8])).unwrap();
            let keep = Keep {
                cluster_session: family.map(|family| Hex([family; 8])),
                ..keep(owner)
            };
            let asks = hold.park(&keep, LEFT);
            let is_kept = asks.is_some();
            kept.push((hold, asks));
            is_kept
        };
        for _ in 0..FAMILY {
            assert!(park("ada", Some(1)));
        }
        for _ in 0..EACH - 2 {
            assert!(park("ada", None));
        }
        // The last place, by what one place is not enough for.
        assert!(park("ada", Some(1)));
        assert!(!park("ada", None) && !park("ada", Some(2)));
        assert!(park("ada", Some(1)));
        // Others have theirs, and where nobody is anybody there are no shares.
        assert!(park("bob", Some(1)));
        for _ in 0..=EACH {
            assert!(park("", None));
        }
    }

    #[test]
    fn what_is_told_of_kept_workers_fits_into_a_message_however_long_the_names_are() {
        let table = Table::new();
        let long = |n: usize| {
            let mut open = open(&format!("{n:056}"), Some("7"));
            let quotes = "\"".repeat(128);
            open.holder = Some(Holder {
                name: quotes.as_str().into(),
                session: quotes.as_str().into(),
                client: quotes.as_str().into(),
                peer: Some("[ffff::ffff:ffff:ffff:ffff]:65535".parse().unwrap()),
            });
            open
        };
        let mut holds = Vec::new();
        let mut kept = 0;
        for n in 0..MOST_ROWS {
            let hold = table.take(&long(n), Hex([1; 8])).unwrap();
            let owner = format!("{n:03}{}", "\"".repeat(253));
            let asks = hold.park(&keep(&owner), LEFT);
            kept += usize::from(asks.is_some());
            holds.push((hold, asks));
        }
        assert!((40..MOST_KEPT).contains(&kept), "{kept}");
        let workers = table.watch().borrow().to_vec();
        assert_eq!(workers.len(), MOST_ROWS);
        let told = written(&FromAgent::Held { workers });
        assert!(told.len() <= LARGEST, "{}", told.len());
    }
}
