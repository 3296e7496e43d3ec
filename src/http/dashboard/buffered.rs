//! Answers that are held as a whole, because addresses in them are replaced or rows left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use hyper::{Response, StatusCode};

use super::upstream::Upstream;
use crate::advertise::Reached;
use crate::context::Context;
use crate::http::answer::{self, Body};
use crate::http::connection::chain;
use crate::http::filter::{self, NotAList, Row};
use crate::http::hop;
use crate::http::required_access::Rows;
use crate::http::rewrite::rewrite;
use crate::identity::Principal;
use crate::ray::registry::{Breakpoint, BreakpointId, Snapshot};
use crate::session::may_list;
use crate::telemetry::metrics::RefusalKind;

/// How long an answer that is held for rewriting may take to arrive: 10,000 rows take Ray a few
/// seconds.
const WHOLE_ANSWER: Duration = Duration::from_secs(60);

/// An answer from this size in bytes on is rewritten on a blocking thread.
const REWRITE_ELSEWHERE: usize = 1024 * 1024;

/// How much of an answer is for the one who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All of it, as it comes.
    Whole,
    /// Those rows that are for the principal.
    Rows(Rows, Reader),
}

/// For whom an answer is made, which decides what rows are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Somebody who may read the whole dashboard, and not list every breakpoint.
    Dashboard,
    /// Somebody who may list some breakpoints.
    List,
}

/// The answer with what is for the principal in it, and addresses that it can dial.
pub(super) async fn rewritten(
    upstream: &Upstream,
    mut job: Job,
    response: Response<Incoming>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    upstream.fit(&mut parts.headers);
    let limit = job.ctx.config.http.max_rewrite;
    job.text = match whole(&parts.headers, body, limit).await {
        Ok(text) => text,
        Err(NotBuffered::TooLarge) => {
            job.ctx.metrics.refused(RefusalKind::Limited);
            let sentence = format!(
                "the list is larger than {limit} bytes, so the relay cannot replace the addresses in it: filter it (filter_keys=num_paused_threads), use a smaller limit, or raise `http.max_rewrite`"
            );
            return answer::text(StatusCode::BAD_GATEWAY, sentence);
        }
        Err(NotBuffered::Slow) => {
            let sentence = "the Ray head began its list but did not get to the end; try again, and look at the load of the head";
            return answer::text(StatusCode::GATEWAY_TIMEOUT, sentence);
        }
        Err(NotBuffered::Broken(cause)) => {
            let sentence = format!("the Ray head's list broke off ({cause}); try again");
            return answer::text(StatusCode::BAD_GATEWAY, sentence);
        }
    };
    let new = if job.text.len() < REWRITE_ELSEWHERE {
        job.run()
    } else {
        match tokio::task::spawn_blocking(|| job.run()).await {
            Ok(new) => new,
            Err(_) => {
                let sentence = "the relay failed to replace the addresses in the list of workers; please report this";
                return answer::text(StatusCode::INTERNAL_SERVER_ERROR, sentence);
            }
        }
    };
    match new {
        Ok(text) => {
            hop::forget_body(&mut parts.headers);
            parts.headers.insert(CONTENT_LENGTH, text.len().into());
            Response::from_parts(parts, answer::full(text))
        }
        Err(sentence) => answer::text(StatusCode::BAD_GATEWAY, sentence),
    }
}

/// What to do with a text.
pub(super) struct Job {
    pub(super) ctx: Arc<Context>,
    pub(super) cluster: Arc<str>,
    pub(super) reached: Reached,
    pub(super) principal: Principal,
    pub(super) view: View,
    /// Filled with what the head answers.
    pub(super) text: Bytes,
}

impl Job {
    fn run(self) -> Result<Bytes, String> {
        let snapshot = self.ctx.registry.snapshot();
        match self.view {
            View::Whole => self.rewritten(&snapshot, &self.text),
            View::Rows(rows, reader) => {
                let kept = self.kept(&snapshot, rows, reader);
                let kept = Bytes::from(kept.map_err(|not_a_list| not_a_list.to_string())?);
                match rows {
                    Rows::Workers => self.rewritten(&snapshot, &kept),
                    Rows::Tasks | Rows::Jobs => Ok(kept),
                }
            }
        }
    }

