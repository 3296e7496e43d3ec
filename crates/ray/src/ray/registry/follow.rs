//! Queries that a poll leaves open: why workers vanished, which nodes are lost, the Ray version. And for a suspected
//! node, whether tasks there still wait.
//!
//! They run next to the polls and not between them, so that a slow response (all workers that ever stopped take a
//! large head a second) does not make the list stale. Only the latest poll counts: open items are missing from that
//! one too.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::breakpoint::Breakpoint;
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::lookup::of_worker;
use crate::ray::registry::nodes::Nodes;
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::shared::Shared;
use crate::ray::registry::state::{Changes, Cluster};
use crate::ray::registry::{exit, query};

/// Number of vanished workers from which on one request queries all of them.
const MIN_BATCH: usize = 9;

/// Results about vanished workers that are applied under one lock.
const MAX_APPLIED_RESULTS: usize = 1000;

/// Interval of queries about a suspected node.
const SUSPECT_INTERVAL: Duration = Duration::from_secs(1);

/// Breakpoints on suspected nodes whose tasks are queried at a time, and workers whose end is to be explained.
const MAX_OVERDUE_QUERIES: usize = 32;

/// The open items of the latest poll.
#[derive(Debug, Clone, Default)]
pub(super) struct PollResult {
    /// Paused before, absent now.
    pub(super) vanished: Vec<String>,
    /// When the poll was sent.
    pub(super) sent: Option<Instant>,
    /// Whether the polls before it had failed, so that it may be another head.
    pub(super) recovered: bool,
}

/// The queries that the polls of one cluster leave open.
pub(super) struct Follow<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    head: &'a HeadClient,
    handle: Arc<ClusterHandle>,
    nodes: &'a Nodes<'a>,
    polls: watch::Receiver<PollResult>,
    version_asked: bool,
}

