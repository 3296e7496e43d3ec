//! Asks processes of paused tasks for their ranks before the client opens sessions for them: a session keeps its first
//! name, and the order of tasks is no rank.
//!
//! Each query is a session like any other, audited and with a permit, by the permission `view`: only the relay's own
//! probe runs in the worker. The task stays paused.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout};

use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::recording::Direction;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_debugger::pdb;
use ray_relay_ray::hold::LOOK_CLIENT;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Kind};
use ray_relay_session::context::Context;
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_session::session::family::Stop;
use ray_relay_session::session::parks::is_own;
use ray_relay_session::session::{Authorized, authorise};
use ray_relay_session::upstream::look::Look;

/// Concurrent queries.
const MAX_AT_A_TIME: usize = 8;

/// Deadline for a query to start.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// Deadline for a process to report its rank.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Characters of the value that comes with a rank.
const MAX_VALUE_CHARS: usize = 8;

/// The rank queries of one cluster session.
pub(super) struct RankQueries<'a> {
    context: &'a Context,
    principal: &'a Principal,
    summary: &'a Summary,
    audit: SessionAudit<'a>,
    waiting: VecDeque<(Instant, Arc<Breakpoint>)>,
    asking: FuturesUnordered<Pin<Box<dyn Future<Output = Stop> + Send + 'a>>>,
}

impl<'a> RankQueries<'a> {
    pub(super) fn new(
        context: &'a Context,
        principal: &'a Principal,
        summary: &'a Summary,
        audit: SessionAudit<'a>,
    ) -> Self {
        Self {
            context,
            principal,
            summary,
            audit,
            waiting: VecDeque::new(),
            asking: FuturesUnordered::new(),
        }
    }

    /// Queues a query of the process of `breakpoint`.
    pub(super) fn ask(&mut self, breakpoint: Arc<Breakpoint>) {
        self.waiting.push_back((Instant::now(), breakpoint));
        self.begin();
    }

    fn begin(&mut self) {
        while self.asking.len() < MAX_AT_A_TIME
            && let Some((since, breakpoint)) = self.waiting.pop_front()
        {
            // Its session has opened without a rank by now.
            if since.elapsed() > TURN_TIMEOUT {
                continue;
            }
            let (context, principal, summary) = (self.context, self.principal, self.summary);
            let audit = self.audit.clone();
            self.asking.push(Box::pin(async move {
                let stop = (breakpoint.id, breakpoint.stop);
                // Without a rank, the pid is shown.
                let _ = match parked(context, principal, stop) {
                    Some(authorized) => query_park(context, &audit, &authorized).await,
                    None => query_worker(context, principal, summary, &breakpoint).await,
                };
                stop
            }));
        }
    }

    /// Resolves with a stop whose query has finished, with any result; never without a query. Cancel safe.
    pub(super) async fn next(&mut self) -> Stop {
        match self.asking.next().await {
            Some(stop) => {
                self.begin();
                stop
            }
            None => std::future::pending().await,
        }
    }
}

/// Authorises `principal` for its own park at `stop`, if that is at this relay. Parks offered to its client are listed
/// as paused.
fn parked(context: &Context, principal: &Principal, stop: Stop) -> Option<Authorized> {
    let list = context.registry.snapshot();
    let known = list.find(stop.0).filter(|known| known.stop == stop.1)?;
    match known.kind {
        Kind::Debugpy => {}
        Kind::Pdb => return None,
    }
    let is_here = known.holder().is_some_and(Holder::is_here);
    if !is_here || !is_own(principal, known) {
        return None;
    }
    authorise(principal, known, Scope::View).ok()
}

/// Asks the process of a park, after the audit: the park stores the answer. `None`: it was not asked, or is busy.
async fn query_park(
    context: &Context,
    audit: &SessionAudit<'_>,
    authorized: &Authorized,
) -> Option<()> {
    let command = Command::Evaluate.as_str();
    let ids = [authorized.breakpoint().id];
    let recorded = audit.group(LOOK_CLIENT, command, None, &ids).await;
    recorded.ok()?;
    let expression = pdb::console_expression("None", false, MAX_VALUE_CHARS);
    let looked = context.sessions.parks.look(authorized, expression);
    let _ = timeout(ANSWER_TIMEOUT, looked).await.ok()?.ok()?;
    Some(())
}

/// Asks the process of `breakpoint`; the registry stores the answer. `None`: it was not asked, or did not answer.
async fn query_worker(
    context: &Context,
    principal: &Principal,
    summary: &Summary,
    breakpoint: &Arc<Breakpoint>,
) -> Option<()> {
    match breakpoint.kind {
        Kind::Debugpy => {}
        Kind::Pdb => return None,
    }
    let authorized = authorise(principal, breakpoint, Scope::View).ok()?;
    let session = context.sessions.table.open(summary);
    let via = SessionProtocol::Dap.label();
    let begun = Look::begin(context, &session, authorized, via).await;
    let (look, stream) = begun.ok()?;
    let account = context.account(principal);
    let answer = pdb::rank(stream, LOOK_CLIENT, &account, ANSWER_TIMEOUT).await;
    // An answer that must be recorded and cannot be is discarded.
    if let Ok(Some(rank)) = answer
        && let Ok(_) = look
            .live
            .capture
            .take(Direction::Down, format!("rank {rank}\n").as_bytes())
    {
        look.live.worker.set_rank(rank);
    }
    let outcome = match answer {
        Ok(_) => Outcome::Client,
        Err(_) => Outcome::Upstream,
    };
    look.end(outcome).await;
    Some(())
}
