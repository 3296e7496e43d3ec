//! Answers that are held as a whole, because addresses in them are replaced or rows left out: what they are may be known
//! at their end only.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
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
use crate::http::rewrite::{NotJson, Rewriter, Worker, rewrite};
use crate::identity::Principal;
use crate::ray::head::HeadBody;
use crate::ray::registry::{Breakpoint, BreakpointId, Snapshot};
use crate::session::may_list;
use crate::telemetry::metrics::RefusalKind;

/// How long an answer that is held for rewriting may take to arrive: 10,000 rows take Ray a few
/// seconds.
const WHOLE_ANSWER: Duration = Duration::from_secs(60);

/// Of an answer from this size in bytes on rows are selected on a blocking thread.
const SELECT_ELSEWHERE: usize = 1024 * 1024;

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
    job: Job,
    response: Response<HeadBody>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    upstream.fit(&mut parts.headers);
    let limit = job.ctx.config.http.max_rewrite;
    let metrics = Arc::clone(&job.ctx.metrics);
    let changed = job.changed(&parts.headers, body, limit);
    let refused = match tokio::time::timeout(WHOLE_ANSWER, changed).await {
        Ok(Ok(pieces)) => {
            hop::forget_body(&mut parts.headers);
            let length: usize = pieces.iter().map(Bytes::len).sum();
            parts.headers.insert(CONTENT_LENGTH, length.into());
            return Response::from_parts(parts, answer::pieces(pieces));
        }
        Ok(Err(why)) => why,
        Err(_) => NotChanged::Slow,
    };
    if matches!(refused, NotChanged::TooLarge { .. }) {
        metrics.refused(RefusalKind::Limited);
    }
    answer::text(refused.status(), refused)
}

/// What to do with an answer.
pub(super) struct Job {
    pub(super) ctx: Arc<Context>,
    pub(super) cluster: Arc<str>,
    pub(super) reached: Reached,
    pub(super) principal: Principal,
    pub(super) view: View,
}

impl Job {
    async fn changed(
        self,
        headers: &HeaderMap,
        body: HeadBody,
        limit: usize,
    ) -> Result<Vec<Bytes>, NotChanged> {
        let encoding = headers.get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(NotChanged::Broken(
                "it is compressed, although the relay asked for plain text".to_owned(),
            ));
        }
        if body.size_hint().lower() > limit as u64 {
            return Err(NotChanged::TooLarge { limit });
        }
        let mut body = Limited::new(body, limit);
        let broken = |error: Box<dyn Error + Send + Sync>| match error.is::<LengthLimitError>() {
            true => NotChanged::TooLarge { limit },
            false => NotChanged::Broken(chain(&*error)),
        };
        let View::Rows(rows, reader) = self.view else {
            // While the next piece is on its way.
            let mut rewriter = Rewriter::new(self.addresses());
            let mut pieces = Vec::new();
            while let Some(frame) = body.frame().await {
                if let Ok(piece) = frame.map_err(broken)?.into_data() {
                    pieces.push(rewriter.feed(&piece)?.into());
                }
            }
            pieces.push(rewriter.finish()?.into());
            return Ok(pieces);
        };
        let text = body.collect().await.map_err(broken)?.to_bytes();
        let is_small = text.len() < SELECT_ELSEWHERE;
        let select = move || self.selected(&text, rows, reader);
        let selected = match is_small {
            true => select(),
            false => {
                let selected = tokio::task::spawn_blocking(select).await;
                selected.unwrap_or(Err(NotChanged::Failed))
            }
        };
        Ok(vec![selected?.into()])
    }

    fn selected(&self, text: &[u8], rows: Rows, reader: Reader) -> Result<Vec<u8>, NotChanged> {
        let kept = self.kept(&self.ctx.registry.snapshot(), text, rows, reader)?;
        match rows {
            Rows::Workers => {
                let new = rewrite(&kept, &mut self.addresses())?;
                Ok(new.unwrap_or(kept))
            }
            Rows::Tasks | Rows::Jobs => Ok(kept),
        }
    }

    /// The rows that are for the principal: those of breakpoints that it may list, and for one who reads the whole
    /// dashboard all workers that have nothing to do with a debugger.
    fn kept(
        &self,
        snapshot: &Snapshot,
        text: &[u8],
        rows: Rows,
        reader: Reader,
    ) -> Result<Vec<u8>, NotAList> {
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
        filter::keep_rows(text, &mut |row| match rows {
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

    /// Says which address a worker has for the client.
    fn addresses(&self) -> impl FnMut(Worker<'_>, &mut Vec<u8>) -> u16 + Send + use<> {
        let snapshot = self.ctx.registry.snapshot();
        let (ctx, cluster) = (Arc::clone(&self.ctx), Arc::clone(&self.cluster));
        let reached = self.reached.clone();
        // Those that are there for sure come first, so that they get what there is to have.
        let listed = ctx.advertised.listed(&reached, &snapshot);
        move |worker, new| {
            let id = worker
                .id
                .map(|worker_id| BreakpointId::derive(&cluster, worker_id));
            let other;
            let (host, port) = match (id, id.and_then(|id| listed.address(id))) {
                (_, Some(address)) => address,
                // Paused since the last poll: an attach that comes before the next one is to find
                // this worker and no other.
                (Some(id), None) if worker.paused => {
                    other = ctx.advertised.address_expected(&reached, id);
                    &other
                }
                // A worker that has ended, or is not paused, gets the plain address: nobody can
                // dial what the head says of it, and the relay explains.
                (_, None) => {
                    other = ctx.advertised.address(&reached, None);
                    &other
                }
            };
            new.extend_from_slice(host.as_bytes());
            *port
        }
    }
}

/// Why an answer is not given. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
enum NotChanged {
    #[error(
        "the list is larger than {limit} bytes, so the relay cannot replace the addresses in it: filter it (filter_keys=num_paused_threads), use a smaller limit, or raise `http.max_rewrite`"
    )]
    TooLarge { limit: usize },
    #[error(
        "the Ray head began its list but did not get to the end; try again, and look at the load of the head"
    )]
    Slow,
    #[error("the Ray head's list broke off ({0}); try again")]
    Broken(String),
    #[error(transparent)]
    NotJson(#[from] NotJson),
    #[error(transparent)]
    NotAList(#[from] NotAList),
    #[error("the relay failed to replace the addresses in the list of workers; please report this")]
    Failed,
}

impl NotChanged {
    fn status(&self) -> StatusCode {
        match self {
            Self::Slow => StatusCode::GATEWAY_TIMEOUT,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooLarge { .. } | Self::Broken(_) | Self::NotJson(_) | Self::NotAList(_) => {
                StatusCode::BAD_GATEWAY
            }
        }
    }
}
