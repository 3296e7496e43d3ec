//! `POST /relay/v1/trace`: log messages from a line of a running job. Nothing stops.
//!
//! The line is armed by the agent of each node in all workers of the job that have the hook, also in those that start
//! later, until the client closes the answer. The answer is server-sent events, each with `node` and `pid` of its
//! worker: `status` (whether the line is armed there), `hit` (a message), `refused`, `gone`; `dropped` where the client
//! reads too slowly; `ended` with the reason as the last.
//!
//! It takes `debug` and the right to open debuggers on the job as a whole: a rule for some tasks or nodes alone does
//! not count, because any task may reach the line.

mod feed;
mod job;

use hyper::{Response, StatusCode};
use serde::Deserialize;

use self::feed::{MAX_QUEUED_BYTES, Trace};
use self::job::{TracedJob, find};
use crate::http::answer::{self, Body};
use crate::http::exchange::Post;
use crate::http::refusal::HttpRefusal;
use crate::http::route::RequiredPermission;
use crate::http::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::memory::MemoryUse;
use ray_relay_base::wire::tunnel::messages::{ArmedLine, Expression, SourcePath, Text};

const MAX_BODY_BYTES: usize = 16 * 1024;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"job\": \"ID\", \"file\": \"train.py\", \"line\": 26, \"log\": \"loss={loss}\"}, with \"condition\": \"EXPRESSION\", \"hit\": \"% 100\" and \"ranks\": [0, 1] if you like";

/// Valid keys of a body.
const KEYS: [&str; 8] = [
    "job",
    "cluster",
    "file",
    "line",
    "log",
    "condition",
    "hit",
    "ranks",
];

const MAX_RANKS: usize = 256;

#[derive(Deserialize)]
struct TraceRequest {
    job: String,
    cluster: Option<String>,
    file: SourcePath,
    line: u32,
    log: Expression,
    condition: Option<Expression>,
    hit: Option<Text<32>>,
    ranks: Option<Vec<u32>>,
}

impl TraceRequest {
    fn is_valid(&self) -> bool {
        let is_file = |file: &str| !file.is_empty() && !file.ends_with('/');
        is_file(&self.file)
            && self.line > 0
            && !self.log.is_empty()
            && self.ranks.as_ref().is_none_or(|all| all.len() <= MAX_RANKS)
    }

    fn into_line(self) -> ArmedLine {
        ArmedLine {
            id: 0,
            file: self.file,
            line: self.line,
            condition: self.condition,
            log: Some(self.log),
            hit: self.hit,
            once: false,
            ranks: self.ranks,
        }
    }
}

/// Answers with the messages of the line that the body names.
pub(in crate::http) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let body = body::keyed(post.body, MAX_BODY_BYTES, &KEYS).await;
    let request = body.and_then(|body| serde_json::from_value::<TraceRequest>(body).ok());
    let request = request.filter(TraceRequest::is_valid);
    let request = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let share = ctx
        .event_streams
        .take(principal)
        .map_err(HttpRefusal::Busy)?;
    let job = match find(ctx, principal, &request.job, request.cluster.as_deref()).await {
        Ok(job) => job,
        Err(why) => return Ok(why.answer()),
    };
    if !job.may_trace(ctx, principal) {
        return Err(audit::deny(exchange, principal, lacking(principal, &job)).await);
    }
    if job.rights(principal).obligations.record {
        // Nothing records these messages.
        let sentence = "a rule of yours has sessions on this job recorded, and log messages are not: ask for a rule without `record`";
        return Ok(answer::error(StatusCode::FORBIDDEN, sentence));
    }
    let account = ctx.account(principal);
    let memory = account.take(MemoryUse::Answers, MAX_QUEUED_BYTES)?;
    let line = request.into_line();
    let entry = |command| {
        audit::command(exchange, principal, command)
            .with("cluster", &*job.cluster)
            .with("job_id", &*job.job_id)
            .with("file", &*line.file)
            .with("line", line.line)
    };
    let log = line.log.as_deref().unwrap_or_default();
    let mut begun = entry("trace").with("log", log);
    if let Some(condition) = &line.condition {
        begun = begun.with("condition", &**condition);
    }
    let at_end = entry("trace ended");
    audit::write_entry(ctx, begun).await?;
    let trace = Trace::new(exchange, principal, job, line);
    let body = trace.start(at_end, (share, memory));
    Ok(answer::own(StatusCode::OK, "text/event-stream", body))
}

/// The permission that `principal` lacks on `job`.
fn lacking(principal: &Principal, job: &TracedJob) -> RequiredPermission {
    RequiredPermission {
        scope: match job.rights(principal).scopes.contains(Scope::Debug) {
            true => Scope::Attach,
            false => Scope::Debug,
        },
        place: format!("on all of the job {}, whatever its tasks are", job.job_id),
    }
}
