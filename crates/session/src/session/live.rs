//! One live session with one worker, in any protocol.
//!
//! [`Begun::begin`] starts its recording if its policy requires one, and audits it, before its permit is used;
//! [`Begun::attached`] makes it [`Live`]. `watch` reports every event that comes neither from its client nor from the
//! worker's debugger. [`Live::part`] ends it. A protocol adds how its client is notified.

mod watch;

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::watch::{SessionEnd, SessionEvent, Signal, until};
use super::audit::SessionAudit;
use super::collective::CollectiveWait;
use super::limits::Limits;
use super::refusal::SessionRefusal;
use super::{Attached, Denied, Permit, Session};
use crate::agents::Agents;
use ray_relay_access::audit::Audit;
use ray_relay_access::identity::Principal;
use ray_relay_access::recording::{CaptureStore, CaptureTee, Meta, Protocol};
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::shutdown::Shutdown;
use ray_relay_ray::ray::task_end::TaskEnd;

/// Pause between two attempts to audit or record a session.
pub const RECORD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Services of the relay that every session uses.
#[derive(Clone, Copy)]
pub struct Services<'a> {
    pub audit: &'a Audit,
    pub agents: &'a Agents,
    pub recording: &'a CaptureStore,
    pub shutdown: &'a Shutdown,
    /// How long the relay waits for its sessions at shutdown: `listen.drain_timeout`.
    pub drain_timeout: Duration,
}

/// The client of a session, as it is recorded.
pub(crate) struct RecordedClient<'c> {
    pub(crate) protocol: Protocol,
    pub(crate) name: &'c str,
}

/// An audited session whose worker has not been reached. Dropped before [`Self::part`], it releases everything, and its
/// end is not audited.
pub struct Begun<'a> {
    services: Services<'a>,
    protocol: Protocol,
    audit: SessionAudit<'a>,
    capture: CaptureTee,
    /// Its entry in the table of live sessions.
    pub session: &'a Session,
    /// Fires when a permitted user has requested its end.
    asked_to_end: CancellationToken,
    /// Permit to reach the worker.
    pub permit: Permit,
}

/// A session with one worker, from attaching to the audited end. Dropped before [`Self::part`], it releases everything,
/// and its end is not audited.
pub struct Live<'a> {
    services: Services<'a>,
    protocol: Protocol,
    /// Its audit handle.
    pub audit: SessionAudit<'a>,
    /// Recording of its traffic, if any.
    pub capture: CaptureTee,
    /// Hold on the worker.
    pub worker: Attached,
    session: &'a Session,
    principal: Principal,
    /// Fires when a permitted user has requested its end.
    asked_to_end: CancellationToken,
    /// Begin of the first session with this hold on the worker.
    pub began: Instant,
    limits: Limits,
    /// Timeout of tasks that wait for this one in a collective.
    collective: Option<Box<CollectiveWait>>,
    /// Must be notified when the program resumes and stops, so that [`SessionEvent::TaskEnded`] can come.
    pub task: Box<TaskEnd>,
    /// Last known activity of the client.
    last_active: Instant,
    /// Whether the client knows that the relay is shutting down.
    draining: bool,
    /// Whether the client asked to disconnect: an end now counts as its wish.
    leaving: bool,
    /// Whether input of the client is ignored.
    cut_off: bool,
    /// Whether it has no client.
    unattended: bool,
    /// Latest end, once that is settled.
    ends_at: Option<Instant>,
    outcome: Outcome,
    /// Time limit of each query to the head why the worker died; `None`: the head is not asked.
    death_query: Option<Duration>,
}

/// Retries of a step until `until` is cancelled; `None`: no retry.
struct Attempts<'a> {
    until: Option<&'a CancellationToken>,
    logged: bool,
}

