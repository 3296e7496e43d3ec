//! `POST /relay/v1/arm`: arms a line in a running job. With `log` it prints messages and nothing stops; without, tasks
//! stop there, and are listed like those at a `breakpoint()`.
//!
//! The line is armed by the agent of each node in all workers of the job that have the hook, also in those that start
//! later, until the client closes the answer. The answer is server-sent events, each with `node` and `pid` of its
//! worker: `status` (whether the line is armed there), `hit` (a message), `stop` (with the `breakpoint`), `refused`,
//! `gone`; `full` while too many tasks stand there; `dropped` where the client reads too slowly; `ended` with the reason
//! as the last.
//!
//! It takes `debug` and the right to open debuggers on the job as a whole: a rule for some tasks or nodes alone does
//! not count, because any task may reach the line.

mod feed;

use hyper::{Response, StatusCode};
use serde::Deserialize;

use self::feed::{Feed, MAX_QUEUED_BYTES};
use crate::http::answer::{self, Body};
use crate::http::exchange::{Exchange, Post};
use crate::http::jobs;
use crate::http::refusal::HttpRefusal;
use crate::http::route::RequiredPermission;
use crate::http::{audit, body};
use ray_relay_access::audit::Entry;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::SessionProtocol;
use ray_relay_base::memory::MemoryUse;
use ray_relay_base::wire::tunnel::messages::{
    ArmedLine, Expression, MAX_ARMED_RANKS, SourcePath, Text,
};
use ray_relay_session::armed::WholeJob;
use ray_relay_session::context::Context;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{ArmedSummary, NoJob};

const MAX_BODY_BYTES: usize = 16 * 1024;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"job\": \"ID\", \"file\": \"train.py\", \"line\": 26}, with \"log\": \"loss={loss}\" for messages instead of stops, and \"condition\": \"EXPRESSION\", \"hit\": \"% 100\" and \"ranks\": [0, 1] if you like";

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

#[derive(Deserialize)]
struct ArmRequest {
    job: String,
    cluster: Option<String>,
    file: SourcePath,
    line: u32,
    log: Option<Expression>,
    condition: Option<Expression>,
    hit: Option<Text<32>>,
    ranks: Option<Vec<u32>>,
}

impl ArmRequest {
    fn is_valid(&self) -> bool {
        let is_file = |file: &str| !file.is_empty() && !file.ends_with('/');
        is_file(&self.file)
            && self.line > 0
            && self.log.as_ref().is_none_or(|log| !log.is_empty())
            && self
                .ranks
                .as_ref()
                .is_none_or(|all| all.len() <= MAX_ARMED_RANKS)
    }

    fn into_line(self) -> ArmedLine {
        ArmedLine {
            id: 0,
            file: self.file,
            or_file: None,
            line: self.line,
            condition: self.condition,
            log: self.log,
            hit: self.hit,
            once: false,
            counter: None,
            ranks: self.ranks,
        }
    }
}

/// Answers with what happens at the line that the body names.
pub(in crate::http) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let body = body::keyed(post.body, MAX_BODY_BYTES, &KEYS).await;
    let request = body.and_then(|body| serde_json::from_value::<ArmRequest>(body).ok());
    let request = request.filter(ArmRequest::is_valid);
    let request = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let share = ctx
        .event_streams
        .take(principal)
        .map_err(HttpRefusal::Busy)?;
    let job = match find(ctx, principal, &request.job, request.cluster.as_deref()).await {
        Ok(job) => job,
        Err(why) => return Ok(why.answer()),
    };
    if !job.may_arm(ctx, principal) {
        let lacking = RequiredPermission {
            scope: job.lacking(principal),
            place: format!(
                "on the whole job {}; a rule for some of its tasks is not enough",
                job.job_id
            ),
        };
        return Err(audit::deny(exchange, principal, lacking).await);
    }
    if request.log.is_some() && job.is_recorded(principal) {
        // Nothing records these messages.
        let sentence = "the policy has your sessions on this job recorded, which log messages cannot be: ask the operator for a rule without `record`";
        return Ok(answer::error(StatusCode::FORBIDDEN, sentence));
    }
    let account = ctx.account(principal);
    let memory = account.take(MemoryUse::Answers, MAX_QUEUED_BYTES)?;
    let line = request.into_line();
    let (begun, at_end) = entries(exchange, principal, &job, &line);
    audit::write_entry(ctx, begun).await?;
    let session = ctx
        .sessions
        .table
        .open(&Summary::new(exchange.connection.peer));
    session.set_principal(principal.clone());
    session.set_state(SessionProtocol::Lines, SessionState::Attached);
    session.set_armed(Some(
        ArmedSummary::of([&line]).in_job(&job.name, &job.cluster),
    ));
    let feed = Feed::new(exchange, principal, session);
    let body = feed.start(job, line, at_end, (share, memory));
    Ok(answer::own(StatusCode::OK, "text/event-stream", body))
}

/// The audit lines of its begin and its end.
fn entries(
    exchange: &Exchange<'_>,
    principal: &Principal,
    job: &WholeJob,
    line: &ArmedLine,
) -> (Entry, Entry) {
    let entry = |command| {
        audit::command(exchange, principal, command)
            .with("cluster", &*job.cluster)
            .with("job_id", &*job.job_id)
            .with("file", &*line.file)
            .with("line", line.line)
    };
    let mut begun = entry("arm");
    for (key, expression) in [("log", &line.log), ("condition", &line.condition)] {
        if let Some(expression) = expression {
            begun = begun.with(key, &**expression);
        }
    }
    (begun, entry("disarm"))
}

/// Why there is no job in which to arm a line.
enum NotArmed {
    NoJob(NoJob),
    NotRunning,
    SeveralClusters,
}

impl NotArmed {
    fn answer(&self) -> Response<Body> {
        let sentence = match self {
            Self::NoJob(why) => return jobs::none(why),
            Self::NotRunning => "that job has ended, or its driver does not run yet",
            Self::SeveralClusters => {
                "several clusters have a job of that name: name the `cluster` too"
            }
        };
        answer::error(StatusCode::CONFLICT, sentence)
    }
}

/// The live job called `name`, of `cluster` if that is given, among those that `principal` may know of.
async fn find(
    ctx: &Context,
    principal: &Principal,
    name: &str,
    cluster: Option<&str>,
) -> Result<WholeJob, NotArmed> {
    let found = jobs::find(ctx, principal, name).await;
    let found = found.map_err(NotArmed::NoJob)?;
    let live = found.iter().filter_map(WholeJob::of);
    let mut live: Vec<_> = live
        .filter(|job| cluster.is_none_or(|cluster| *job.cluster == *cluster))
        .collect();
    let job = live.pop().ok_or(NotArmed::NotRunning)?;
    live.is_empty()
        .then_some(job)
        .ok_or(NotArmed::SeveralClusters)
}
