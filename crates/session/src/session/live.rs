//! One session with one worker while it lasts: what it holds, whatever its protocol.
//!
//! [`Begun::begin`] has it captured where its policy says so, and puts it on record, before its permit is used;
//! [`Begun::attached`] makes it [`Live`]. `watch` tells whatever befalls it that neither its client nor the worker's debugger
//! says. [`Live::part`] ends it. A protocol adds how its client is told.

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

/// The pause between two attempts to put something on record.
pub const RECORD_AGAIN: Duration = Duration::from_secs(1);

/// What of the daemon every session goes by.
#[derive(Clone, Copy)]
pub struct Services<'a> {
    pub audit: &'a Audit,
    pub agents: &'a Agents,
    pub recording: &'a CaptureStore,
    pub shutdown: &'a Shutdown,
    /// How long the relay waits for its sessions when it ends: `listen.drain_timeout`.
    pub drain_timeout: Duration,
}

/// A session that is on record, and whose worker has not been reached. Dropped before [`Self::part`], it gives everything back,
/// and its end is not on record.
pub struct Begun<'a> {
    services: Services<'a>,
    protocol: Protocol,
    audit: SessionAudit<'a>,
    capture: CaptureTee,
    /// Whose session it is, in the table of the live ones.
    pub session: &'a Session,
    /// Fires when a permitted person has asked for its end.
    asked_to_end: CancellationToken,
    /// The leave to reach the worker.
    pub permit: Permit,
}

/// A session with one worker, from when that was reached to its end on record. Dropped before [`Self::part`], it gives
/// everything back, and its end is not on record.
pub struct Live<'a> {
    services: Services<'a>,
    protocol: Protocol,
    /// Its audit record.
    pub audit: SessionAudit<'a>,
    /// Where everything goes that is said in it.
    pub capture: CaptureTee,
    /// The hold of the worker.
    pub worker: Attached,
    session: &'a Session,
    principal: Principal,
    /// Fires when a permitted person has asked for its end.
    asked_to_end: CancellationToken,
    /// When the first session with this hold of the worker began.
    pub began: Instant,
    limits: Limits,
    /// Until when others wait for the task.
    collective: Option<Box<CollectiveWait>>,
    /// To be told when the program runs and stops, for [`SessionEvent::TaskEnded`] to come.
    pub task: Box<TaskEnd>,
    /// When the client last said something, as far as is known.
    said: Instant,
    /// The relay is being shut down, and the client knows.
    draining: bool,
    /// The client has asked to leave: what ends now ends by its wish.
    leaving: bool,
    /// Nothing that the client says counts any more.
    cut_off: bool,
    /// No side says anything in it.
    unattended: bool,
    /// When it ends at the latest, as far as that is settled.
    ends_at: Option<Instant>,
    outcome: Outcome,
    /// How long the head is asked why the worker is gone, while it is.
    asks_why: Option<Duration>,
}

/// What is tried again where it cannot be done, until `until` is cancelled; `None`: it is not.
struct Attempts<'a> {
    until: Option<&'a CancellationToken>,
    told: bool,
}

impl Attempts<'_> {
    /// Resolves when it is time for the next one, after one that failed because of `why`.
    ///
    /// # Errors
    /// There is none.
    async fn again(&mut self, why: impl std::fmt::Display) -> Result<(), SessionRefusal> {
        let over = || SessionRefusal::Unable(why.to_string());
        let until = self.until.ok_or_else(over)?;
        if !std::mem::replace(&mut self.told, true) {
            warn!(%why, "a session of the previous process cannot be put on record, and its task stays as it is");
        }
        tokio::select! {
            () = sleep(RECORD_AGAIN) => Ok(()),
            () = until.cancelled() => Err(over()),
        }
    }
}

impl<'a> Begun<'a> {
    /// Begins the session of `client`, as it calls itself: settles by which way it goes, has it captured where its policy says so, and puts it on record,
    /// with `details`. Nothing of this reaches the worker.
    ///
    /// # Errors
    /// [`SessionRefusal`]: what is not captured or not on record does not happen, nor does what a person asked for whose time is
    /// over meanwhile. The permit is given back then, and the breakpoint waits as before, or stays parked.
    pub async fn begin(
        services: Services<'a>,
        session: &'a Session,
        permit: Permit,
        protocol: Protocol,
        client: &str,
        details: Map<String, Value>,
    ) -> Result<Self, SessionRefusal> {
        Self::begin_waiting(services, session, permit, (protocol, client), details, None).await
    }

