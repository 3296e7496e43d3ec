//! Which workers sessions hold through this agent. Every relay is told, so that all show the same holders.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::wire::tunnel::messages::{Held, Open, Replica};

/// The table. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Table {
    rows: Arc<Mutex<Vec<Row>>>,
    shown: Arc<watch::Sender<Arc<[Held]>>>,
}

#[derive(Debug)]
struct Row {
    held: Held,
    /// Connections of the session.
    streams: usize,
}

/// A session's hold of a worker: given back when this and all others of the session are dropped.
#[derive(Debug)]
pub(super) struct Hold {
    table: Table,
    worker_id: String,
    port: u16,
    session: String,
    replica: Replica,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            rows: Arc::default(),
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
    pub(super) fn take(&self, open: &Open, replica: Replica) -> Result<Hold, Held> {
        let mut rows = self.rows.lock();
        let of_worker =
            |row: &Row| row.held.worker_id == open.worker_id && row.held.port == open.port;
        if let Some(row) = rows
            .iter()
            .find(|row| of_worker(row) && row.held.replica != replica)
        {
            return Err(row.held.clone());
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
        match rows.iter_mut().find(same) {
            Some(row) => row.streams += 1,
            None => {
                let holder = open.holder.as_ref();
                rows.push(Row {
                    held: Held {
                        worker_id: open.worker_id.clone(),
                        kind: open.kind,
                        port: open.port,
                        name: holder.map(|holder| holder.name.clone()).unwrap_or_default(),
                        session: session.clone(),
                        client: holder
                            .map(|holder| holder.client.clone())
                            .unwrap_or_default(),
                        peer: holder.and_then(|holder| holder.peer),
                        replica,
                        since_unix_ms: now(),
                    },
                    streams: 1,
                });
                self.show(&rows);
            }
        }
        Ok(Hold {
            table: self.clone(),
            worker_id: open.worker_id.to_string(),
            port: open.port,
            session: session.to_string(),
            replica,
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
            let of_worker =
                |row: &&Held| *row.worker_id == *self.worker_id && row.port == self.port;
            let mut others = rows.iter().filter(of_worker);
            others.all(|row| *row.session == *self.session)
        };
        // The table outlives this.
        _ = rows.wait_for(alone).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut rows = self.table.rows.lock();
        let own = rows.iter_mut().position(|row| {
            *row.held.worker_id == *self.worker_id
                && row.held.port == self.port
                && *row.held.session == *self.session
                && row.held.replica == self.replica
        });
        let Some(at) = own else { return };
        rows[at].streams -= 1;
        if rows[at].streams == 0 {
            rows.remove(at);
            self.table.show(&rows);
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
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
}
