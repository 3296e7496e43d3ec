//! Answers that are changed: addresses in them are replaced while they [pass](super::streamed), and those of which rows are left
//! out are held until their end. What is left out is not held; what is, is taken from the memory of who asks, and of what the
//! answers of the cluster may have.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Body as _;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, RETRY_AFTER};

use super::change::{NotChanged, hold, next};
use super::streamed::StreamedList;
use super::upstream::Upstream;
use crate::http::answer::{self, Body};
use crate::http::filter::{FilteredRow, RowFilter};
use crate::http::hop;
use crate::http::refusal::ASK_AGAIN;
use crate::http::required_access::RowAccess;
use crate::http::rewrite::{Worker, rewrite};
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_base::memory::{MemoryUse, Reservation};
use ray_relay_ray::ray::head::HeadBody;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::context::Context;
use ray_relay_session::session::may_list;
use ray_relay_view::advertise::ExternalAddress;

/// How long an answer that is held for rewriting may take to arrive: 10,000 rows take Ray a few
/// seconds.
const WHOLE_ANSWER: Duration = Duration::from_secs(60);

/// Largest dashboard answer in which addresses are replaced or rows left out: the list of workers of a large cluster.
const MAX_REWRITE_BYTES: usize = 64 << 20;

/// How much of an answer is for the one who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All of it, as it comes.
    Whole,
    /// Those rows that are for the principal.
    Rows(RowAccess, Viewer),
}

/// For whom an answer is made, which decides what rows are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Viewer {
    /// A principal that may read the whole dashboard, and not list every breakpoint.
    Dashboard,
    /// A principal that may list some breakpoints.
    List,
}

/// The answer with what is for the principal in it, and addresses that it can dial.
pub(super) async fn rewritten(
    upstream: &Upstream,
    job: BufferedAnswer,
    response: Response<HeadBody>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    upstream.fit(&mut parts.headers);
    let metrics = Arc::clone(&job.ctx.metrics);
    let principal = job.principal.clone();
    let changed = job.changed(&parts.headers, body);
    let refused = match tokio::time::timeout(WHOLE_ANSWER, changed).await {
        Ok(Ok(changed)) => {
            hop::forget_body(&mut parts.headers);
            let body = match changed {
                Changed::Whole(pieces, taken) => {
                    let length: usize = pieces.iter().map(Bytes::len).sum();
                    parts.headers.insert(CONTENT_LENGTH, length.into());
                    answer::held(answer::pieces(pieces), taken).boxed_unsync()
                }
                Changed::Begun(list) if principal.is_anonymous() => list,
                Changed::Begun(list) => answer::until_over(list, &principal).boxed_unsync(),
            };
            return Response::from_parts(parts, body);
        }
        Ok(Err(why)) => why,
        Err(_) => NotChanged::Slow,
    };
    if matches!(refused, NotChanged::TooLarge { .. } | NotChanged::Short(_)) {
        metrics.refused(RefusalKind::Limited);
    }
    let again = matches!(refused, NotChanged::Short(_));
    let mut response = answer::text(refused.status(), refused);
    if again {
        response.headers_mut().insert(RETRY_AFTER, ASK_AGAIN.into());
    }
    response
}

/// What came of an answer.
enum Changed {
    /// All of it, and the memory that it takes.
    Whole(Vec<Bytes>, Reservation),
    /// A list on its way.
    Begun(Body),
}

/// What to do with an answer.
pub(super) struct BufferedAnswer {
    pub(super) ctx: Arc<Context>,
    pub(super) cluster: Arc<str>,
    pub(super) reached: ExternalAddress,
    pub(super) principal: Principal,
    pub(super) view: View,
}

