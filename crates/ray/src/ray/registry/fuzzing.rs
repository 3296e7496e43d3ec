//! The way for `fuzz/` into the registry's pure core. No part of the interface.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::ray::registry::breakpoint::{Breakpoint, Names};
use crate::ray::registry::rows::{ActorRow, Envelope, JobRow, NodeRow, TaskRow, WorkerRow};
use crate::ray::registry::state::{Now, State};
use crate::ray::registry::{names, traceback};

/// The live breakpoints after the responses `workers` and `nodes` to a first poll.
pub fn polled(workers: &[u8], nodes: &[u8]) -> Vec<Arc<Breakpoint>> {
    let now = Now::now();
    let mut state = State::new([Arc::from("default")], Duration::from_secs(600));
    let workers: Vec<WorkerRow> = rows(workers);
    let mut response = state.begin_workers(0, &workers, now.instant);
    while response.has_more() {
        state.apply_workers(0, &mut response, now);
    }
    state.end_workers(0, response, now);
    let nodes: Vec<NodeRow> = rows(nodes);
    state.apply_nodes(0, &nodes, now);
    state
        .publish(now.instant)
        .map_or_else(Vec::new, |lists| lists.live.iter().cloned().collect())
}

/// Reads `text` as each of the answers that names are looked up in.
pub fn looked_up(text: &[u8]) {
    names::of_tasks(&rows::<TaskRow>(text));
    for actor in rows::<ActorRow>(text) {
        names::of_actor(&actor);
        names::add_actor(&mut Names::default(), &actor);
    }
    for job in serde_json::from_slice::<Vec<JobRow>>(text).unwrap_or_default() {
        names::of_driver(&job.job_id, Some(&job));
    }
    if let Ok(text) = std::str::from_utf8(text) {
        traceback::of_dump(text);
        traceback::of_post_mortem(text);
        names::job_of_driver(text);
    }
}

fn rows<T: DeserializeOwned>(text: &[u8]) -> Vec<T> {
    let envelope: Option<Envelope<T>> = serde_json::from_slice(text).ok();
    let list = envelope.and_then(|envelope| envelope.into_list().ok());
    list.map_or_else(Vec::new, |list| {
        let _ = list.truncated();
        list.into_rows()
    })
}
