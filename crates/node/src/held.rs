//! The workers that sessions hold through this agent, and those that the agent keeps itself. All tasks share the
//! table, and every relay receives it, so that all show the same holders. The rules are those of [`NodeHolds`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::keeping::ParkedDebugger;
use super::verifier::Refused;
use ray_relay_base::timestamp::unix_ms;
use ray_relay_base::wire::tunnel::messages::{HoldRow, LetRun, Open, ParkTerms, Refusal, Replica};
use ray_relay_ray::hold::{HoldId, NoSlot, NodeHolds};

/// The table of held workers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct HoldTable {
    holds: Arc<Mutex<NodeHolds<mpsc::Sender<HeldRequest>>>>,
    published: Arc<watch::Sender<Arc<[HoldRow]>>>,
}

/// A request to the task that keeps a worker. A task whose time is over drops the request.
#[derive(Debug)]
pub(super) enum HeldRequest {
    /// Hand the worker over to a session.
    HandOver(oneshot::Sender<Result<Box<ParkedDebugger>, Refused>>),
    /// Resume the worker's task.
    Resume,
}

/// A session's hold of a worker: released when this and all others of the session are dropped.
#[derive(Debug)]
pub(super) struct WorkerHold {
    table: HoldTable,
    id: HoldId,
}

impl HoldTable {
    pub(super) fn new() -> Self {
        Self {
            holds: Arc::default(),
            published: Arc::new(watch::Sender::new(Arc::new([]))),
        }
    }

    /// Subscribes to all rows.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<[HoldRow]>> {
        self.published.subscribe()
    }

    /// Acquires a worker for the session that `open` of `replica` names.
    ///
    /// # Errors
    /// As [`NodeHolds::take`].
    pub(super) fn acquire(
        &self,
        open: &Open,
        replica: Replica,
    ) -> Result<WorkerHold, Box<HoldRow>> {
        let id = self.change(|holds| holds.take(open, replica, now_unix_ms()))?;
        Ok(WorkerHold {
            table: self.clone(),
            id,
        })
    }

    /// Returns the worker kept for the owner that `open` names, once its debugger has answered all pending requests.
    ///
    /// # Errors
    /// [`Refused`]: the worker is not kept, is kept for another user, or its debugger is busy.
    pub(super) async fn hand_over(&self, open: &Open) -> Result<Box<ParkedDebugger>, Refused> {
        let gone = || Refused::new(Refusal::Other, "nothing is kept there for that owner");
        let requests = {
            let holds = self.holds.lock();
            let hold_entry = holds.kept(&open.worker_id, open.port, open.process);
            let (owner, requests) = hold_entry.ok_or_else(gone)?;
            if open.resume.as_ref() != Some(owner) {
                return Err(gone());
            }
            requests.clone()
        };
        let (answer, handed_over) = oneshot::channel();
        let busy = |_| Refused::new(Refusal::Kept, "another client resumes it at this moment");
        requests
            .try_send(HeldRequest::HandOver(answer))
            .map_err(busy)?;
        handed_over.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Returns the subprocesses kept for the owner of the worker that `open` names.
    pub(super) fn kept_subprocesses(&self, open: &Open) -> Vec<u32> {
        let holds = self.holds.lock();
        let of = |owner| holds.kept_subprocesses(&open.worker_id, open.port, owner);
        open.resume.as_ref().map(of).unwrap_or_default()
    }

    /// Requests that the task of a kept worker resumes.
    pub(super) fn resume_task(&self, let_run: &LetRun) {
        if let Some(requests) = self.holds.lock().to_let_run(let_run) {
            // If a session is about to resume it, that request is queued first.
            _ = requests.try_send(HeldRequest::Resume);
        }
    }

    /// Changes the table and publishes the new rows.
    fn change<T>(&self, change: impl FnOnce(&mut NodeHolds<mpsc::Sender<HeldRequest>>) -> T) -> T {
        let mut holds = self.holds.lock();
        let result = change(&mut holds);
        let rows = holds.rows();
        // Under the lock, so that rows are published in the order of the changes.
        self.published.send_if_modified(|published| {
            let differs = *published != rows;
            *published = rows;
            differs
        });
        result
    }
}