impl BufferedAnswer {
    async fn changed(self, headers: &HeaderMap, body: HeadBody) -> Result<Changed, NotChanged> {
        let encoding = headers.get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(NotChanged::Broken(
                "it is compressed, although the relay asked for plain text".to_owned(),
            ));
        }
        let limit = MAX_REWRITE_BYTES;
        if body.size_hint().lower() > limit as u64 {
            return Err(NotChanged::TooLarge { limit });
        }
        let mut body = Limited::new(body, limit);
        let of_cluster = self.ctx.memory.cluster(&self.cluster);
        let account = self
            .ctx
            .account(&self.principal)
            .for_answers_of(&of_cluster);
        let mut taken = account.empty(MemoryUse::Answers);
        let View::Rows(rows, reader) = self.view else {
            let mut list = StreamedList::new(body, limit, self.addresses(), taken);
            return Ok(match list.begin().await? {
                Some(text) => Changed::Whole(vec![text], list.into_taken()),
                None => Changed::Begun(list.boxed_unsync()),
            });
        };
        let mut filter = RowFilter::new(self.judge(rows, reader));
        while let Some(piece) = next(&mut body, limit).await? {
            // A buffer that grows is there twice.
            hold(&mut taken, filter.held() + 2 * piece.len()).await?;
            filter.feed(&piece)?;
        }
        let pieces = filter.finish()?.map(Bytes::from).to_vec();
        hold(&mut taken, pieces.iter().map(Bytes::len).sum()).await?;
        Ok(Changed::Whole(pieces, taken))
    }

    /// Says which rows are for the principal: those of breakpoints that it may list, and for one who reads the whole dashboard
    /// all workers that have nothing to do with a debugger.
    fn judge(
        &self,
        rows: RowAccess,
        reader: Viewer,
    ) -> impl FnMut(&FilteredRow<'_>, &[u8], &mut Vec<u8>) -> Result<bool, NotChanged> + Send + use<>
    {
        let snapshot = self.ctx.registry.snapshot();
        let mut hidden = HashSet::new();
        let (mut workers, mut names) = (HashSet::new(), HashSet::new());
        for breakpoint in snapshot.live.iter().filter(|b| b.cluster == self.cluster) {
            if !may_list(&self.principal, breakpoint) {
                hidden.insert(breakpoint.id);
                continue;
            }
            workers.insert(breakpoint.id);
            let named = &breakpoint.names;
            let of_rows = match rows {
                RowAccess::Workers => [&None, &None],
                RowAccess::Tasks => [&named.task_id, &None],
                RowAccess::Jobs => [&named.job_id, &named.submission_id],
            };
            names.extend(of_rows.into_iter().flatten().cloned());
        }
        let known = move |name: Option<&str>| name.is_some_and(|name| names.contains(name));
        let mut addresses = self.addresses();
        let cluster = Arc::clone(&self.cluster);
        move |row, text, kept| {
            let keep = match rows {
                RowAccess::Workers => {
                    let id = row.worker_id().map(|id| BreakpointId::derive(&cluster, id));
                    id.is_some_and(|id| workers.contains(&id))
                        || (reader == Viewer::Dashboard
                            && !row.has_debugger()
                            && id.is_some_and(|id| !hidden.contains(&id)))
                }
                RowAccess::Tasks => known(row.task_id()),
                RowAccess::Jobs => known(row.job_id()) || known(row.submission_id()),
            };
            if keep {
                match rows {
                    RowAccess::Workers => match rewrite(text, &mut addresses)? {
                        Some(new) => kept.extend_from_slice(&new),
                        None => kept.extend_from_slice(text),
                    },
                    RowAccess::Tasks | RowAccess::Jobs => kept.extend_from_slice(text),
                }
            }
            Ok(keep)
        }
    }

    /// Says which address a worker has for the client.
    fn addresses(&self) -> impl FnMut(Worker<'_>, &mut Vec<u8>) -> u16 + Send + use<> {
        let snapshot = self.ctx.registry.snapshot();
        let (ctx, cluster) = (Arc::clone(&self.ctx), Arc::clone(&self.cluster));
        let reached = self.reached.clone();
        // Those that are there for sure come first, so that they get what there is to have.
        let listed = ctx.shown.advertised.listed(&reached, &snapshot);
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
                    other = ctx.shown.advertised.address_expected(&reached, id);
                    &other
                }
                // A worker that has ended, or is not paused, gets the plain address: no client can
                // dial what the head says of it, and the relay explains.
                (_, None) => {
                    other = ctx.shown.advertised.address(&reached, None);
                    &other
                }
            };
            new.extend_from_slice(host.as_bytes());
            *port
        }
    }
}
