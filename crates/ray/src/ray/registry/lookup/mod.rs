//! Looks up what paused workers run and where they stopped, one task for each cluster.
//!
//! Each breakpoint in the core stores which lookups are due and when, so the lookups of a worker that is gone
//! disappear with it; a late response is dropped by its stop number. At most one query about many workers,
//! [`MAX_NAME_QUERIES`] about one and [`MAX_STACK_DUMPS`] for stacks are in flight. Their results are applied together,
//! at most every [`MIN_PUBLISH_INTERVAL`] and in parts of [`MAX_APPLIED_RESULTS`]: each change of the list is a new
//! list for all who follow it.

mod answer;
mod client;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::ray::head::HeadClient;
use crate::ray::registry::names::Found;
use crate::ray::registry::shared::Shared;
use crate::ray::registry::state::{Cluster, Target};
use answer::LookupAnswer;
pub(super) use client::of_worker;
use client::{LookupClient, Many};

/// Concurrent queries about one worker's names.
const MAX_NAME_QUERIES: usize = 4;

/// Concurrent stack dumps: each stops a worker for tens of milliseconds.
const MAX_STACK_DUMPS: usize = 2;

/// Number of workers from which on one request queries all running tasks.
const MIN_BATCH: usize = 8;

/// How long a head may take to look up tasks before its actors are queried as well.
const ACTORS_AFTER: Duration = Duration::from_secs(1);

/// Pause before a head that refuses stack dumps is asked for one again.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);

/// Least time between two lists that differ only by lookups.
const MIN_PUBLISH_INTERVAL: Duration = Duration::from_millis(50);

/// Results that are applied under one lock: fewer than the events that a listener may lag behind.
const MAX_APPLIED_RESULTS: usize = 256;

type Flight<'a> = Pin<Box<dyn Future<Output = Landed> + Send + 'a>>;

/// A completed query.
enum Landed {
    Many(Many),
    One(LookupAnswer),
    Actors(Vec<LookupAnswer>),
    Stack { answer: LookupAnswer, refused: bool },
}

/// Runs until dropped.
pub(super) async fn run(shared: &Shared, cluster: Cluster, head: &HeadClient) {
    let handle = shared.clusters.at(cluster);
    let mut queries = Queries::new(shared, cluster, head);
    let mut published: Option<Instant> = None;
    loop {
        let now = Instant::now();
        queries.start_due(now);
        let publish = published.map_or(now, |at| at + MIN_PUBLISH_INTERVAL);
        if !queries.answers.is_empty() && publish <= now {
            let answers = std::mem::take(&mut queries.answers);
            apply_answers(shared, cluster, answers).await;
            published = Some(Instant::now());
            continue;
        }
        let due = shared.with(|state| state.next_names(cluster));
        let due = due.unwrap_or_else(|| now + Duration::from_secs(3600));
        tokio::select! {
            Some(landed) = queries.flights.next(), if !queries.flights.is_empty() => {
                queries.land(landed);
            }
            () = handle.lookup_now.notified() => {}
            () = tokio::time::sleep_until(due) => {}
            () = tokio::time::sleep_until(publish), if !queries.answers.is_empty() => {}
        }
    }
}

/// The queries to one head: due, in flight, and completed but not yet applied.
struct Queries<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    client: LookupClient<'a>,
    flights: FuturesUnordered<Flight<'a>>,
    in_flight: InFlight,
    /// Workers for the next query about many. Together with `single` it is bounded by the list: each breakpoint is in
    /// one of the two at most once.
    batch: Vec<Target>,
    /// Workers that are looked up one by one.
    single: VecDeque<Target>,
    answers: Vec<LookupAnswer>,
    no_stacks_until: Option<Instant>,
}

/// Counts of the queries in flight.
#[derive(Default)]
struct InFlight {
    many: bool,
    names: usize,
    stacks: usize,
}

impl<'a> Queries<'a> {
    fn new(shared: &'a Shared, cluster: Cluster, head: &'a HeadClient) -> Self {
        Self {
            shared,
            cluster,
            client: LookupClient::new(head),
            flights: FuturesUnordered::new(),
            in_flight: InFlight::default(),
            batch: Vec::new(),
            single: VecDeque::new(),
            answers: Vec::new(),
            no_stacks_until: None,
        }
    }

