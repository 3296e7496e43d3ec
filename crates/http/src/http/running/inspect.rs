//! Inspection of running processes for one principal: audited, reduced to what it may see, and bounded.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::choice::TaskChoice;
use super::objects::{self, AwaitedObjects};
use super::rights::{may, may_know};
use super::shown::{Viewer, shown, text_of};
use super::{idle, row, view_permission};
use crate::http::audit;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::tunnel::messages::Inspection;
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::{NoStack, Running, RunningIn};
use ray_relay_session::agents::{NotInspected, WorkerAt};
use ray_relay_session::context::Context;
use ray_relay_view::listing::fold::inspected::{InspectedProcess, InspectedTasks};

/// Maximum number of processes to inspect at once.
const MAX_PROCESSES: usize = 512;
/// Number of processes inspected at a time.
const MAX_CONCURRENT_INSPECTIONS: usize = 32;
/// Time limits of one snapshot, of the agent's part of it, and of all.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(8);
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
const NATIVE_TIMEOUT: Duration = Duration::from_secs(6);
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of all snapshots, in bytes of JSON.
const MAX_BYTES: usize = 24 << 20;

/// Inspects processes for one principal.
#[derive(Clone, Copy)]
pub(super) struct Inspector<'a> {
    pub(super) viewer: Viewer<'a>,
    /// Whether variables are included.
    pub(super) locals: bool,
    /// Whether Ray is asked for the objects that are waited for, and for dead actors.
    pub(super) objects: bool,
    /// Whether py-spy takes the snapshots, with native frames and child processes.
    pub(super) native: bool,
}

/// A selected process, with the tasks that run in it.
struct SelectedProcess<'a> {
    running: Vec<&'a Running>,
    /// The rows of those tasks that the principal may know of.
    rows: Vec<Value>,
}

