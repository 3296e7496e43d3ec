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
use serde_json::Map;
use tokio::time::Instant;

use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::recording::{Direction, Protocol};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_debugger::pdb;
use ray_relay_ray::hold::LOOK_CLIENT;
use ray_relay_ray::ray::registry::{Breakpoint, Kind};
use ray_relay_session::context::Context;
use ray_relay_session::session::family::Stop;
use ray_relay_session::session::live::Begun;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{Permit, authorise, leaving};
use ray_relay_session::upstream::{self, MAX_HANDSHAKE_FRAME};

/// Processes that are asked at a time.
const MAX_AT_A_TIME: usize = 8;

/// How long a process may wait for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a process may take to say its rank.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the worker is waited for when its process was asked.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// The questions of one cluster session.
pub(super) struct RankQueries<'a> {
    context: &'a Context,
    principal: &'a Principal,
    summary: &'a Summary,
    waiting: VecDeque<(Instant, Arc<Breakpoint>)>,
    asking: FuturesUnordered<Pin<Box<dyn Future<Output = Stop> + Send + 'a>>>,
}

impl<'a> RankQueries<'a> {
    pub(super) fn new(
        context: &'a Context,
        principal: &'a Principal,
        summary: &'a Summary,
    ) -> Self {
        Self {
            context,
            principal,
            summary,
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
            self.asking.push(Box::pin(async move {
                let stop = (breakpoint.id, breakpoint.stop);
                // What is not known of a rank is shown as a pid.
                let _ = asked(context, principal, summary, &breakpoint).await;
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
    let wanted = |b: &Breakpoint| b.id == breakpoint.id;
    leaving::given_back(&context.registry, &context.sessions.table, wanted).await;
    let session = context.sessions.table.open(summary);
    session.set_state(SessionProtocol::Dap, SessionState::Looking);
    session.set_client(LOOK_CLIENT.to_owned());
    session.set_principal(principal.clone());
    let holder = session.holder(principal, LOOK_CLIENT);
    let permit = Permit::acquire(&context.registry, authorized, holder).ok()?;
    let mut details = Map::new();
    details.insert("protocol".into(), SessionProtocol::Dap.label().into());
    details.insert("client".into(), LOOK_CLIENT.into());
    details.insert("scope".into(), Scope::View.word().into());
    let (services, protocol) = (context.services(), Protocol::Terminal);
    let begun = Begun::begin(services, &session, permit, protocol, LOOK_CLIENT, details);
    let begun = begun.await.ok()?;
    let connected = upstream::connect(context, &begun.permit, MAX_HANDSHAKE_FRAME).await;
    let Ok(worker) = connected else {
        let (permit, closing) = begun.part();
        permit.end(RETURN_TIMEOUT).await;
        closing.end(Outcome::Refused).await;
        return None;
    };
    let live = begun.attached();
    let (stream, read) = worker.into_parts();
    let stream = Prefixed::new(read.into(), stream);
    let account = context.account(principal);
    let told = pdb::rank(stream, LOOK_CLIENT, &account, ANSWER_TIMEOUT).await;
    // Where it has to be recorded and cannot be, it is not known.
    if let Ok(Some(rank)) = told
        && let Ok(_) = live
            .capture
            .take(Direction::Down, format!("rank {rank}\n").as_bytes())
    {
        live.worker.has_rank(rank);
    }
    let outcome = match told {
        Ok(_) => Outcome::Client,
        Err(_) => Outcome::Upstream,
    };
    let (attached, closing) = live.part();
    attached.end(RETURN_TIMEOUT).await;
    closing.end(outcome).await;
    session.ended(outcome);
    Some(())
}
