//! Running and failed tasks: lists and snapshots. The running ones wait at no breakpoint.
//!
//! Ray is queried only on a client's request. A task that a principal may not see is treated as missing, by the same
//! rules as breakpoints (`clusters`, `jobs`, `namespaces`, `tasks`, `nodes`).

mod choice;
mod failed;
mod hooked;
mod idle;
mod list;
pub(super) mod looks;
pub(in crate::http) mod objects;
mod shown;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::time::timeout;

pub(super) use self::list::list;
pub(super) use self::shown::held;
use super::route::RequiredPermission;
use choice::TaskChoice;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{BreakpointId, Running, RunningIn, RunningQuery};
use ray_relay_session::context::Context;
use ray_relay_view::listing::running::RunningRow;

/// Time limit for the heads to list running tasks, including earlier requests in the queue.
const HEADS_TIMEOUT: Duration = Duration::from_secs(20);

/// Error if they take longer.
const SLOW: &str = "the Ray heads do not say in time what runs; ask again in a moment, or for one cluster or job alone";

/// Running tasks in clusters where `principal` has `scope` somewhere, as preselected by `choice`. The caller has to
/// check its rights on each task. `None`: the heads take too long.
async fn running(
    ctx: &Context,
    principal: &Principal,
    scope: Scope,
    choice: &TaskChoice,
) -> Option<Vec<RunningIn>> {
    let access = principal.access();
    let on =
        |cluster: &str| choice.fits_cluster(cluster) && access.may_somewhere_on(scope, cluster);
    let query = RunningQuery {
        on: &on,
        job: choice.job.as_deref(),
    };
    timeout(HEADS_TIMEOUT, ctx.registry.running(&query))
        .await
        .ok()
}

/// Whether `principal` has `scope` on `running`.
fn may(principal: &Principal, scope: Scope, running: &Running) -> bool {
    let rights = principal.access().rights_on_running(running);
    rights.scopes.contains(scope)
}

/// The permission to take a snapshot of `running`.
fn view_permission(running: &Running) -> RequiredPermission {
    RequiredPermission {
        scope: Scope::View,
        place: format!("on {} in worker {}", running.name(), running.worker_id),
    }
}

/// The JSON of `running`, for `principal`.
fn row(ctx: &Context, principal: &Principal, running: &Running, now: SystemTime) -> Value {
    let id = BreakpointId::derive(&running.cluster, &running.worker_id);
    let list = ctx.registry.snapshot();
    let waits = list.find(id).filter(|waits| {
        *waits.worker_id == *running.worker_id
            && ray_relay_session::session::may(principal, Scope::List, waits)
    });
    json!(RunningRow::new(
        running,
        now,
        waits.map(Arc::as_ref).map(|waits| waits.id)
    ))
}

/// JSON with the status of each cluster.
fn clusters(per_cluster: &[RunningIn]) -> Value {
    let statuses = per_cluster.iter().map(
        |one| json!({ "name": *one.cluster, "trouble": one.trouble, "complete": one.complete }),
    );
    statuses.collect()
}
