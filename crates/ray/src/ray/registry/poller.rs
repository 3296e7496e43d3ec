//! Polls one cluster's head for as long as the registry runs.
//!
//! One request each interval, on a schedule of its own: the duration of a response does not move the next poll.
//! Queries that a poll leaves open (the nodes, vanished workers) run next to the polls
//! ([`crate::ray::registry::follow`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::bounded::{MAX_ID_BYTES, MAX_ROW_BYTES};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::follow::{Follow, PollResult};
use crate::ray::registry::nodes::Nodes;
use crate::ray::registry::query::AnswerDigest;
use crate::ray::registry::rows::{MAX_QUERY_ROWS, QueryResult, WorkerRow};
use crate::ray::registry::shared::Shared;
use crate::ray::registry::state::{Cluster, Now};
use crate::ray::registry::{Change, PollOutcome, query};
use ray_relay_base::wire::backoff::Backoff;

/// How long a new breakpoint may wait for its node's state before it is listed without.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Least time from the beginning of a poll to the next, however many sessions end.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The same as a multiple of the duration of the last one: however many sessions end, a large cluster is polled for a
/// quarter of the time at most.
const POLL_INTERVAL_FACTOR: u32 = 4;

/// Interval of checks whether an unresponsive head is back, unless polls are rarer anyway.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The poller of one cluster's head.
struct Poller<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    head: &'a HeadClient,
    handle: Arc<ClusterHandle>,
    nodes: &'a Nodes<'a>,
    polls: watch::Sender<PollResult>,
    /// The digest of the last response, as long as it is the one that was applied last.
    answer: Option<AnswerDigest>,
    /// When the last poll was sent to which the head responded.
    listed: Option<Instant>,
    /// For failed polls.
    backoff: Backoff,
    /// Whether the head could not be reached at all, or did not respond to the last cheap check, so that a response
    /// would be news.
    away: bool,
    /// Whether the incompleteness of the list has been logged.
    incomplete: bool,
}

/// Polls, and runs the follow-up queries, until dropped.
pub(super) async fn run(shared: &Shared, cluster: Cluster, head: &HeadClient) {
    let nodes = Nodes::new(shared, cluster, head);
    let (polls, follows) = watch::channel(PollResult::default());
    let (interval, backoff_max) = (shared.settings.poll_interval, shared.settings.backoff_max);
    let poller = Poller {
        shared,
        cluster,
        head,
        handle: shared.clusters.at(cluster),
        nodes: &nodes,
        polls,
        answer: None,
        listed: None,
        backoff: Backoff::new(interval, backoff_max.max(interval)),
        away: false,
        incomplete: false,
    };
    let follow = Follow::new(shared, cluster, head, &nodes, follows);
    tokio::join!(poller.run(), follow.run());
}

