//! Failed tasks: the list of those whose stacks agents keep (`GET /relay/v1/tasks?state=failed`), and the snapshot of
//! one (`POST /relay/v1/looks` with `{"failed": "ID"}`). The answer has the format for running tasks.

use std::time::{Duration, SystemTime};

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::choice::TaskChoice;
use super::rights::may;
use super::shown::{LooksAnswer, held, record_inspection, shown, text_of};
use super::view_permission;
use crate::http::answer::{self, Body};
use crate::http::audit;
use crate::http::exchange::Exchange;
use crate::http::refusal::HttpRefusal;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_session::agents::Failed;
use ray_relay_session::context::Context;
use ray_relay_view::listing::fold::inspected::InspectedProcess;
use ray_relay_view::listing::running::{FailedRow, Failure};

const AGENT_TIMEOUT: Duration = Duration::from_secs(8);

/// The kept failures, latest first, that `choice` selects and `principal` may list.
pub(super) fn rows(ctx: &Context, principal: &Principal, choice: &TaskChoice) -> Vec<Value> {
    let now = SystemTime::now();
    let mut rows = Vec::new();
    for failed in ctx.peers.agents.failures() {
        let of_cluster = choice.fits_cluster(&failed.task.cluster);
        if !of_cluster
            || !choice.fits_job(&failed.task)
            || !may(principal, Scope::List, &failed.task)
        {
            continue;
        }
        let row = row(&failed, now);
        if choice.fits(&failed.task, &row, now) {
            rows.push(row);
        }
    }
    rows
}

fn row(failed: &Failed, now: SystemTime) -> Value {
    let failure = Failure {
        id: &failed.id,
        exception: &failed.exception,
        location: failed.location.as_ref(),
        at: failed.at,
    };
    json!(FailedRow::new(&failed.task, failure, now))
}

/// Answers with the kept snapshot `id`, as `principal` may see it. It is audited before it is fetched.
pub(super) async fn look(
    exchange: &Exchange<'_>,
    principal: &Principal,
    id: &str,
    locals: bool,
) -> Result<Response<Body>, HttpRefusal> {
    let ctx = exchange.ctx;
    let known = |scope| {
        let mut all = ctx.peers.agents.failures().into_iter();
        all.find(|failed| failed.id == id && may(principal, scope, &failed.task))
    };
    let Some(failed) = known(Scope::View) else {
        // Hidden and unknown tasks are answered alike.
        return match known(Scope::List) {
            Some(failed) => {
                Err(audit::deny(exchange, principal, view_permission(&failed.task)).await)
            }
            None => {
                let sentence = "no such task has failed, or what was kept of it is gone: `ray-relay list --failed` has what there is";
                Ok(answer::error(StatusCode::NOT_FOUND, sentence))
            }
        };
    };
    let task = &failed.task;
    record_inspection(exchange, principal, task, locals, Some(&failed.id)).await?;
    let stored = ctx.peers.agents.black_box(&failed, AGENT_TIMEOUT).await;
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let stored = stored.map(|stored| shown(principal, &[task], stored, locals));
    let stored = stored.map_err(|why| why.to_string());
    let inspected = InspectedProcess {
        tasks: vec![row(&failed, SystemTime::now())],
        look: stored.and_then(|stored| text_of(&stored)),
        waits_for: Vec::new(),
    };
    let response = LooksAnswer::new(vec![inspected.into()], failed.at);
    Ok(held(exchange, principal, &response))
}
