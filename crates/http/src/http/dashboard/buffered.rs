//! Modified answers. Addresses are replaced while the answer [streams](super::streamed); filtered lists are buffered to
//! their end. Rejected rows are not buffered. The rest is charged to the memory of the principal, and to the share for
//! answers of the cluster.

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
use crate::http::refusal::RETRY_AFTER_SECONDS;
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

/// Time limit for receiving an answer to rewrite. 10,000 rows take Ray a few seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a dashboard answer that is rewritten or filtered: the list of workers of a large cluster.
const MAX_REWRITE_BYTES: usize = 64 << 20;

/// The part of an answer that is visible to the principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All of it, unchanged.
    Whole,
    /// Only the rows for the principal.
    Rows(RowAccess, Viewer),
}

/// The kind of viewer, which decides about the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Viewer {
    /// A principal that may read the whole dashboard, but not list every breakpoint.
    Dashboard,
    /// A principal that may list some breakpoints.
    List,
}

/// Answers with the rows visible to the principal, and with addresses that it can dial.
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
    let refused = match tokio::time::timeout(ANSWER_TIMEOUT, changed).await {
        Ok(Ok(changed)) => {
            hop::forget_body(&mut parts.headers);
            let body = match changed {
                Changed::Whole(pieces, reservation) => {
                    let length: usize = pieces.iter().map(Bytes::len).sum();
                    parts.headers.insert(CONTENT_LENGTH, length.into());
                    answer::held(answer::pieces(pieces), reservation).boxed_unsync()
                }
                Changed::Begun(list) if principal.is_anonymous() => list,
                Changed::Begun(list) => answer::while_valid(list, &principal).boxed_unsync(),
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
        response
            .headers_mut()
            .insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    }
    response
}

/// A rewritten answer.
enum Changed {
    /// The whole answer, and its memory reservation.
    Whole(Vec<Bytes>, Reservation),
    /// A list that is still streaming.
    Begun(Body),
}

/// An answer to rewrite, and how.
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
        let mut reservation = account.empty(MemoryUse::Answers);
        let View::Rows(rows, reader) = self.view else {
            let mut list = StreamedList::new(body, limit, self.addresses(), reservation);
            return Ok(match list.begin().await? {
                Some(text) => Changed::Whole(vec![text], list.into_reservation()),
                None => Changed::Begun(list.boxed_unsync()),
            });
        };
        let mut filter = RowFilter::new(self.judge(rows, reader));
        while let Some(piece) = next(&mut body, limit).await? {
            // While a buffer grows, both copies exist.
            hold(&mut reservation, filter.held() + 2 * piece.len()).await?;
            filter.feed(&piece)?;
        }
        let pieces = filter.finish()?.map(Bytes::from).to_vec();
        hold(&mut reservation, pieces.iter().map(Bytes::len).sum()).await?;
        Ok(Changed::Whole(pieces, reservation))
    }

    /// Creates the filter of the rows for the principal: those of breakpoints that it may list. A viewer of the whole
    /// dashboard also gets all workers without a debugger.
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
        move |row, text, output| {
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
                        Some(new) => output.extend_from_slice(&new),
                        None => output.extend_from_slice(text),
                    },
                    RowAccess::Tasks | RowAccess::Jobs => output.extend_from_slice(text),
                }
            }
            Ok(keep)
        }
    }

    /// Creates the mapping of a worker to its address for the client.
    fn addresses(&self) -> impl FnMut(Worker<'_>, &mut Vec<u8>) -> u16 + Send + use<> {
        let snapshot = self.ctx.registry.snapshot();
        let (ctx, cluster) = (Arc::clone(&self.ctx), Arc::clone(&self.cluster));
        let reached = self.reached.clone();
        // Listed breakpoints come first, so that they get the scarce ports.
        let listed = ctx.shown.advertised.listed(&reached, &snapshot);
        move |worker, new| {
            let id = worker
                .id
                .map(|worker_id| BreakpointId::derive(&cluster, worker_id));
            let other;
            let (host, port) = match (id, id.and_then(|id| listed.address(id))) {
                (_, Some(address)) => address,
                // Paused since the last poll: an attach before the next one must find exactly this worker.
                (Some(id), None) if worker.paused => {
                    other = ctx.shown.advertised.address_expected(&reached, id);
                    &other
                }
                // A worker that has ended, or is not paused, gets the plain address. No client can dial the head's
                // address, and the relay explains the failure.
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