    /// The same of a session whose worker was reached before: what cannot be put on record, or captured, is tried again until it
    /// can be, or `until` is cancelled. The task stays meanwhile.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn begin_waiting(
        services: Services<'a>,
        session: &'a Session,
        permit: Permit,
        (protocol, client): (Protocol, &str),
        mut details: Map<String, Value>,
        until: Option<&CancellationToken>,
    ) -> Result<Self, SessionRefusal> {
        let mut attempts = Attempts { until, told: false };
        let mut permit = permit.named().await.map_err(|why| match why {
            Denied::Hidden => SessionRefusal::Nothing(why.to_string()),
            Denied::Missing { .. } => SessionRefusal::Forbidden(why.to_string()),
        })?;
        let (breakpoint, principal) = (permit.breakpoint().clone(), permit.principal().clone());
        info!(
            client, scopes = %permit.rights().scopes, subprocess = !permit.holds(), "session attaches"
        );
        let way = match permit.way() {
            // Its connection is there already.
            Some(way) => way.clone(),
            None => services
                .agents
                .way(&breakpoint)
                .await
                .map_err(|why| SessionRefusal::no_way(&breakpoint, why))?,
        };
        details.insert("way".into(), way.word().into());
        permit.settle(way);
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
                let writer = loop {
                    match services.recording.begin(&meta).await {
                        Ok(writer) => break writer,
                        Err(why) => attempts.again(why).await?,
                    }
                };
                CaptureTee::new(writer)
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
        // Recognised a while ago, and then there were waits.
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

    /// The worker was reached: the limits of the session count from now on.
    pub fn attached(self) -> Live<'a> {
        if self.permit.holds() {
            self.session.attached(self.permit.breakpoint().first_seen);
        }
        self.attached_since(Instant::now())
    }

    /// The worker was reached by a session that `began` before and was parked: the longest time of a session counts on.
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
            said: now,
            draining: false,
            leaving: false,
            cut_off: false,
            unattended: false,
            ends_at: None,
            outcome: Outcome::Client,
            asks_why: None,
        }
    }

    /// Ends it where the worker was not reached, in two steps as [`Live::part`].
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
    /// The client has asked to leave: from here on the end of its task or worker is no news. Says whether that is known
    /// already.
    pub fn leave(&mut self) -> bool {
        std::mem::replace(&mut self.leaving, true)
    }

    /// The client has asked to leave, or was made to.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The relay ends the session: nothing that the client says counts any more.
    pub fn cut_off(&mut self) {
        self.cut_off = true;
        self.leaving = true;
    }

    /// The relay has ended it.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// The session ends within `patience`, which can only become shorter, and its first cause names the end.
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

    /// How long it can last still where nothing more is done in it; `None`: for ever.
    pub fn limited_to(&self) -> Option<Duration> {
        self.limits.left(Instant::now())
    }

    /// Its client is gone, and it goes on without one: no patience with that client counts any more, nor that what is said
    /// cannot be captured.
    pub fn stay(&mut self) {
        self.ends_at = None;
        self.outcome = Outcome::Client;
        self.unattended = true;
    }

    /// How it ends, as far as is known.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Ends it in two steps, because the breakpoint can be given back before or after the last line is written.
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

/// A session that is over, and whose end is not on record yet.
pub struct Closing<'a> {
    audit: SessionAudit<'a>,
    capture: CaptureTee,
}

impl Closing<'_> {
    /// Writes the last line of its capture, and its end, with the bytes of the session as they were last set. Takes some
    /// seconds at most.
    pub async fn end(self, outcome: Outcome) {
        self.capture.finish(outcome.label()).await;
        self.audit.end(outcome).await;
    }

    /// The same where its end is on record already ([`SessionAudit::ends`]).
    pub(crate) async fn end_recorded(self, outcome: Outcome) {
        self.capture.finish(outcome.label()).await;
    }
}

#[cfg(test)]
mod tests;
