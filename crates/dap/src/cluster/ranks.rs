//! Asks processes of tasks that wait for their ranks, before the client opens sessions for them: a session keeps the name that it
//! is opened with, and an order of tasks is no rank.
//!
//! Each question is a session like every other one, on record and for a permit, by the permission `view`: what runs in the worker is
//! the relay's own probe. The task stays as it is.

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

/// Processes that are asked at a time.
const MAX_AT_A_TIME: usize = 8;

/// How long a process may wait for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a process may take to say its rank.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Characters of the value that comes with a rank.
const VALUE_LIMIT: usize = 8;

/// The questions of one cluster session.
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

    /// Asks the process of `breakpoint`, in its turn.
    pub(super) fn ask(&mut self, breakpoint: Arc<Breakpoint>) {
        self.waiting.push_back((Instant::now(), breakpoint));
        self.begin();
    }

    fn begin(&mut self) {
        while self.asking.len() < MAX_AT_A_TIME
            && let Some((since, breakpoint)) = self.waiting.pop_front()
        {
            // Its session is opened without by now.
            if since.elapsed() > TURN_TIMEOUT {
                continue;
            }
            let (context, principal, summary) = (self.context, self.principal, self.summary);
            let audit = self.audit.clone();
            self.asking.push(Box::pin(async move {
                let stop = (breakpoint.id, breakpoint.stop);
                // What is not known of a rank is shown as a pid.
                let _ = match parked(context, principal, stop) {
                    Some(authorized) => asked_of_park(context, &audit, &authorized).await,
                    None => asked(context, principal, summary, &breakpoint).await,
                };
                stop
            }));
        }
    }

    /// Resolves with one that was asked, whatever came of it; never where there is none. Cancel safe.
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

/// What is at `stop`, where `principal` has parked it here. What is offered to its client is not shown as parked.
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

/// Asks the process of a park, once that is on record: the park has the answer shown. `None`: it was not asked, or is at work.
async fn asked_of_park(
    context: &Context,
    audit: &SessionAudit<'_>,
    authorized: &Authorized,
) -> Option<()> {
    let asks = (LOOK_CLIENT, Command::Evaluate.as_str());
    let ids = [authorized.breakpoint().id];
    audit.group(asks, None, &ids).await.ok()?;
    let expression = pdb::console_expression("None", false, VALUE_LIMIT);
    let looked = context.sessions.parks.look(authorized, expression);
    let _ = timeout(ANSWER_TIMEOUT, looked).await.ok()?.ok()?;
    Some(())
}

/// Asks the process of `breakpoint`; the registry has the answer. `None`: it was not asked, or gave none.
async fn asked(
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
    let told = pdb::rank(stream, LOOK_CLIENT, &account, ANSWER_TIMEOUT).await;
    // Where it has to be recorded and cannot be, it is not known.
    if let Ok(Some(rank)) = told
        && let Ok(_) = look
            .live
            .capture
            .take(Direction::Down, format!("rank {rank}\n").as_bytes())
    {
        look.live.worker.has_rank(rank);
    }
    let outcome = match told {
        Ok(_) => Outcome::Client,
        Err(_) => Outcome::Upstream,
    };
    look.end(outcome).await;
    Some(())
}
