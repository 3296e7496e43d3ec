//! Short sessions that inspect a task: they send its process a request of the relay's own, and leave it paused.

use std::time::Duration;

use serde_json::Map;
use tracing::{Instrument as _, Span};

use super::{ConnectError, MAX_HANDSHAKE_FRAME, connect};
use crate::context::Context;
use crate::session::live::{Begun, Live};
use crate::session::refusal::SessionRefusal;
use crate::session::state::SessionState;
use crate::session::{Authorized, Denied, Permit, Session, leaving};
use ray_relay_access::policy::Scope;
use ray_relay_access::recording::Protocol;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_debugger::debugger::Worker;
use ray_relay_ray::hold::LOOK_CLIENT;
use ray_relay_ray::ray::registry::Breakpoint;

/// Deadline for the worker to be detached after an inspection.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// Why an inspection did not begin.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    #[error("cannot reach {name}: {why}")]
    Unreached { name: String, why: ConnectError },
}

/// A session by the permission `view`, audited and with a permit like any other.
pub struct Look<'a> {
    pub live: Live<'a>,
    /// The session's span.
    pub span: Span,
    session: &'a Session,
}

impl<'a> Look<'a> {
    /// Begins it in the new `session`, after waiting for a brief holder to release the task. `via` is the client's
    /// protocol for the audit. The stream leads to the debugger.
    ///
    /// # Errors
    /// [`LookError`]; the session is over then.
    pub async fn begin(
        context: &'a Context,
        session: &'a Session,
        authorized: Authorized,
        via: &'static str,
    ) -> Result<(Self, Prefixed<Worker>), LookError> {
        let (principal, breakpoint) = (
            authorized.principal().clone(),
            authorized.breakpoint().clone(),
        );
        session.set_state(SessionProtocol::Dap, SessionState::Looking);
        session.set_client(LOOK_CLIENT.to_owned());
        session.set_principal(principal.clone());
        let matches = |b: &Breakpoint| b.id == breakpoint.id;
        leaving::wait_for_release(&context.registry, &context.sessions.table, matches).await;
        let holder = session.holder(&principal, LOOK_CLIENT);
        let unknown = || SessionRefusal::Nothing(Denied::Hidden.to_string());
        let permit = Permit::acquire(&context.registry, authorized, holder)
            .map_err(|why| SessionRefusal::unclaimed(why, &breakpoint, unknown))?;
        let span = permit.span();
        let mut details = Map::new();
        details.insert("protocol".into(), via.into());
        details.insert("client".into(), LOOK_CLIENT.into());
        details.insert("scope".into(), Scope::View.word().into());
        let (services, protocol) = (context.services(), Protocol::Terminal);
        let begun = Begun::begin(services, session, permit, protocol, LOOK_CLIENT, details);
        let begun = begun.instrument(span.clone()).await?;
        let connected = connect(context, &begun.permit, MAX_HANDSHAKE_FRAME);
        let worker = match connected.instrument(span.clone()).await {
            Ok(worker) => worker,
            Err(why) => {
                let (permit, closing) = begun.part();
                permit.end(RETURN_TIMEOUT).await;
                closing.end(Outcome::Refused).await;
                let name = breakpoint.title();
                return Err(LookError::Unreached { name, why });
            }
        };
        let live = begun.attached();
        let (stream, read) = worker.into_parts();
        let look = Self {
            live,
            span,
            session,
        };
        Ok((look, Prefixed::new(read.into(), stream)))
    }

    /// Detaches the worker, then audits the end.
    pub async fn end(self, outcome: Outcome) {
        let (attached, closing) = self.live.part();
        attached.end(RETURN_TIMEOUT).await;
        closing.end(outcome).await;
        self.session.ended(outcome);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::session::authorise;
    use ray_relay_access::audit::testing::spied;
    use ray_relay_access::connection::summary::Summary;
    use ray_relay_access::identity::{Authenticator, Principal};
    use ray_relay_base::config::Config;
    use ray_relay_base::wire::dap::codec::frame;
    use ray_relay_base::wire::dap::message::event;
    use ray_relay_ray::ray::testing::{listed, paused};

    #[tokio::test]
    async fn task_is_free_after_a_snapshot() {
        let (audit, _) = spied(false);
        let context = Context::offline(Config::default(), Authenticator::open(), audit);
        let listener = listed(&context.registry, paused("square", 1)).await;
        let worker = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let greeting = event("output", json!({"category": "telemetry"}));
            let welcome = event("debugpySockets", json!({"sockets": []}));
            let output = [frame(&greeting), frame(&welcome)].concat();
            stream.write_all(&output).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap()
        });
        let summary = Summary::new(([127, 0, 0, 1], 1).into());
        let session = context.sessions.table.open(&summary);
        let is_free = || context.registry.snapshot().live[0].is_paused();
        let task = context.registry.snapshot().live[0].clone();
        let authorized = authorise(&Principal::anonymous(), &task, Scope::View).unwrap();
        let started = Look::begin(&context, &session, authorized, "http").await;
        let (inspection, debugger) = started.unwrap();
        assert!(!is_free());
        drop(debugger);
        inspection.end(Outcome::Client).await;
        assert!(is_free());
        assert_eq!(worker.await.unwrap(), 0, "it was asked for nothing");
    }
}
