//! What a cluster session says first: what waits, and who has what is not opened.

use std::sync::Arc;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Snapshot};

pub(super) fn greeting(snapshot: &Snapshot, mine: bool) -> String {
    let opens = match mine {
        true => "sessions open for the jobs that you submitted through the relay; for others name them: `\"all\": true, \"task\": \"*JOB\"`".to_owned(),
        false => opens(snapshot),
    };
    match holders(snapshot) {
        Some(holders) => format!("{opens}; {holders}"),
        None => opens,
    }
}

/// Who has what is not opened, as the list tells it.
fn holders(snapshot: &Snapshot) -> Option<String> {
    const MAX_LISTED_HOLDERS: usize = 5;
    let now = Timestamp::now();
    let has = |b: &Arc<Breakpoint>| {
        let holder = b.holder()?;
        let held = match holder.parked_until {
            Some(until) => format!("parked by {holder} for {} more", span(now.until(until))),
            None => format!("held by {holder} for {}", span(holder.since.until(now))),
        };
        Some(format!("{} ({}) is {held}", b.title(), b.id))
    };
    let all: Vec<_> = snapshot.held().filter(|b| !is_looked_at(b)).collect();
    let mut told: Vec<_> = all
        .iter()
        .filter_map(|b| has(b))
        .take(MAX_LISTED_HOLDERS)
        .collect();
    if all.len() > MAX_LISTED_HOLDERS {
        told.push(format!(
            "and {} more are held",
            all.len() - MAX_LISTED_HOLDERS
        ));
    }
    (!told.is_empty()).then(|| told.join(", "))
}

/// Whether it is held for no longer than a look takes.
fn is_looked_at(breakpoint: &Breakpoint) -> bool {
    breakpoint.holder().is_some_and(Holder::is_snapshot)
}

fn opens(snapshot: &Snapshot) -> String {
    let looked_at = snapshot.held().filter(|b| is_looked_at(b)).count();
    match snapshot.paused().count() + looked_at {
        0 if snapshot.held().next().is_some() => "no free task waits at a breakpoint; each opens as a session of its own once it is free".to_owned(),
        0 => "no task waits at a breakpoint yet; each opens as a session of its own as it stops".to_owned(),
        1 => "1 task waits at a breakpoint; it opens as a session of its own, and so does each that stops later".to_owned(),
        n => format!("{n} tasks wait at breakpoints; each opens as a session of its own, and so does each that stops later"),
    }
}
