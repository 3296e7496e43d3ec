//! Looks up what paused workers run and where they stopped, one task for each cluster.
//!
//! Each breakpoint in the core stores which lookups are due and when, so the lookups of a worker that is gone
//! disappear with it; a late response is dropped by its stop number. At most one query about many workers,
//! [`MAX_NAMES`] about one and [`MAX_STACKS`] for stacks are in flight. Their results are applied together, at most
//! every [`PACE`] and in parts of [`CHUNK`]: each change of the list is a new list for all who follow it.

mod answer;
mod asker;

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
pub(super) use asker::of_worker;
use asker::{LookupClient, Many};

/// Concurrent queries about one worker's names.
const MAX_NAMES: usize = 4;

/// Concurrent stack dumps: each stops a worker for tens of milliseconds.
const MAX_STACKS: usize = 2;

/// Number of workers from which on one request queries all running tasks.
const BATCH: usize = 8;

/// How long a head may take to look up tasks before its actors are queried as well.
const SLOW: Duration = Duration::from_secs(1);

/// Pause before a head that refuses stack dumps is asked for one again.
const REFUSED: Duration = Duration::from_secs(600);

/// Least time between two lists that differ only by lookups.
const PACE: Duration = Duration::from_millis(50);

/// Results that are applied under one lock: fewer than the events that a listener may lag behind.
const CHUNK: usize = 256;

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
    let asker = LookupClient::new(head);
    let mut out = LookupOut::default();
    let mut flights: FuturesUnordered<Flight<'_>> = FuturesUnordered::new();
    // Bounded by the list: each breakpoint is in one of them at most once.
    let mut together: Vec<Target> = Vec::new();
    let mut singly: VecDeque<Target> = VecDeque::new();
    let mut answers: Vec<LookupAnswer> = Vec::new();
    let mut published: Option<Instant> = None;
    let mut no_stacks_until: Option<Instant> = None;
    loop {
        let now = Instant::now();
        together.extend(shared.with(|state| state.due_names(cluster, now)));
        if together.len() < BATCH {
            singly.extend(together.drain(..));
        } else if !out.many {
            out.many = true;
            let targets = std::mem::take(&mut together);
            let named = CancellationToken::new();
            flights.push(Box::pin(while_unnamed(
                named.clone(),
                asker,
                targets.clone(),
            )));
            flights.push(Box::pin(async move {
                let _named = named.drop_guard();
                Landed::Many(asker.name_many(targets).await)
            }));
        }
        while out.names < MAX_NAMES
            && let Some(target) = singly.pop_front()
        {
            out.names += 1;
            let named = CancellationToken::new();
            let targets = vec![target.clone()];
            flights.push(Box::pin(while_unnamed(named.clone(), asker, targets)));
            flights.push(Box::pin(async move {
                let _named = named.drop_guard();
                Landed::One(asker.name_one(target).await)
            }));
        }
        let may_ask = no_stacks_until.is_none_or(|until| until <= now);
        while shared.settings.locations
            && may_ask
            && out.stacks < MAX_STACKS
            && let Some(target) = shared.with(|state| state.due_location(cluster))
        {
            out.stacks += 1;
            flights.push(Box::pin(async move {
                let (answer, refused) = asker.locate(target).await;
                Landed::Stack { answer, refused }
            }));
        }
        let publish = published.map_or(now, |at| at + PACE);
        if !answers.is_empty() && publish <= now {
            take_in(shared, cluster, std::mem::take(&mut answers)).await;
            published = Some(Instant::now());
            continue;
        }
        let due = shared.with(|state| state.next_names(cluster));
        let due = due.unwrap_or_else(|| now + Duration::from_secs(3600));
        tokio::select! {
            Some(landed) = flights.next(), if !flights.is_empty() => match landed {
                Landed::Many(many) => {
                    out.many = false;
                    answers.extend(many.answers);
                    singly.extend(many.left);
                }
                Landed::One(answer) => {
                    out.names -= 1;
                    answers.push(answer);
                }
                Landed::Actors(actors) => answers.extend(actors),
                Landed::Stack { answer, refused } => {
                    out.stacks -= 1;
                    answers.push(answer);
                    if refused {
                        no_stacks_until = Some(Instant::now() + REFUSED);
                    }
                }
            },
            () = handle.lookup_now.notified() => {}
            () = tokio::time::sleep_until(due) => {}
            () = tokio::time::sleep_until(publish), if !answers.is_empty() => {}
        }
    }
}

/// Looks up the actors among `targets` if the head is slow to return their tasks, until they are `named`.
async fn while_unnamed(
    named: CancellationToken,
    asker: LookupClient<'_>,
    targets: Vec<Target>,
) -> Landed {
    let asked = async {
        sleep(SLOW).await;
        asker.name_actors(targets).await
    };
    let actors = named.run_until_cancelled(asked).await;
    Landed::Actors(actors.unwrap_or_default())
}

/// Looks up the worker `target` at once, without recording the result.
pub(super) async fn found_now(head: &HeadClient, target: Target) -> Option<Found> {
    match LookupClient::new(head).name_one(target).await {
        LookupAnswer::Names(_, found) => found.map(|found| *found),
        LookupAnswer::Actor(..) | LookupAnswer::Stack(..) => None,
    }
}

/// Queries in flight.
#[derive(Default)]
struct LookupOut {
    many: bool,
    names: usize,
    stacks: usize,
}

/// Publishes lookup results. Yields between parts, so that others can use the core, and listeners of events keep up.
async fn take_in(shared: &Shared, cluster: Cluster, mut answers: Vec<LookupAnswer>) {
    let (release, name) = (shared.release.get(), &shared.clusters.at(cluster).name);
    while !answers.is_empty() {
        let rest = answers.split_off(answers.len().min(CHUNK));
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
