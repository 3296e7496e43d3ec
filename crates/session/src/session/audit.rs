//! What goes on record of a debug session: refusals, its begin, what is done in it, its end.
//!
//! [`SessionAudit::begin`] comes before the permit is used, so what cannot be recorded does not happen.

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

/// How long one line may take: meanwhile the session that it is of stands still.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Tasks of one group that are named in its line.
const MEMBERS: usize = 256;

/// The audit record of one session that has begun. Cheap to clone, for what writes while the session is watched.
#[derive(Clone)]
pub struct SessionAudit<'a> {
    audit: &'a Audit,
    session: &'a Session,
    principal: Principal,
    breakpoint: Option<Arc<Breakpoint>>,
    began: Instant,
}

impl<'a> SessionAudit<'a> {
    /// Writes that the session begins: with one worker, or the cluster session. `details` is what else is to be known.
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

    /// Whether [`Self::command`] is wanted.
    pub fn wants_commands(&self) -> bool {
        self.audit.wants_commands()
    }

    /// Writes what is done in it; to be called before it is done.
    pub async fn command(&self, details: Map<String, Value>) -> Result<(), Unavailable> {
        let mut entry = self.entry(EntryKind::Command);
        entry.details = details;
        write(self.audit, entry).await
    }

    /// Writes that its client, called `client`, `asks` something of all of `tasks`, of this job where it is one's; to be called
    /// before any of them is reached.
    pub async fn group(
        &self,
        (client, asks): (&str, &str),
        job_id: Option<&str>,
        tasks: &[BreakpointId],
    ) -> Result<(), Unavailable> {
        let job = job_id.map(|job_id| ("job_id", job_id));
        let about = std::iter::once(("asks", asks)).chain(job);
        let named = &tasks[..tasks.len().min(MEMBERS)];
        self.command(of_group(client, about, (tasks.len(), named)))
            .await
    }

    /// Writes that its client is lost, and what comes of that; later where it cannot now, for that has happened.
    pub async fn parked(&self, details: Map<String, Value>) {
        let mut entry = self.entry(EntryKind::SessionParked);
        entry.details = details;
        report(self.audit, entry, "a park is not on record yet").await;
    }

    /// Writes how it ended, or later where it cannot now.
    pub async fn end(self, outcome: Outcome) {
        let entry = self.ended(outcome);
        report(
            self.audit,
            entry,
            "the end of a session is not on record yet",
        )
        .await;
    }

    /// Writes how it is about to end; in place of [`Self::end`], where it does not end without.
    pub async fn ends(&self, outcome: Outcome) -> Result<(), Unavailable> {
        write(self.audit, self.ended(outcome)).await
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

/// Of what `principal` does in `session`.
fn entry(session: &Session, principal: &Principal, action: EntryKind) -> Entry {
    Entry {
        principal: Some(principal.clone()),
        peer: Some(session.peer()),
        session: Some(session.id()),
        request: Some(session.summary().id()),
        ..Entry::new(action)
    }
}

/// What the line of a group says: that a client called `client` means so many tasks, these among them, and what else is known
/// `about` it.
pub fn of_group<'a>(
    client: &str,
    about: impl IntoIterator<Item = (&'a str, &'a str)>,
    (count, named): (usize, &[BreakpointId]),
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

/// Writes that a client's credential was not accepted. It is refused whether or not that can be written down.
pub(super) async fn unauthenticated(audit: &Audit, entry: Entry) {
    if let Err(why) = write(audit, entry).await {
        error!(%why, "a failed authentication is not on record");
    }
}

/// Writes that `principal` asked for a session and gets none.
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

/// Writes that `principal` has a debugger opened in a task that asked for none; to be called before that is done.
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

/// Writes that `principal` means all of `tasks` by what it asks as a client called `client`, in the request `request`; to be called before
/// any of them is reached.
pub async fn means_all(
    audit: &Audit,
    session: &Session,
    principal: &Principal,
    (client, request): (&str, RequestId),
    tasks: &[BreakpointId],
) -> Result<(), Unavailable> {
    let named = &tasks[..tasks.len().min(MEMBERS)];
    let entry = Entry {
        request: Some(request),
        details: of_group(client, [], (tasks.len(), named)),
        ..entry(session, principal, EntryKind::Administration)
    };
    write(audit, entry.with("outcome", "allowed")).await
}

/// Writes what happens either way, or has it written later.
async fn report(audit: &Audit, entry: Entry, otherwise: &str) {
    if let Err(why) = write(audit, entry.clone()).await {
        error!(%why, "{otherwise}");
        audit.owe(entry);
    }
}

async fn write(audit: &Audit, entry: Entry) -> Result<(), Unavailable> {
    // Apart, so that no session holds the room for a line all the time.
    let written = timeout(WRITE_TIMEOUT, Box::pin(audit.write(entry))).await;
    written.unwrap_or_else(|_| Err(Unavailable("it takes too long".to_owned())))
}
