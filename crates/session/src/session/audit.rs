//! Audits debug sessions: refusals, begin, commands, end.
//!
//! [`SessionAudit::begin`] precedes the use of the permit: a session that cannot be audited does not happen.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};
use tracing::error;

use crate::session::Session;
use ray_relay_access::audit::{Audit, Entry, EntryKind, Unavailable};
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId};

/// Deadline of one line: its session is blocked meanwhile.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Tasks of one group that its line names.
const MAX_NAMED_MEMBERS: usize = 256;

/// Audit handle of one session that has begun. Cheap to clone, for writers next to the session's loop.
#[derive(Clone)]
pub struct SessionAudit<'a> {
    audit: &'a Audit,
    session: &'a Session,
    principal: Principal,
    breakpoint: Option<Arc<Breakpoint>>,
    began: Instant,
}

impl<'a> SessionAudit<'a> {
    /// Writes that the session begins: with one worker, or as a cluster session. Adds `details`.
    pub async fn begin(
        audit: &'a Audit,
        session: &'a Session,
        principal: &Principal,
        breakpoint: Option<&Arc<Breakpoint>>,
        details: Map<String, Value>,
    ) -> Result<Self, Unavailable> {
        let begun = Self {
            audit,
            session,
            principal: principal.clone(),
            breakpoint: breakpoint.cloned(),
            began: Instant::now(),
        };
        let mut entry = begun.entry(EntryKind::SessionBegan);
        entry.details.extend(details);
        write(audit, entry.with("outcome", "allowed")).await?;
        Ok(begun)
    }

    /// Whether commands are audited.
    pub fn wants_commands(&self) -> bool {
        self.audit.wants_commands()
    }

    /// Writes a command; call it before the command takes effect.
    pub async fn command(&self, details: Map<String, Value>) -> Result<(), Unavailable> {
        let entry = self.detailed(EntryKind::Command, details);
        write(self.audit, entry).await
    }

    /// Writes that its client, called `client`, `asks` something of all `tasks`, with their job if they share one. Call
    /// it before any of them is reached.
    pub async fn group(
        &self,
        client: &str,
        asks: &str,
        job_id: Option<&str>,
        tasks: &[BreakpointId],
    ) -> Result<(), Unavailable> {
        let job = job_id.map(|job_id| ("job_id", job_id));
        let about = std::iter::once(("asks", asks)).chain(job);
        let named = &tasks[..tasks.len().min(MAX_NAMED_MEMBERS)];
        self.command(of_group(client, about, tasks.len(), named))
            .await
    }

    /// Writes that its client is lost, and what follows. Retried later on failure, because it has happened.
    pub async fn parked(&self, details: Map<String, Value>) {
        let entry = self.detailed(EntryKind::SessionParked, details);
        report(self.audit, entry, "a park is not on record yet").await;
    }

    /// The session.
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// Writes that it arms lines in a job, whether or not commands are audited; call it before that is done.
    pub async fn arms(&self, details: Map<String, Value>) -> Result<(), Unavailable> {
        let entry = self.detailed(EntryKind::Administration, details);
        write(self.audit, entry.with("outcome", "allowed")).await
    }

    /// Writes that lines are disarmed. Retried later on failure, because it has happened.
    pub async fn disarmed(&self, details: Map<String, Value>) {
        let entry = self.detailed(EntryKind::Administration, details);
        report(
            self.audit,
            entry,
            "the end of armed lines is not on record yet",
        )
        .await;
    }

    /// Writes how it ended. Retried later on failure.
    pub async fn end(self, outcome: Outcome) {
        let entry = self.ended(outcome);
        report(
            self.audit,
            entry,
            "the end of a session is not on record yet",
        )
        .await;
    }

    /// Writes how it is about to end. Replaces [`Self::end`] if the session must not end unrecorded.
    pub async fn ends(&self, outcome: Outcome) -> Result<(), Unavailable> {
        write(self.audit, self.ended(outcome)).await
    }

    fn detailed(&self, action: EntryKind, details: Map<String, Value>) -> Entry {
        Entry {
            details,
            ..self.entry(action)
        }
    }

