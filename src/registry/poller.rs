//! Polls one cluster's head for as long as the registry runs.
//!
//! One request each interval, on a schedule of its own: how long an answer takes does not move the
//! next poll. Questions that a poll leaves (the nodes, workers that vanished) are asked in between.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::gcs::GcsError;
use super::rows::{LIMIT, List, WorkerRow};
use super::shared::{ClusterHandle, Shared};
use super::state::Cluster;
use super::{PollOutcome, query};
use crate::config::Discovery;
use crate::head::{HeadClient, HeadError};

/// From so many vanished workers on, all of them are asked for at once.
const BATCH: usize = 9;

/// How long a new breakpoint may wait for its node's state before it is listed without.
const NODE_PATIENCE: Duration = Duration::from_secs(1);

/// Least time between two polls, however many sessions end.
const SPACING: Duration = Duration::from_millis(50);

/// Why a poll failed.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(transparent)]
    Gcs(#[from] GcsError),
}

impl From<&PollError> for PollOutcome {
    fn from(error: &PollError) -> Self {
        match error {
            PollError::Head(error) => error.into(),
            PollError::Gcs(error) => error.into(),
        }
    }
}

/// See the module.
pub(super) struct Poller<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    head: &'a HeadClient,
    handle: &'a ClusterHandle,
    failures: u32,
    nodes_checked: Option<Instant>,
    version_asked: bool,
    truncated: bool,
}

impl<'a> Poller<'a> {
    pub(super) fn new(shared: &'a Shared, cluster: Cluster, head: &'a HeadClient) -> Self {
        Self {
            shared,
            cluster,
            head,
            handle: &shared.clusters[cluster],
            failures: 0,
            nodes_checked: None,
            version_asked: false,
            truncated: false,
        }
    }

    /// Runs until cancelled by dropping it.
    pub(super) async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let started = Instant::now();
            let ok = self.poll().await;
            self.handle.polled(started);
            let now = Instant::now();
            let interval = self.shared.settings.poll_interval;
            due = if ok {
                // A poll out of turn leaves the schedule alone. A head that is slower than the
                // schedule gets a pause, not the missed polls.
                let next = if started < due { due } else { due + interval };
                next.max(now + interval / 4)
            } else {
                now + backoff(self.failures, interval, self.shared.settings.backoff_max)
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.handle.poll_now.notified() => {
                    tokio::time::sleep_until((started + SPACING).min(due)).await;
                }
            }
        }
    }

    /// Whether the head answered.
    async fn poll(&mut self) -> bool {
        let sent = Instant::now();
        let answer = self.paused_workers().await;
        let latency = sent.elapsed();
        let outcome = answer
            .as_ref()
            .map_or_else(PollOutcome::from, |_| PollOutcome::Ok);
        if let Some(observer) = self.shared.observer.get() {
            observer.polled(&self.handle.name, outcome, latency);
        }
        match answer {
            Ok(list) => {
                self.take_in(list, sent).await;
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    async fn paused_workers(&self) -> Result<List<WorkerRow>, PollError> {
        match (self.shared.settings.discovery, &self.handle.gcs) {
            (Discovery::Gcs, Some(gcs)) => Ok(gcs.paused_workers().await?),
            _ => Ok(query::paused_workers(self.head).await?),
        }
    }

    async fn take_in(&mut self, list: List<WorkerRow>, sent: Instant) {
        let recovered = self.failures > 0;
        if recovered {
            tracing::info!(cluster = %self.handle.name, head = self.head.address(), "the Ray head answers again");
        }
        self.failures = 0;
        self.warn_of_truncation(&list);
        let rows = list.into_rows();
        let unusable =
            |row: &&WorkerRow| row.is_alive && row.paused_threads() > 0 && row.debugger().is_none();
        for row in rows.iter().filter(unusable) {
            tracing::debug!(worker = %row.worker_id, ip = %row.ip, port = row.debugger_port, "a paused worker without a usable address is left out");
        }
        let cluster = self.cluster;
        if self.shared.with(|state| state.wants_nodes(cluster, &rows)) {
            // Listed first and struck off a moment later, a lost node's workers would flicker.
            let _ = tokio::time::timeout(NODE_PATIENCE, self.check_nodes()).await;
        }
        let questions = self
            .shared
            .change(|state, now| state.apply_workers(cluster, &rows, sent, now));
        self.shared
            .status(cluster, |status| status.answered(Instant::now()));
        self.handle.lookup_now.notify_one();
        if !questions.vanished.is_empty() {
            self.ask_vanished(&questions.vanished).await;
        }
        let interval = self.shared.settings.node_interval;
        if self.nodes_checked.is_none_or(|at| at.elapsed() >= interval)
            && self.shared.with(|state| state.is_busy(cluster))
        {
            self.check_nodes().await;
        }
        if recovered || !self.version_asked {
            self.ask_version().await;
        }
    }

    /// Released or died? Asked once for each that vanished, or once for all when they are many.
    async fn ask_vanished(&self, vanished: &[String]) {
        if vanished.len() >= BATCH {
            let sent = Instant::now();
            match query::stopped_workers(self.head).await {
                Ok(list) => {
                    let complete = !list.truncated();
                    self.vanished(vanished, &list.into_rows(), complete, sent);
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
                    let asked = std::slice::from_ref(worker_id);
                    self.vanished(asked, &list.into_rows(), complete, sent);
                }
                // They are still absent at the next poll, and asked for again.
                Err(error) => return self.unanswered(&error),
            }
        }
    }

    fn vanished(&self, asked: &[String], rows: &[WorkerRow], complete: bool, sent: Instant) {
        self.shared.change(|state, now| {
            (
                state.apply_vanished(self.cluster, asked, rows, complete, sent, now),
                (),
            )
        });
    }

    async fn check_nodes(&mut self) {
        match query::nodes(self.head).await {
            Ok(list) => {
                self.nodes_checked = Some(Instant::now());
                let rows = list.into_rows();
                self.shared
                    .change(|state, now| (state.apply_nodes(self.cluster, &rows, now), ()));
            }
            Err(error) => self.unanswered(&error),
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

    fn failed(&mut self, error: &PollError) {
        if self.failures == 0 {
            tracing::warn!(cluster = %self.handle.name, %error, "cannot poll the Ray head; the last list is kept");
        }
        self.failures = self.failures.saturating_add(1);
        let trouble = error.to_string();
        self.shared
            .status(self.cluster, |status| status.trouble = Some(trouble));
    }

    fn unanswered(&self, error: &HeadError) {
        tracing::debug!(cluster = %self.handle.name, %error, "a question to the Ray head stays open until the next poll");
    }

    fn warn_of_truncation(&mut self, list: &List<WorkerRow>) {
        let truncated = list.truncated();
        if truncated && !self.truncated {
            tracing::warn!(
                cluster = %self.handle.name,
                total = list.total,
                "the Ray head looks at {LIMIT} of its workers only, so breakpoints may be missing from the list; Ray 2.38 and later do not have this limit"
            );
        }
        self.truncated = truncated;
    }
}

/// A random pause up to a bound that doubles with each failure ("full jitter"), so that relays
/// that lost the same head do not return to it in step.
fn backoff(failures: u32, interval: Duration, longest: Duration) -> Duration {
    let bound = interval
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(longest.max(interval));
    bound
        .mul_f64(rand::rng().random_range(0.0..1.0))
        .max(SPACING)
}
