//! Which workers sessions hold through this agent, and which it keeps itself. Every relay is told, so that all show the same
//! holders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::keeping::Keeping;
use super::look::Refused;
use crate::moment::unix_ms;
use crate::wire::tunnel::messages::{
    Client, Held, Holder, Keep, MOST_KEPT, Name, Open, Parked, Refusal, Replica, Subject,
};

/// Workers of one owner that are kept at a time.
const EACH: usize = 8;

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
    /// To ask for a worker that is kept.
    asks: Option<mpsc::Sender<Ask>>,
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
            .find(|row| of_worker(row) && (row.held.replica != replica || row.asks.is_some()))
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
            asks: None,
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
            Some((owner, row.asks.clone()?))
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
        let kept = rows.iter().filter_map(|row| row.held.parked.as_ref());
        let (all, own) = kept.fold((0, 0), |(all, own), parked| {
            (all + 1, own + usize::from(parked.owner == keep.owner))
        });
        if all >= MOST_KEPT || own >= EACH {
            return None;
        }
        let row = rows.iter_mut().find(|row| row.id == self.id)?;
        let (ask, asks) = mpsc::channel(1);
        row.asks = Some(ask);
        row.held.parked = Some(Parked {
            owner: keep.owner.clone(),
            credential: keep.credential.clone(),
            until_unix_ms: unix_ms(SystemTime::now() + left),
        });
        self.table.show(&rows);
        Some(asks)
    }

    /// Shows the worker as that of the session which `open` of `replica` names.
    pub(super) fn resume(&self, open: &Open, replica: Replica) {
        let mut rows = self.table.rows.lock();
        if let Some(row) = rows.iter_mut().find(|row| row.id == self.id) {
            (row.asks, row.held.parked, row.held.replica) = (None, None, replica);
            row.held.since_unix_ms = unix_ms(SystemTime::now());
            if let Some(holder) = &open.holder {
                row.held.show(holder);
            }
        }
        self.table.show(&rows);
    }
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
    use crate::wire::tunnel::messages::{Hex, Holder, Kind};

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
            at_most_ms: None,
            lasted_ms: 0,
            capabilities: "{}".into(),
            attach: 7,
        }
    }

    #[test]
    fn nobody_has_more_kept_than_may_be_and_all_together_neither() {
        let (table, left) = (Table::new(), Duration::from_secs(60));
        let take = |worker: &str| table.take(&open(worker, Some("7")), Hex([1; 8])).unwrap();
        let mut kept = Vec::new();
        for n in 0..MOST_KEPT {
            let hold = take(&n.to_string());
            let asks = hold.park(&keep(&(n / EACH).to_string()), left);
            kept.push((hold, asks.unwrap()));
        }
        let more = take("more");
        assert!(more.park(&keep("another"), left).is_none());
        kept.pop();
        assert!(more.park(&keep("0"), left).is_none());
        assert!(more.park(&keep("another"), left).is_some());
    }
}