    /// Starts the lookups that are due, as far as the limits allow.
    fn start_due(&mut self, now: Instant) {
        let due = self.shared.with(|state| state.due_names(self.cluster, now));
        self.batch.extend(due);
        if self.batch.len() < MIN_BATCH {
            self.single.extend(self.batch.drain(..));
        } else if !self.in_flight.many {
            self.start_many();
        }
        while self.in_flight.names < MAX_NAME_QUERIES
            && let Some(target) = self.single.pop_front()
        {
            self.start_one(target);
        }
        let may_ask = self.no_stacks_until.is_none_or(|until| until <= now);
        while self.shared.settings.locations
            && may_ask
            && self.in_flight.stacks < MAX_STACK_DUMPS
            && let Some(target) = self.shared.with(|state| state.due_location(self.cluster))
        {
            self.start_stack(target);
        }
    }

    fn start_many(&mut self) {
        self.in_flight.many = true;
        let client = self.client;
        let targets = std::mem::take(&mut self.batch);
        let named = self.start_actors(targets.clone());
        self.flights.push(Box::pin(async move {
            let _named = named.drop_guard();
            Landed::Many(client.name_many(targets).await)
        }));
    }

    fn start_one(&mut self, target: Target) {
        self.in_flight.names += 1;
        let client = self.client;
        let named = self.start_actors(vec![target.clone()]);
        self.flights.push(Box::pin(async move {
            let _named = named.drop_guard();
            Landed::One(client.name_one(target).await)
        }));
    }

    /// Starts the delayed query about actors; the returned token cancels it.
    fn start_actors(&mut self, targets: Vec<Target>) -> CancellationToken {
        let named = CancellationToken::new();
        let actors = while_unnamed(named.clone(), self.client, targets);
        self.flights.push(Box::pin(actors));
        named
    }

    fn start_stack(&mut self, target: Target) {
        self.in_flight.stacks += 1;
        let client = self.client;
        self.flights.push(Box::pin(async move {
            let (answer, refused) = client.locate(target).await;
            Landed::Stack { answer, refused }
        }));
    }

    /// Records a completed query. Its results are applied later, together with others.
    fn land(&mut self, landed: Landed) {
        match landed {
            Landed::Many(many) => {
                self.in_flight.many = false;
                self.answers.extend(many.answers);
                self.single.extend(many.remaining);
            }
            Landed::One(answer) => {
                self.in_flight.names -= 1;
                self.answers.push(answer);
            }
            Landed::Actors(actors) => self.answers.extend(actors),
            Landed::Stack { answer, refused } => {
                self.in_flight.stacks -= 1;
                self.answers.push(answer);
                if refused {
                    self.no_stacks_until = Some(Instant::now() + REFUSED_PAUSE);
                }
            }
        }
    }
}

/// Looks up the actors among `targets` if the head is slow to return their tasks, until they are `named`.
async fn while_unnamed(
    named: CancellationToken,
    client: LookupClient<'_>,
    targets: Vec<Target>,
) -> Landed {
    let actors = async {
        sleep(ACTORS_AFTER).await;
        client.name_actors(targets).await
    };
    let actors = named.run_until_cancelled(actors).await;
    Landed::Actors(actors.unwrap_or_default())
}

/// Looks up the worker `target` at once, without recording the result.
pub(super) async fn found_now(head: &HeadClient, target: Target) -> Option<Found> {
    match LookupClient::new(head).name_one(target).await {
        LookupAnswer::Names(_, found) => found.map(|found| *found),
        LookupAnswer::Actor(..) | LookupAnswer::Stack(..) => None,
    }
}

/// Publishes lookup results. Yields between parts, so that others can use the core, and listeners of events keep up.
async fn apply_answers(shared: &Shared, cluster: Cluster, mut answers: Vec<LookupAnswer>) {
    let (release, name) = (shared.release.get(), &shared.clusters.at(cluster).name);
    while !answers.is_empty() {
        let rest = answers.split_off(answers.len().min(MAX_APPLIED_RESULTS));
        let part = std::mem::replace(&mut answers, rest);
        shared.change(|state, now| {
            let changes = part
                .into_iter()
                .map(|answer| answer.timed_by(release, name))
                .flat_map(|answer| answer.apply(state, cluster, now));
            (changes.collect(), ())
        });
        tokio::task::yield_now().await;
    }
}