impl Inspector<'_> {
    /// Inspects the processes that run a task that `choice` selects in `per_cluster`. `form` converts a snapshot, and
    /// returns its size in bytes.
    pub(super) async fn inspect<L>(
        self,
        per_cluster: &[RunningIn],
        choice: &TaskChoice,
        form: fn(Look) -> Result<(L, usize), String>,
    ) -> InspectedTasks<L> {
        let Viewer { ctx, principal, .. } = self.viewer;
        let all = per_cluster.iter().flat_map(|one| &one.rows);
        let mut selected = processes(ctx, principal, all, choice);
        let left_out = selected.len().saturating_sub(MAX_PROCESSES);
        selected.truncate(MAX_PROCESSES);
        let inspected: Vec<&Running> = selected
            .iter()
            .flat_map(|process| process.running.iter().copied())
            .collect();
        let classes = inspected.iter().map(|one| idle::class(one)).collect();
        let processes = self.snapshots(per_cluster, selected, form).await;
        let dead = async {
            match self.objects {
                true => idle::dead_rows(self.viewer, &inspected).await,
                false => Vec::new(),
            }
        };
        let idle = idle::rows(ctx, principal, per_cluster, &classes);
        let (mut idle, dead) = tokio::join!(idle, dead);
        idle.extend(dead);
        InspectedTasks {
            processes,
            idle,
            left_out,
        }
    }

    /// Takes the snapshots of the `selected` processes.
    async fn snapshots<L>(
        self,
        per_cluster: &[RunningIn],
        selected: Vec<SelectedProcess<'_>>,
        form: fn(Look) -> Result<(L, usize), String>,
    ) -> Vec<InspectedProcess<L>> {
        let until = Instant::now() + TIMEOUT;
        // Boxed here: as a closure of the stream they would have to be valid for every lifetime.
        let inspections = selected.into_iter().map(|process| {
            async move {
                let inspected = timeout_at(until, self.inspect_process(&process.running)).await;
                let inspected =
                    inspected.unwrap_or_else(|_| Err("there was no time left for it".to_owned()));
                let awaits = inspected
                    .as_ref()
                    .map_or_else(|_| AwaitedObjects::default(), AwaitedObjects::of);
                let cluster = process.running.first().map_or("", |one| &*one.cluster);
                (process.rows, inspected.and_then(form), (cluster, awaits))
            }
            .boxed()
        });
        let inspections: Vec<_> = inspections.collect();
        let mut inspections = stream::iter(inspections).buffered(MAX_CONCURRENT_INSPECTIONS);
        let (mut processes, mut room, mut awaited) = (Vec::new(), MAX_BYTES, Vec::new());
        while let Some((tasks, formed, awaits)) = inspections.next().await {
            let look = formed.and_then(|(look, bytes)| {
                room = room
                    .checked_sub(bytes)
                    .ok_or("the answer is too large: select fewer tasks")?;
                Ok(look)
            });
            processes.push(InspectedProcess {
                tasks,
                look,
                waits_for: Vec::new(),
            });
            awaited.push(awaits);
        }
        if self.objects {
            let awaited: Vec<_> = awaited
                .iter()
                .map(|(cluster, awaits)| (*cluster, awaits))
                .collect();
            let objects = objects::query(
                self.viewer.ctx,
                self.viewer.principal,
                per_cluster,
                &awaited,
            )
            .await;
            for (process, waits_for) in processes.iter_mut().zip(objects) {
                process.waits_for = waits_for;
            }
        }
        processes
    }

    /// Inspects the process of `running`. An error is a sentence for the client.
    async fn inspect_process(self, running: &[&Running]) -> Result<Look, String> {
        let (Viewer { principal, .. }, locals) = (self.viewer, self.locals);
        let Some(first) = running.first() else {
            return Err("nothing runs there".to_owned());
        };
        if running.iter().any(|one| !may(principal, Scope::View, one)) {
            let Some(exchange) = self.viewer.exchange else {
                return Err("the relay may not view it".to_owned());
            };
            let denied = audit::deny(exchange, principal, view_permission(first)).await;
            return Err(denied.to_string());
        }
        let recorded = self.viewer.record(first, locals).await;
        recorded.map_err(|why| why.to_string())?;
        let snapshot = self.snapshot_of(first);
        let inspected = timeout(INSPECTION_TIMEOUT, snapshot).await;
        let slow = || {
            format!(
                "it gives no answer within {} s",
                INSPECTION_TIMEOUT.as_secs()
            )
        };
        let inspected = inspected.map_err(|_| slow())??;
        Ok(shown(principal, running, inspected, locals))
    }

    /// Returns the snapshot of `running` from its node's agent, with variables, or else, for a request, from Ray's head.
    /// An error is a sentence.
    async fn snapshot_of(self, running: &Running) -> Result<Look, String> {
        let Viewer { ctx, exchange, .. } = self.viewer;
        let at = running.pid.map(|pid| WorkerAt {
            cluster: &running.cluster,
            node_id: &running.node_id,
            worker_id: &running.worker_id,
            pid,
        });
        let by_agent = match &at {
            Some(at) => {
                let (what, patience) = match self.native {
                    true => (Inspection::Native, NATIVE_TIMEOUT),
                    false => (Inspection::Look, AGENT_TIMEOUT),
                };
                let by_agent = ctx.peers.agents.look(at, what, patience).await;
                by_agent.map_err(|why| (why.to_string(), !matches!(why, NotInspected::NoAgent(_))))
            }
            None => Err((NoStack::Nowhere.to_string(), false)),
        };
        let (why, has_agent) = match by_agent {
            Ok(snapshot) => return Ok(snapshot),
            Err(why) => why,
        };
        // A snapshot of the head's says nothing about the time, and takes py-spy there.
        if exchange.is_none() {
            return Err(why);
        }
        let by_head = ctx.registry.stack(running).await;
        let by_head = by_head.map(|snapshot| Look {
            note: has_agent.then(|| why.clone()),
            ..snapshot
        });
        by_head.map_err(|head| match head {
            NoStack::Gone | NoStack::Idle | NoStack::Nowhere => head.to_string(),
            head => format!("{head}; or, with variables, by an agent of its node: {why}"),
        })
    }
}

/// The processes that run a task that `choice` selects and `principal` may know of.
fn processes<'a>(
    ctx: &Context,
    principal: &Principal,
    all: impl Iterator<Item = &'a Running>,
    choice: &TaskChoice,
) -> Vec<SelectedProcess<'a>> {
    let now = SystemTime::now();
    let mut by_worker: BTreeMap<(&str, &str), (SelectedProcess<'_>, bool)> = BTreeMap::new();
    for one in all {
        let key = (&*one.cluster, &*one.worker_id);
        let (process, is_selected) = by_worker.entry(key).or_insert_with(|| {
            let process = SelectedProcess {
                running: Vec::new(),
                rows: Vec::new(),
            };
            (process, false)
        });
        process.running.push(one);
        if may_know(principal, one) {
            let json = row(ctx, principal, one, now);
            *is_selected |= choice.fits(one, &json, now);
            process.rows.push(json);
        }
    }
    let selected = by_worker
        .into_values()
        .filter(|(_, is_selected)| *is_selected);
    selected.map(|(process, _)| process).collect()
}

/// Returns `look` with the size of its JSON.
pub(super) fn measured(look: Look) -> Result<(Look, usize), String> {
    let bytes = text_of(&look)?.get().len();
    Ok((look, bytes))
}