    fn ended(&self, outcome: Outcome) -> Entry {
        let (up, down) = self.session.bytes();
        let milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.entry(EntryKind::SessionEnded)
            .with("protocol", self.session.protocol().label())
            .with("outcome", outcome.label())
            .with("seconds", milliseconds as f64 / 1000.0)
            .with("bytes_up", up)
            .with("bytes_down", down)
    }

    fn entry(&self, action: EntryKind) -> Entry {
        Entry {
            breakpoint: self.breakpoint.clone(),
            ..entry(self.session, &self.principal, action)
        }
    }
}

/// An entry about `principal` in `session`.
fn entry(session: &Session, principal: &Principal, action: EntryKind) -> Entry {
    Entry {
        principal: Some(principal.clone()),
        peer: Some(session.peer()),
        session: Some(session.id()),
        request: Some(session.summary().id()),
        ..Entry::new(action)
    }
}

/// Details of a group's line: the client, `about`, the number of tasks, and those that are named.
pub fn of_group<'a>(
    client: &str,
    about: impl IntoIterator<Item = (&'a str, &'a str)>,
    count: usize,
    named: &[BreakpointId],
) -> Map<String, Value> {
    let mut details = Map::new();
    details.insert("command".into(), "group".into());
    details.insert("client".into(), client.into());
    let about = about.into_iter();
    details.extend(about.map(|(key, value)| (key.to_owned(), value.into())));
    details.insert("tasks".into(), count.into());
    let members = named.iter().map(ToString::to_string);
    details.insert("members".into(), members.map(Value::from).collect());
    details
}

/// Writes that a client's credential was refused. The client is refused whether or not this succeeds.
pub(super) async fn unauthenticated(audit: &Audit, entry: Entry) {
    if let Err(why) = write(audit, entry).await {
        error!(%why, "a failed authentication is not on record");
    }
}

/// Writes that `principal` requested a session and was denied.
pub async fn denied(
    audit: &Audit,
    session: &Session,
    principal: &Principal,
    breakpoint: Option<Arc<Breakpoint>>,
    details: Map<String, Value>,
) {
    let entry = Entry {
        breakpoint,
        details,
        ..entry(session, principal, EntryKind::Decision)
    };
    let entry = entry
        .with("protocol", session.protocol().label())
        .with("outcome", "denied");
    if let Err(why) = write(audit, entry).await {
        error!(%why, "a refusal is not on record");
    }
}

/// Writes that `principal` opens a debugger in a task that asked for none; call it before that is done.
pub async fn opens_debugger(
    audit: &Audit,
    session: &Session,
    principal: &Principal,
    details: Map<String, Value>,
) -> Result<(), Unavailable> {
    let entry = Entry {
        details,
        ..entry(session, principal, EntryKind::Administration)
    };
    let entry = entry
        .with("command", "open_debugger")
        .with("outcome", "allowed");
    write(audit, entry).await
}

/// Writes that `principal`, as a client called `client`, addresses all `tasks` in the request `request`. Call it before
/// any of them is reached.
pub async fn means_all(
    audit: &Audit,
    session: &Session,
    principal: &Principal,
    client: &str,
    request: RequestId,
    tasks: &[BreakpointId],
) -> Result<(), Unavailable> {
    let named = &tasks[..tasks.len().min(MAX_NAMED_MEMBERS)];
    let entry = Entry {
        request: Some(request),
        details: of_group(client, [], tasks.len(), named),
        ..entry(session, principal, EntryKind::Administration)
    };
    write(audit, entry.with("outcome", "allowed")).await
}

/// Writes an event that happens either way, or queues it for later.
async fn report(audit: &Audit, entry: Entry, otherwise: &str) {
    if let Err(why) = write(audit, entry.clone()).await {
        error!(%why, "{otherwise}");
        audit.owe(entry);
    }
}

async fn write(audit: &Audit, entry: Entry) -> Result<(), Unavailable> {
    // Boxed, so that sessions do not carry the space of a line all the time.
    let written = timeout(WRITE_TIMEOUT, Box::pin(audit.write(entry))).await;
    written.unwrap_or_else(|_| Err(Unavailable("it takes too long".to_owned())))
}