impl Poller<'_> {
    async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let started = Instant::now();
            let scheduled = self.backoff.is_fresh();
            ray_relay_base::fault::strike("registry");
            let ok = self.poll().await;
            self.handle.polled(started);
            let now = Instant::now();
            let spacing = MIN_POLL_INTERVAL.max((now - started) * POLL_INTERVAL_FACTOR);
            let interval = self.shared.settings.poll_interval;
            due = if ok {
                // A poll out of turn leaves the schedule alone. A head that is slower than the schedule gets a pause,
                // not the missed polls.
                let next = match scheduled {
                    true if started < due => due,
                    true => due + interval,
                    // The pause of an unresponsive head is no schedule for a responsive one.
                    false => started + interval,
                };
                next.max(now + interval / 4)
            } else {
                now + self.backoff.pause().max(MIN_POLL_INTERVAL)
            };
            let handle = Arc::clone(&self.handle);
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                // Dropped together with its query, whose response is lost then.
                () = self.is_back(), if !ok => {}
                () = handle.poll_now.notified() => {
                    tokio::time::sleep_until((started + spacing).min(due)).await;
                }
            }
        }
    }

    /// Resolves when an unresponsive head responds again: between polls that become rare, the cheapest query (0.3 to 1
    /// ms for a head) is sent each second. A head that responds to it all along has another problem, and keeps its
    /// pauses.
    async fn is_back(&mut self) {
        loop {
            let pause = PROBE_INTERVAL.max(self.shared.settings.poll_interval);
            // Relays that lost the same head do not return to it in step.
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
            let answer = tokio::time::timeout(pause, query::version(self.head)).await;
            let answers = matches!(answer, Ok(Ok(_)));
            if std::mem::replace(&mut self.away, !answers) && answers {
                return;
            }
        }
    }

    /// Polls once; returns whether the head responded.
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
            Ok(news) => {
                let recovered = self.answered();
                match news {
                    Some(list) => self.apply_response(list, sent, recovered).await,
                    None => self.same(sent, recovered),
                }
                self.listed = Some(sent);
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    /// The list; `None` if it equals the last applied one byte for byte, and would change nothing.
    async fn paused_workers(&mut self) -> Result<Option<QueryResult<WorkerRow>>, HeadError> {
        let body = query::paused_workers(self.head).await?;
        // A head sends all rows in order, each second, and parsing thousands of them takes longer than everything else
        // here.
        let is_settled = self.shared.with(|state| state.is_settled(self.cluster));
        let known = self.answer.take().filter(|_| is_settled);
        let news = query::news(self.head, body, known).await?;
        let (list, digest) =
            news.map_or((None, known), |(list, digest)| (Some(list), Some(digest)));
        self.answer = digest;
        Ok(list)
    }

    /// Records that the head has responded; returns whether the polls before had failed.
    fn answered(&mut self) -> bool {
        let recovered = !self.backoff.is_fresh();
        self.backoff.reset();
        if recovered {
            tracing::info!(cluster = %self.handle.name, head = self.head.address(), "the Ray head answers again");
        }
        self.away = false;
        recovered
    }

    /// Handles a response that equals the last one.
    fn same(&self, sent: Instant, recovered: bool) {
        self.shared
            .status(self.cluster, |status| status.answered(Instant::now()));
        self.followed(Vec::new(), sent, recovered);
    }

    /// Passes the open items of the poll to the follow-up tasks.
    fn followed(&self, vanished: Vec<String>, sent: Instant, recovered: bool) {
        self.handle.lookup_now.notify_one();
        self.polls.send_replace(PollResult {
            vanished,
            sent: Some(sent),
            recovered,
        });
    }

    async fn apply_response(
        &mut self,
        list: QueryResult<WorkerRow>,
        sent: Instant,
        recovered: bool,
    ) {
        let mut lacking = Lacking::of(&list);
        let rows = list.into_rows();
        lacking.nameless = rows.iter().filter(|row| row.worker_id.is_empty()).count();
        let unusable =
            |row: &&WorkerRow| row.is_alive && row.paused_threads() > 0 && row.debugger().is_none();
        for row in rows.iter().filter(unusable) {
            tracing::debug!(worker = %row.worker_id, ip = %row.ip, port = row.debugger_port, "a paused worker without a usable address is left out");
        }
        let cluster = self.cluster;
        if self.shared.with(|state| state.wants_nodes(cluster, &rows)) {
            // A lost node's workers would flicker: listed first and removed a moment later.
            let _ = tokio::time::timeout(NODE_TIMEOUT, self.nodes.check()).await;
        }
        let mut response = self
            .shared
            .with(|state| state.begin_workers(cluster, &rows, sent));
        let mut new = 0;
        while response.has_more() {
            new += self.shared.change(|state, now| {
                let changes = state.apply_workers(cluster, &mut response, now);
                let new = changes.iter().filter(|(c, _)| *c == Change::Appeared);
                let new = new.count();
                (changes, new)
            });
            tokio::task::yield_now().await;
        }
        let questions = self
            .shared
            .with(|state| state.end_workers(cluster, response, Now::now()));
        let incomplete = self.incomplete(&Lacking {
            refused: questions.refused,
            ..lacking
        });
        if let (Some(observer), Some(before)) = (self.shared.observer.get(), self.listed) {
            let before = before.elapsed();
            (0..new).for_each(|_| observer.listed(&self.handle.name, before));
        }
        self.shared.status(cluster, |status| {
            status.answered(Instant::now());
            status.incomplete = incomplete;
        });
        self.followed(questions.vanished, sent, recovered);
    }

    fn failed(&mut self, error: &HeadError) {
        if self.backoff.is_fresh() {
            tracing::warn!(cluster = %self.handle.name, %error, "cannot poll the Ray head; the last list is kept");
        }
        // A head that times out may have been unreachable before; the checks in between know.
        self.away |= PollOutcome::from(error) == PollOutcome::Unreachable;
        let trouble = error.to_string();
        self.shared
            .status(self.cluster, |status| status.trouble = Some(trouble));
    }

    /// The reason why the list lacks some breakpoints, if it does; logged when it begins.
    fn incomplete(&mut self, lacking: &Lacking) -> Option<String> {
        let sentence = lacking.sentence();
        let was_logged = std::mem::replace(&mut self.incomplete, sentence.is_some());
        if let Some(sentence) = sentence.as_ref().filter(|_| !was_logged) {
            tracing::warn!(cluster = %self.handle.name, "{sentence}");
        }
        sentence
    }
}

/// The part of a head's response that is not in the list.
#[derive(Default)]
struct Lacking {
    /// Number of all workers of the head, if it returns only a part of them.
    cut: Option<u64>,
    /// Rows beyond the limit, and rows that are too long.
    left_out: usize,
    /// Rows without an id, or with one that is too long.
    nameless: usize,
    /// Rows for which the cluster has no space.
    refused: usize,
}

impl Lacking {
    fn of(list: &QueryResult<WorkerRow>) -> Self {
        Self {
            cut: list.is_cut().then(|| list.total.unwrap_or_default()),
            left_out: list.left_out(),
            ..Self::default()
        }
    }

    fn sentence(&self) -> Option<String> {
        let odd = self.left_out + self.nameless;
        if odd > 0 {
            return Some(format!(
                "the Ray head sent {odd} rows that the relay refuses, so breakpoints may be missing from this list. It takes {MAX_QUERY_ROWS}, of {} KiB at most and with ids of {MAX_ID_BYTES} characters at most; is it a Ray head that answers at that address?",
                MAX_ROW_BYTES >> 10
            ));
        }
        if let Some(total) = self.cut {
            return Some(format!(
                "the Ray head looks at {MAX_QUERY_ROWS} of its {total} workers only, so breakpoints may be missing from this list. Let some that are in it run on (`ray-relay release`), or use Ray 2.38 or newer, which looks at paused workers alone"
            ));
        }
        (self.refused > 0).then(|| {
            format!(
                "{} more workers are paused than the {MAX_QUERY_ROWS} of one cluster that the relay lists; let some that are listed \
                 run on (`ray-relay release`)",
                self.refused
            )
        })
    }
}