impl WorkerHold {
    /// Resolves when no other session of the same relay is still detaching from the worker. Cancel safe.
    pub(super) async fn settled(&self) {
        let mut rows = self.table.watch();
        loop {
            rows.mark_unchanged();
            if self.table.holds.lock().is_alone(self.id) {
                return;
            }
            // The table outlives this.
            _ = rows.changed().await;
        }
    }

    /// Resolves when this holds a subprocess whose worker its owner no longer has. Cancel safe.
    pub(super) async fn owner_lost_worker(&self) {
        let mut rows = self.table.watch();
        loop {
            rows.mark_unchanged();
            if self.table.holds.lock().task_of(self.id).is_none() {
                return;
            }
            // The table outlives this hold.
            _ = rows.changed().await;
        }
    }

    /// Returns how much longer the worker of this subprocess is kept. `None`: it is not kept.
    pub(super) fn worker_keep_time(&self) -> Option<Duration> {
        let until = self.table.holds.lock().task_of(self.id)??;
        let remaining = until
            .checked_sub(now_unix_ms())
            .filter(|remaining| *remaining > 0)?;
        Some(Duration::from_millis(remaining))
    }

    /// Marks the worker as kept by `keep` for this long from now, and whether it `evaluates`. Returns the requests to
    /// its keeper.
    ///
    /// # Errors
    /// [`NoSlot`]: that owner, or all owners together, have reached their limit.
    pub(super) fn park(
        &self,
        keep: &ParkTerms,
        remaining: Duration,
        evaluates: bool,
    ) -> Result<mpsc::Receiver<HeldRequest>, NoSlot> {
        let (sender, requests) = mpsc::channel(1);
        let until = unix_ms(SystemTime::now() + remaining);
        self.table
            .change(|holds| holds.park(self.id, keep, until, evaluates, sender))?;
        Ok(requests)
    }

    /// Publishes whether an expression of the lost client runs in the kept worker.
    pub(super) fn evaluates(&self, evaluates: bool) {
        self.table
            .change(|holds| holds.evaluates(self.id, evaluates));
    }

    /// Marks the worker as held by the session that `open` of `replica` names.
    pub(super) fn resume(&self, open: &Open, replica: Replica) {
        self.table
            .change(|holds| holds.resume(self.id, open, replica, now_unix_ms()));
    }
}

fn now_unix_ms() -> u64 {
    unix_ms(SystemTime::now())
}