    /// The rows that are for the principal: those of breakpoints that it may list, and for one who reads the whole
    /// dashboard all workers that have nothing to do with a debugger.
    fn kept(&self, snapshot: &Snapshot, rows: Rows, reader: Reader) -> Result<Vec<u8>, NotAList> {
        let here = |b: &&Arc<Breakpoint>| b.cluster == self.cluster;
        let (seen, hidden): (Vec<&Breakpoint>, Vec<&Breakpoint>) = snapshot
            .live
            .iter()
            .filter(here)
            .map(|breakpoint| &**breakpoint)
            .partition(|breakpoint| may_list(&self.principal, breakpoint));
        let ids = |of: &[&Breakpoint]| of.iter().map(|b| b.id).collect::<HashSet<_>>();
        let (seen_ids, hidden_ids) = (ids(&seen), ids(&hidden));
        let id = |row: &Row| {
            filter::text(row, "worker_id").map(|worker| BreakpointId::derive(&self.cluster, worker))
        };
        let known = |field: &Option<String>, row: &Row, key: &str| {
            field.is_some() && field.as_deref() == filter::text(row, key)
        };
        filter::keep_rows(&self.text, &mut |row| match rows {
            Rows::Workers => {
                let id = id(row);
                id.is_some_and(|id| seen_ids.contains(&id))
                    || (reader == Reader::Dashboard
                        && !filter::has_debugger(row)
                        && id.is_some_and(|id| !hidden_ids.contains(&id)))
            }
            Rows::Tasks => seen.iter().any(|b| known(&b.names.task_id, row, "task_id")),
            Rows::Jobs => seen.iter().any(|b| {
                known(&b.names.job_id, row, "job_id")
                    || known(&b.names.submission_id, row, "submission_id")
            }),
        })
    }

    fn rewritten(&self, snapshot: &Snapshot, text: &Bytes) -> Result<Bytes, String> {
        let advertised = &self.ctx.advertised;
        advertised.observe(&self.reached.host, snapshot);
        // First those that are there for sure, so that they get what there is to have.
        let ids = snapshot.live.iter().map(|breakpoint| breakpoint.id);
        let live: HashMap<BreakpointId, (String, u16)> = ids
            .map(|id| (id, advertised.address(&self.reached, Some(id))))
            .collect();
        let new = rewrite(text, &mut |worker| {
            let id = worker
                .id
                .map(|worker_id| BreakpointId::derive(&self.cluster, worker_id));
            match (id, id.and_then(|id| live.get(&id))) {
                (_, Some(address)) => address.clone(),
                // Paused since the last poll: an attach that comes before the next one is to find
                // this worker and no other.
                (Some(id), None) if worker.paused => advertised.address_expected(&self.reached, id),
                // A worker that has ended, or is not paused, gets the plain address: nobody can
                // dial what the head says of it, and the relay explains.
                (_, None) => advertised.address(&self.reached, None),
            }
        });
        let new = new.map_err(|not_json| not_json.to_string())?;
        Ok(new.map_or_else(|| text.clone(), Bytes::from))
    }
}

/// Why an answer could not be held.
enum NotBuffered {
    TooLarge,
    Slow,
    Broken(String),
}

async fn whole(headers: &HeaderMap, body: Incoming, limit: usize) -> Result<Bytes, NotBuffered> {
    let encoding = headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(NotBuffered::Broken(
            "it is compressed, although the relay asked for plain text".to_owned(),
        ));
    }
    if body.size_hint().lower() > limit as u64 {
        return Err(NotBuffered::TooLarge);
    }
    match tokio::time::timeout(WHOLE_ANSWER, Limited::new(body, limit).collect()).await {
        Err(_) => Err(NotBuffered::Slow),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(NotBuffered::TooLarge),
        Ok(Err(error)) => Err(NotBuffered::Broken(chain(&*error))),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
