//! `GET /relay/v1/tasks`: the running tasks, a page at a time.
//!
//! The answer is `{"tasks": [ROW], "total", "next", "clusters": [{"name", "trouble", "complete"}], "jobs": [JOB]}`. A
//! job is listed while tasks of it are paused ([`standing`]). Rows are at most a second old by Ray's report; pages use
//! an order in which a row keeps its position.
//!
//! With `hook=true` each row tells whether its worker has the [hook](super::hooked). With `state=failed` the answer
//! lists the failed tasks that agents keep, latest first and in one page.

use std::time::SystemTime;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;

use super::choice::TaskChoice;
use super::rights::may;
use super::shown::held;
use super::{clusters, failed, hooked, row, running};
use crate::http::answer::{self, Body};
use crate::http::exchange::Exchange;
use crate::http::query;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::Running;
use ray_relay_session::session::within;
use ray_relay_view::listing::standing;

/// Rows per page, by default and at most.
const DEFAULT_PAGE_ROWS: usize = 1000;
const MAX_PAGE_ROWS: usize = 10_000;

const PARAMETERS: &str = "the parameters of /relay/v1/tasks are cluster and name (patterns such as train*), job (its \
    submission id or job id, or the name of a Ray Train run), older_than (seconds), filter (as `ray-relay tasks --filter` takes it, again and again), state (running, or \
    failed: what is kept of those), hook (true: whether each has the hook), limit (rows of a page) and after (`next` of the page before)";

/// Parameters of a page.
struct TaskListRequest {
    choice: TaskChoice,
    failed: bool,
    hook: bool,
    limit: usize,
    after: Option<[String; 3]>,
}

impl TaskListRequest {
    fn read(query: Option<&str>) -> Result<Self, String> {
        let mut request = Self {
            choice: TaskChoice::default(),
            failed: false,
            hook: false,
            limit: DEFAULT_PAGE_ROWS,
            after: None,
        };
        for (name, value) in query::pairs(query)? {
            match &*name {
                "limit" => {
                    let limit = value
                        .parse()
                        .ok()
                        .filter(|n| (1..=MAX_PAGE_ROWS).contains(n));
                    let bounds = || format!("limit is a number of rows from 1 to {MAX_PAGE_ROWS}");
                    request.limit = limit.ok_or_else(bounds)?;
                }
                "after" => {
                    let key = serde_json::from_str(&value).ok();
                    let key = key.ok_or("after is `next` of the page before")?;
                    request.after = Some(key);
                }
                "state" => {
                    request.failed = match &*value {
                        "running" => false,
                        "failed" => true,
                        _ => return Err("state is running or failed".to_owned()),
                    };
                }
                "hook" => {
                    request.hook = match &*value {
                        "true" => true,
                        "false" => false,
                        _ => return Err("hook is true or false".to_owned()),
                    };
                }
                _ if request.choice.take(&name, &value)? => {}
                _ => return Err(PARAMETERS.to_owned()),
            }
        }
        Ok(request)
    }

    fn is_behind(&self, running: &Running) -> bool {
        let after = self.after.as_ref();
        after.is_none_or(|[cluster, worker, task]| {
            running.key() > (cluster.as_str(), worker.as_str(), task.as_str())
        })
    }
}

/// Answers with the tasks that `principal` may list.
pub(in crate::http) async fn list(
    exchange: &Exchange<'_>,
    parts: &Parts,
    principal: &Principal,
) -> Response<Body> {
    let ctx = exchange.ctx;
    let request = match TaskListRequest::read(parts.uri.query()) {
        Ok(request) => request,
        Err(sentence) => return answer::error(StatusCode::BAD_REQUEST, sentence),
    };
    if request.failed {
        let rows = failed::rows(ctx, principal, &request.choice);
        let (total, post_mortem) = (rows.len(), ctx.config.post_mortem.enabled);
        let body = json!({ "tasks": rows, "total": total, "next": null, "clusters": [], "kept": post_mortem });
        return held(exchange, principal, &body);
    }
    let Ok(_share) = ctx.snapshots.take(principal) else {
        return answer::too_many();
    };
    let mut per_cluster = match running(ctx, principal, Scope::List, &request.choice).await {
        Ok(per_cluster) => per_cluster,
        Err(why) => return why.answer(),
    };
    let now = SystemTime::now();
    let (mut total, mut rows, mut page) = (0, Vec::new(), Vec::new());
    let mut next = None;
    per_cluster.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    for one in per_cluster.iter().flat_map(|one| &one.rows) {
        if !may(principal, Scope::List, one) {
            continue;
        }
        let json = row(ctx, principal, one, now);
        if !request.choice.fits(one, &json, now) {
            continue;
        }
        total += 1;
        match (request.is_behind(one), rows.len() < request.limit) {
            (false, _) => {}
            (true, true) => {
                rows.push(json);
                page.push(one);
            }
            (true, false) => next = page.last().copied(),
        }
    }
    let next = next.map(|last: &Running| json!(last.key()).to_string());
    if request.hook {
        hooked::annotate(ctx, &page, &mut rows).await;
    }
    let listed = within(principal, Scope::List, &ctx.registry.snapshot());
    let all = per_cluster.iter().flat_map(|one| &one.rows);
    let permitted = all.filter(|one| may(principal, Scope::List, one));
    let jobs = standing::jobs(&listed, permitted, Timestamp::now());
    // A principal that was revoked meanwhile gets no answer.
    if let Some(ended) = principal.is_over() {
        return answer::error(StatusCode::UNAUTHORIZED, ended);
    }
    let body = json!({ "tasks": rows, "total": total, "next": next, "clusters": clusters(&per_cluster), "jobs": jobs });
    held(exchange, principal, &body)
}