impl Attempts<'_> {
    /// Waits before the next attempt, after one that failed because of `why`.
    ///
    /// # Errors
    /// No further attempt is made.
    async fn again(&mut self, why: impl std::fmt::Display) -> Result<(), SessionRefusal> {
        let over = || SessionRefusal::Unable(why.to_string());
        let until = self.until.ok_or_else(over)?;
        if !std::mem::replace(&mut self.logged, true) {
            warn!(%why, "a session of the previous process cannot be put on record, and its task stays as it is");
        }
        tokio::select! {
            () = sleep(RECORD_RETRY_DELAY) => Ok(()),
            () = until.cancelled() => Err(over()),
        }
    }

    /// Starts a recording.
    ///
    /// # Errors
    /// As [`Self::again`].
    async fn record(
        &mut self,
        recording: &CaptureStore,
        meta: &Meta<'_>,
    ) -> Result<CaptureTee, SessionRefusal> {
        loop {
            match recording.begin(meta).await {
                Ok(writer) => return Ok(CaptureTee::new(writer)),
                Err(why) => self.again(why).await?,
            }
        }
    }
}

impl<'a> Begun<'a> {
    /// Begins the session of `client`: picks its route, starts its recording if its policy requires one, and audits it
    /// with `details`. Sends nothing to the worker.
    ///
    /// # Errors
    /// [`SessionRefusal`]: the worker's name revealed that it is not permitted, there is no route, the recording or the
    /// audit failed, or the principal's credential expired or was revoked meanwhile. The permit is released then, and
    /// the breakpoint stays paused or parked.
    pub async fn begin(
        services: Services<'a>,
        session: &'a Session,
        permit: Permit,
        protocol: Protocol,
        client: &str,
        details: Map<String, Value>,
    ) -> Result<Self, SessionRefusal> {
        let client = RecordedClient {
            protocol,
            name: client,
        };
        Self::begin_waiting(services, session, permit, client, details, None).await
    }

    /// The same for a session whose worker was reached before: failed recording and auditing are retried until `until`
    /// is cancelled. The task stays paused meanwhile.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn begin_waiting(
        services: Services<'a>,
        session: &'a Session,
        permit: Permit,
        client: RecordedClient<'_>,
        mut details: Map<String, Value>,
        until: Option<&CancellationToken>,
    ) -> Result<Self, SessionRefusal> {
        let mut attempts = Attempts {
            until,
            logged: false,
        };
        let RecordedClient {
            protocol,
            name: client,
        } = client;
        let mut permit = permit.named().await.map_err(|why| match why {
            Denied::Hidden => SessionRefusal::Nothing(why.to_string()),
            Denied::Missing { .. } => SessionRefusal::Forbidden(why.to_string()),
        })?;
        let (breakpoint, principal) = (permit.breakpoint().clone(), permit.principal().clone());
        info!(
            client, scopes = %permit.rights().scopes, subprocess = !permit.holds(), "session attaches"
        );
        let route = match permit.route() {
            // It is connected already.
            Some(route) => route.clone(),
            None => services
                .agents
                .route(&breakpoint)
                .await
                .map_err(|why| SessionRefusal::no_route(&breakpoint, why))?,
        };
        details.insert("way".into(), route.word().into());
        permit.settle(route);
        let capture = match permit.rights().obligations.record {
            true => {
                let meta = Meta {
                    began: SystemTime::now(),
                    protocol,
                    session: session.id(),
                    principal: &principal,
                    peer: session.peer(),
                    client,
                    breakpoint: &breakpoint,
                };
                attempts.record(services.recording, &meta).await?
            }
            false => CaptureTee::default(),
        };
        if let Some(name) = capture.name() {
            details.insert("recording".into(), name.into());
        }
        let audit = loop {
            let (audit, details) = (services.audit, details.clone());
            match SessionAudit::begin(audit, session, &principal, Some(&breakpoint), details).await
            {
                Ok(audit) => break audit,
                Err(why) => attempts.again(why).await?,
            }
        };
        // The waits since the authentication may have outlived the credential.
        if let Some(why) = principal.is_over() {
            drop(permit);
            audit.end(Outcome::Revoked).await;
            return Err(SessionRefusal::Forbidden(why.to_string()));
        }
        if let Err(why) = permit.accept().await {
            audit.end(Outcome::Refused).await;
            return Err(why);
        }
        session.set_process(permit.process());
        session.set_breakpoint(breakpoint);
        Ok(Self {
            services,
            protocol,
            audit,
            capture,
            session,
            asked_to_end: session.asked_to_end(),
            permit,
        })
    }

    /// The worker was reached: the session's limits start now.
    pub fn attached(self) -> Live<'a> {
        if self.permit.holds() {
            self.session.attached(self.permit.breakpoint().first_seen);
        }
        self.attached_since(Instant::now())
    }

    /// The worker was reached by a session that `began` earlier and was parked: its total duration keeps counting.
    pub fn attached_since(self, began: Instant) -> Live<'a> {
        let now = Instant::now();
        let worker = self.permit.attached();
        Live {
            services: self.services,
            protocol: self.protocol,
            audit: self.audit,
            capture: self.capture,
            session: self.session,
            principal: worker.principal().clone(),
            asked_to_end: self.asked_to_end,
            began,
            limits: Limits::new(&worker.rights().obligations, now).since(began),
            collective: worker.collective_wait().map(Box::new),
            task: Box::new(worker.task_end()),
            worker,
            last_active: now,
            draining: false,
            leaving: false,
            cut_off: false,
            unattended: false,
            ends_at: None,
            outcome: Outcome::Client,
            death_query: None,
        }
    }

    /// Ends it without having reached the worker, in two steps like [`Live::part`].
    pub fn part(self) -> (Permit, Closing<'a>) {
        let Self {
            audit,
            capture,
            permit,
            ..
        } = self;
        (permit, Closing { audit, capture })
    }
}

