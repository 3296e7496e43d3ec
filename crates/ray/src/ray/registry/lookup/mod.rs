//! Looks up what paused workers run and where they stopped, one task for each cluster.
//!
//! What is wanted and when lies with each breakpoint in the core, so a lookup for a worker that
//! has gone is not there any more; an answer that comes late is dropped by its number of
//! the stop. One question about many workers, [`MAX_NAMES`] about one and [`MAX_STACKS`] for stacks
//! are out at a time. What they find is taken in together, at most every [`PACE`] and [`CHUNK`] at a
//! time: each change of the list is a new list for all who follow it.

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

/// Questions about one worker's names at a time.
const MAX_NAMES: usize = 4;

/// Stack dumps at a time: each stops a worker for tens of milliseconds.
const MAX_STACKS: usize = 2;

/// The number of workers from which on all running tasks are asked for in one request.
const BATCH: usize = 8;

/// How long a head may look for tasks until its actors are asked for as well.
const SLOW: Duration = Duration::from_secs(1);

/// How long a head that refuses stack dumps is not asked again for one.
const REFUSED: Duration = Duration::from_secs(600);

/// Least time between two lists that differ by what was looked up.
const PACE: Duration = Duration::from_millis(50);

/// Answers that are taken in under one lock: fewer than events that a listener may lag behind.
const CHUNK: usize = 256;

type Flight<'a> = Pin<Box<dyn Future<Output = Landed> + Send + 'a>>;

/// A question that has come back.
enum Landed {
    Many(Many),
    One(LookupAnswer),
    Actors(Vec<LookupAnswer>),
    Stack { answer: LookupAnswer, refused: bool },
}

/// Runs until cancelled by dropping it.
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

/// Asks for the actors among `targets` where the head is slow to say what they run, until they are `named`.
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

/// What the worker `target` runs, asked for at once and entered nowhere.
pub(super) async fn found_now(head: &HeadClient, target: Target) -> Option<Found> {
    match LookupClient::new(head).name_one(target).await {
        LookupAnswer::Names(_, found) => found.map(|found| *found),
        LookupAnswer::Actor(..) | LookupAnswer::Stack(..) => None,
    }
}

/// Questions that are out.
#[derive(Default)]
struct LookupOut {
    many: bool,
    names: usize,
    stacks: usize,
}

/// Publishes what was found out. Gives way between the parts, so that others have the core in between, and those who
/// follow the events keep up.
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