impl<'a> Follow<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        cluster: Cluster,
        head: &'a HeadClient,
        nodes: &'a Nodes<'a>,
        polls: watch::Receiver<PollResult>,
    ) -> Self {
        Self {
            shared,
            cluster,
            head,
            handle: shared.clusters.at(cluster),
            nodes,
            polls,
            version_asked: false,
        }
    }

    /// Runs until dropped, or until no task polls any more.
    pub(super) async fn run(mut self) {
        let mut suspected = Instant::now();
        let mut requested = false;
        loop {
            let suspects = self.handle.suspects.now();
            tokio::select! {
                changed = self.polls.changed() => match changed {
                    Ok(()) => self.after_poll().await,
                    Err(_) => return,
                },
                () = self.handle.suspects.news() => {}
                () = self.handle.nodes_now.notified() => requested = true,
                () = tokio::time::sleep_until(self.nodes.next_query_at()), if requested => {
                    requested = false;
                    self.nodes.check().await;
                }
                () = tokio::time::sleep_until(suspected), if !suspects.is_empty() => {
                    suspected = Instant::now() + SUSPECT_INTERVAL;
                    self.look_at(&suspects).await;
                }
            }
        }
    }

    /// Queries suspected nodes, if tasks wait on them or have ended without a reason.
    async fn look_at(&self, suspects: &[String]) {
        let waiting = || {
            self.shared
                .with(|state| state.waiting_on(self.cluster, suspects))
        };
        let unexplained = || {
            self.shared
                .with(|state| state.without_reason(self.cluster, Instant::now()))
        };
        if waiting().is_empty() && unexplained().is_empty() {
            return;
        }
        self.nodes.check().await;
        // Nodes that Ray lists as dead are handled by now. The tasks of a lost node fail seconds before that, while
        // the rows of their workers still say "paused".
        for breakpoint in waiting().into_iter().take(MAX_OVERDUE_QUERIES) {
            if self.has_failed(&breakpoint).await {
                let (key, stop) = (breakpoint.key(), breakpoint.stop);
                let why = exit::of_silent_node(breakpoint.node_ip);
                self.shared
                    .change(|state, now| (state.lose(self.cluster, key, stop, why, now), ()));
            }
        }
        for worker_id in unexplained().into_iter().take(MAX_OVERDUE_QUERIES) {
            match query::worker(self.head, &worker_id).await {
                Ok(list) => self.shared.change(|state, _| {
                    let rows = list.into_rows();
                    rows.iter().for_each(|row| state.explain(self.cluster, row));
                    (Changes::new(), ())
                }),
                Err(error) => self.unanswered(&error),
            }
        }
    }

    /// Whether the task of `breakpoint` has failed and its worker runs no other: on a live worker it would not wait.
    /// Also `false` if the head does not tell, as for drivers and Serve replicas.
    async fn has_failed(&self, breakpoint: &Breakpoint) -> bool {
        let (worker, Some(task)) = (&breakpoint.worker_id, &breakpoint.names.task_id) else {
            return false;
        };
        let mut attempts = match query::task(self.head, task).await {
            Ok(list) => of_worker(list.into_rows(), worker),
            Err(error) => {
                self.unanswered(&error);
                return false;
            }
        };
        attempts.retain(|row| row.task_id == *task);
        if attempts.is_empty() || attempts.iter().any(|row| row.state != "FAILED") {
            return false;
        }
        match query::tasks_of_worker(self.head, worker).await {
            Ok(list) => {
                let rows = of_worker(list.into_rows(), worker);
                rows.iter().all(|row| row.state != "RUNNING")
            }
            Err(error) => {
                self.unanswered(&error);
                false
            }
        }
    }

    async fn after_poll(&mut self) {
        let poll = self.polls.borrow_and_update().clone();
        if let Some(sent) = poll.sent {
            // Another response may have settled some meanwhile, and others may be new.
            let open = self
                .shared
                .with(|state| state.still_open(self.cluster, poll.vanished, sent));
            if !open.is_empty() {
                self.ask_vanished(&open).await;
            }
        }
        let wants_nodes = self.shared.nodes.receiver_count() > 0
            || self.shared.with(|state| state.is_busy(self.cluster));
        if wants_nodes && self.nodes.are_due() {
            self.nodes.check().await;
        }
        if poll.recovered || !self.version_asked {
            self.ask_version().await;
        }
    }

    /// Released or died? One request for each that vanished, or one for all if there are many.
    async fn ask_vanished(&self, vanished: &[String]) {
        if vanished.len() >= MIN_BATCH {
            let sent = Instant::now();
            match query::stopped_workers(self.head).await {
                Ok(list) => {
                    let complete = !list.truncated();
                    self.vanished(vanished, &list.into_rows(), complete, sent)
                        .await;
                }
                Err(error) => self.unanswered(&error),
            }
            return;
        }
        for worker_id in vanished {
            let sent = Instant::now();
            match query::worker(self.head, worker_id).await {
                Ok(list) => {
                    let complete = !list.truncated();
                    let worker_ids = std::slice::from_ref(worker_id);
                    self.vanished(worker_ids, &list.into_rows(), complete, sent)
                        .await;
                }
                // They are still absent at the next poll, and queried again.
                Err(error) => return self.unanswered(&error),
            }
        }
    }

    async fn vanished(
        &self,
        worker_ids: &[String],
        rows: &[WorkerRow],
        complete: bool,
        sent: Instant,
    ) {
        let rows = rows.iter().map(|row| (&*row.worker_id, row)).collect();
        for part in worker_ids.chunks(MAX_APPLIED_RESULTS) {
            self.shared.change(|state, now| {
                let changes = state.apply_vanished(self.cluster, part, &rows, complete, sent, now);
                (changes, ())
            });
            tokio::task::yield_now().await;
        }
    }

    async fn ask_version(&mut self) {
        match query::version(self.head).await {
            Ok(version) => {
                self.version_asked = true;
                self.shared
                    .status(self.cluster, |status| status.ray_version = Some(version));
            }
            Err(error) => self.unanswered(&error),
        }
    }

    fn unanswered(&self, error: &HeadError) {
        tracing::debug!(cluster = %self.handle.name, %error, "a question to the Ray head stays open until the next poll");
    }
}