impl<'a> Live<'a> {
    /// The client asked to disconnect: from now on the end of its task or worker is not reported. Returns whether it
    /// had asked already.
    pub fn leave(&mut self) -> bool {
        std::mem::replace(&mut self.leaving, true)
    }

    /// Whether the client asked, or was made, to disconnect.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The relay ends the session: input of the client is ignored from now on.
    pub fn cut_off(&mut self) {
        self.cut_off = true;
        self.leaving = true;
    }

    /// Whether the relay has ended it.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// The session ends within `patience`, which can only get shorter; the first cause names the end.
    pub fn end_within(&mut self, patience: Duration, outcome: Outcome) {
        let until = Instant::now() + patience;
        match self.ends_at {
            Some(sooner) => self.ends_at = Some(sooner.min(until)),
            None => {
                self.ends_at = Some(until);
                self.outcome = outcome;
            }
        }
    }

    /// Remaining time without further activity; `None`: unlimited.
    pub fn limited_to(&self) -> Option<Duration> {
        self.limits.remaining(Instant::now())
    }

    /// The session continues without its client: pending ends for that client no longer count, nor does a failed
    /// recording.
    pub fn stay(&mut self) {
        self.ends_at = None;
        self.outcome = Outcome::Client;
        self.unattended = true;
    }

    /// How it ends, as far as known.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Ends it in two steps, because the breakpoint can be released before or after the last audit line.
    pub fn part(self) -> (Attached, Closing<'a>) {
        let Self {
            audit,
            capture,
            worker,
            ..
        } = self;
        (worker, Closing { audit, capture })
    }
}

/// An ended session whose end is not audited yet.
pub struct Closing<'a> {
    audit: SessionAudit<'a>,
    capture: CaptureTee,
}

impl Closing<'_> {
    /// Finishes its recording and audits its end, with the session's byte counts as last set. Takes some seconds at
    /// most.
    pub async fn end(self, outcome: Outcome) {
        self.capture.finish(outcome.label()).await;
        self.audit.end(outcome).await;
    }

    /// The same if its end is audited already ([`SessionAudit::ends`]).
    pub(crate) async fn end_recorded(self, outcome: Outcome) {
        self.capture.finish(outcome.label()).await;
    }
}

#[cfg(test)]
mod tests;