impl Drop for WorkerHold {
    fn drop(&mut self) {
        self.table.change(|holds| holds.release(self.id));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::wire::tunnel::messages::{
        FromAgent, Hex, Kind, MAX_KEPT_WORKERS, MAX_MESSAGE_BYTES, MAX_ROWS, WorkerTaker, written,
    };
    use ray_relay_ray::hold::{SESSIONS_PER_SLOT, SLOTS_PER_USER};

    fn open(worker: &str, session: Option<&str>) -> Open {
        Open {
            stream: Hex([1; 8]),
            secret: Hex([2; 16]),
            cluster: "default".into(),
            node_id: "aaaa".into(),
            worker_id: worker.into(),
            kind: Kind::Debugpy,
            port: 4000,
            holder: session.map(|session| WorkerTaker {
                name: "ada".into(),
                session: session.into(),
                client: "nvim".into(),
                peer: Some("192.0.2.1:5000".parse().unwrap()),
            }),
            resume: None,
            process: None,
            keep: None,
        }
    }

    #[test]
    fn worker_is_held_until_its_last_connection_ends() {
        let table = HoldTable::new();
        let mut rows = table.watch();
        let (one, other) = (Hex([1; 8]), Hex([2; 8]));
        let first = table.acquire(&open("w", Some("7")), one).unwrap();
        assert_eq!(rows.borrow_and_update().len(), 1);
        assert_eq!(&*rows.borrow().first().unwrap().name, "ada");
        let child = table.acquire(&open("w", None), one).unwrap();
        assert!(!rows.has_changed().unwrap());
        let holder = table.acquire(&open("w", Some("8")), other).unwrap_err();
        assert_eq!((&*holder.name, holder.replica), ("ada", one));
        assert!(table.acquire(&open("w", None), other).is_err());
        let other_worker = table.acquire(&open("v", Some("9")), other).unwrap();
        drop(first);
        assert!(table.acquire(&open("w", Some("8")), other).is_err());
        drop(child);
        // The next session of a relay may begin while the previous one detaches.
        let detaching = table.acquire(&open("w", Some("8")), other).unwrap();
        let next = table.acquire(&open("w", Some("9")), other).unwrap();
        assert_eq!(rows.borrow_and_update().len(), 3);
        drop((detaching, next, other_worker));
        assert!(rows.borrow_and_update().is_empty());
    }

    fn keep(owner: &str) -> ParkTerms {
        ParkTerms {
            owner: owner.into(),
            credential: None,
            keeps_ms: 1000,
            at_least_ms: None,
            at_most_ms: None,
            lasted_ms: 0,
            capabilities: "{}".into(),
            attach: 7,
            cluster_session: None,
            entered: None,
        }
    }

    const PARK_TIME: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn late_resume_does_not_resume_another_session() {
        let table = HoldTable::new();
        let relay = Hex([1; 8]);
        let first = table.acquire(&open("w", Some("7")), relay).unwrap();
        drop(first.park(&keep("ada"), PARK_TIME, false).unwrap());
        let outdated = LetRun::of(&table.watch().borrow()[0]);
        drop(first);
        let next = table.acquire(&open("w", Some("8")), relay).unwrap();
        let mut requests = next.park(&keep("bob"), PARK_TIME, false).unwrap();
        table.resume_task(&outdated);
        assert!(requests.try_recv().is_err());
        let current = LetRun::of(&table.watch().borrow()[0]);
        table.resume_task(&current);
        assert!(matches!(requests.try_recv().unwrap(), HeldRequest::Resume));
    }

    #[tokio::test]
    async fn kept_subprocess_is_released_when_the_owner_changes() {
        let table = HoldTable::new();
        let (one, other) = (Hex([1; 8]), Hex([2; 8]));
        let subprocess_open = |process| Open {
            process: Some(process),
            ..open("w", None)
        };
        let worker = table.acquire(&open("w", Some("7")), one).unwrap();
        let subprocess = table.acquire(&subprocess_open(9), one).unwrap();
        assert_eq!(table.watch().borrow().len(), 1, "no relay is told of it");
        let requests = worker.park(&keep("ada"), PARK_TIME, false).unwrap();
        let other_requests = subprocess.park(&keep("ada"), PARK_TIME, false).unwrap();
        assert!(subprocess.worker_keep_time().is_some());
        let resume_request = |owner: &str| Open {
            resume: Some(owner.into()),
            ..open("w", Some("8"))
        };
        assert_eq!(table.kept_subprocesses(&resume_request("ada")), [9]);
        assert!(table.kept_subprocesses(&resume_request("bob")).is_empty());
        drop(requests);
        worker.resume(&resume_request("ada"), other);
        assert!(subprocess.worker_keep_time().is_none());
        // Its debugger already has a client.
        assert!(table.acquire(&subprocess_open(9), other).is_err());
        drop(table.acquire(&subprocess_open(10), other).unwrap());
        let still_waiting = subprocess.owner_lost_worker();
        assert!(futures_util::FutureExt::now_or_never(still_waiting).is_none());
        drop(worker);
        subprocess.owner_lost_worker().await;
        // The subprocess does not block another relay's access to the worker.
        let next = table.acquire(&open("w", Some("9")), one);
        drop((next.unwrap(), other_requests));
    }

    #[tokio::test]
    async fn subprocess_follows_a_take_over_of_its_worker() {
        let table = HoldTable::new();
        let (one, other) = (Hex([1; 8]), Hex([2; 8]));
        let subprocess_open = |worker: &str| Open {
            process: Some(9),
            ..open(worker, None)
        };
        let park = |worker: &str| {
            let worker_hold = table.acquire(&open(worker, Some("7")), one).unwrap();
            let subprocess = table.acquire(&subprocess_open(worker), one).unwrap();
            let requests = worker_hold.park(&keep("ada"), PARK_TIME, false).unwrap();
            let other_requests = subprocess.park(&keep("ada"), PARK_TIME, false).unwrap();
            (worker_hold, subprocess, (requests, other_requests))
        };
        let (worker, subprocess, _requests) = park("w");
        let (_other_worker, other_subprocess, _other_requests) = park("v");
        let mut take_over = Open {
            resume: Some("ada".into()),
            ..open("w", Some("8"))
        };
        if let Some(holder) = &mut take_over.holder {
            holder.name = "bob".into();
        }
        worker.resume(&take_over, other);
        let owner_of_subprocess = |worker: &str| {
            let holds = table.holds.lock();
            let park = holds.kept(&worker.into(), 4000, Some(9));
            park.map(|(owner, _)| owner.to_string())
        };
        assert_eq!(owner_of_subprocess("w").as_deref(), Some("bob"));
        assert_eq!(owner_of_subprocess("v").as_deref(), Some("ada"));
        let still_waiting = subprocess.owner_lost_worker();
        assert!(futures_util::FutureExt::now_or_never(still_waiting).is_none());
        assert!(other_subprocess.worker_keep_time().is_some());
        // The worker passes to another user.
        drop(worker);
        let _next = table.acquire(&open("w", Some("9")), one).unwrap();
        let released = subprocess.owner_lost_worker();
        assert!(futures_util::FutureExt::now_or_never(released).is_some());
    }

    #[test]
    fn kept_workers_are_bounded_per_user_and_in_total() {
        let table = HoldTable::new();
        let acquire = |worker: &str| {
            table
                .acquire(&open(worker, Some("7")), Hex([1; 8]))
                .unwrap()
        };
        let mut parked = Vec::new();
        for n in 0..MAX_KEPT_WORKERS {
            let hold = acquire(&n.to_string());
            let requests = hold.park(&keep(&(n / SLOTS_PER_USER).to_string()), PARK_TIME, false);
            parked.push((hold, requests.unwrap()));
        }
        let extra = acquire("more");
        assert!(extra.park(&keep("another"), PARK_TIME, false).is_err());
        parked.pop();
        assert!(extra.park(&keep("0"), PARK_TIME, false).is_err());
        assert!(extra.park(&keep("another"), PARK_TIME, false).is_ok());
    }

    #[test]
    fn cluster_session_uses_one_slot_of_its_user() {
        let table = HoldTable::new();
        let mut parked = Vec::new();
        let mut park = |owner: &str, family: Option<u8>| {
            let worker = parked.len().to_string();
            let hold = table
                .acquire(&open(&worker, Some("7")), Hex([1; 8]))
                .unwrap();
            let keep = ParkTerms {
                cluster_session: family.map(|family| Hex([family; 8])),
                ..keep(owner)
            };
            let requests = hold.park(&keep, PARK_TIME, false);
            let is_kept = requests.is_ok();
            parked.push((hold, requests));
            is_kept
        };
        for _ in 0..SESSIONS_PER_SLOT {
            assert!(park("ada", Some(1)));
        }
        for _ in 0..SLOTS_PER_USER - 2 {
            assert!(park("ada", None));
        }
        // The last slots go to requests that need only one.
        assert!(park("ada", Some(1)));
        assert!(!park("ada", None) && !park("ada", Some(2)));
        assert!(park("ada", Some(1)));
        // Other users have their own share, and without authentication there are no shares.
        assert!(park("bob", Some(1)));
        for _ in 0..=SLOTS_PER_USER {
            assert!(park("", None));
        }
    }

    #[test]
    fn rows_of_kept_workers_fit_one_message() {
        let table = HoldTable::new();
        let longest_open = |n: usize| {
            let mut open = open(&format!("{n:056}"), Some("7"));
            let quotes = "\"".repeat(128);
            open.holder = Some(WorkerTaker {
                name: quotes.as_str().into(),
                session: quotes.as_str().into(),
                client: quotes.as_str().into(),
                peer: Some("[ffff::ffff:ffff:ffff:ffff]:65535".parse().unwrap()),
            });
            open
        };
        let mut holds = Vec::new();
        let mut parked_count = 0;
        for n in 0..MAX_ROWS {
            let hold = table.acquire(&longest_open(n), Hex([1; 8])).unwrap();
            let owner = format!("{n:03}{}", "\"".repeat(253));
            let requests = hold.park(&keep(&owner), PARK_TIME, false);
            parked_count += usize::from(requests.is_ok());
            holds.push((hold, requests));
        }
        assert!(
            (40..MAX_KEPT_WORKERS).contains(&parked_count),
            "{parked_count}"
        );
        let workers = table.watch().borrow().to_vec();
        assert_eq!(workers.len(), MAX_ROWS);
        let message = written(&FromAgent::Held { workers });
        assert!(message.len() <= MAX_MESSAGE_BYTES, "{}", message.len());
    }
}
