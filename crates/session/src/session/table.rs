//! The live sessions: one entry each, removed when its owner drops it, whatever its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::session::armed_summary::ArmedSummary;
use crate::session::liveness::{Liveness, LivenessProbe};
use crate::session::parks::ParkView;
use crate::session::state::SessionState;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::metrics::{
    Direction, Editor, OpenGuard, Outcome, SessionProtocol,
};
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder};

/// One live session, as `/relay/v1/sessions` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionRow {
    /// The number that `ray-relay sessions end` takes. It counts the sessions of this relay.
    pub id: u64,
    /// `dap`, `dap_cluster`, `terminal`, `websocket`, `reverse` or `lines`.
    pub protocol: &'static str,
    /// One of the [states](#states) of a session.
    pub state: SessionState,
    /// The id of its connection, as the log and the audit log have it.
    pub request: RequestId,
    /// Where the client connected from.
    pub peer: SocketAddr,
    /// The person, as the credential names them.
    pub subject: Option<String>,
    /// The name by which the client identifies itself, cleaned for display.
    pub client: Option<String>,
    /// The breakpoint it holds.
    pub breakpoint: Option<BreakpointId>,
    /// The name of that breakpoint's task.
    pub name: Option<String>,
    /// Cluster of that breakpoint, or of the armed lines.
    pub cluster: Option<String>,
    /// The lines that it has armed in running jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub armed: Option<ArmedSummary>,
    /// When it began.
    pub since: Timestamp,
    /// Bytes from the client.
    pub bytes_up: u64,
    /// Bytes to the client.
    pub bytes_down: u64,
    /// The breakpoint itself, as the session knows it.
    #[serde(skip)]
    pub held: Option<Arc<Breakpoint>>,
}

/// The consequence of ending a session.
#[derive(Debug)]
pub enum Ends {
    /// The task at this breakpoint resumes.
    Worker(Arc<Breakpoint>),
    /// Armed lines are disarmed.
    Lines,
}

/// All live sessions.
#[derive(Debug)]
pub struct SessionTable {
    live: DashMap<u64, Arc<SessionEntry>>,
    last: AtomicU64,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct SessionEntry {
    id: u64,
    summary: Summary,
    since: Timestamp,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    /// Fires when a permitted user has requested its end.
    end: CancellationToken,
    /// Probes of its client.
    liveness: Arc<Liveness>,
    /// Fires when the client detached from the parent task of this subprocess and left it paused.
    task_left: Notify,
    info: Mutex<SessionInfo>,
}

/// The mutable part of a session.
#[derive(Debug)]
struct SessionInfo {
    /// Counts it as an open session of its protocol.
    open: OpenGuard,
    protocol: SessionProtocol,
    state: SessionState,
    subject: Option<String>,
    client: Option<String>,
    editor: Editor,
    breakpoint: Option<Arc<Breakpoint>>,
    /// The subprocess that it debugs, if any.
    process: Option<u32>,
    principal: Option<Principal>,
    armed: Option<ArmedSummary>,
}

/// One live session; dropping it takes it off the table.
#[derive(Debug)]
pub struct Session {
    table: Arc<SessionTable>,
    entry: Arc<SessionEntry>,
}

impl SessionTable {
    /// Creates an empty table, counted in `metrics`.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            live: DashMap::new(),
            last: AtomicU64::new(0),
            metrics,
        }
    }

    /// Adds a session on the connection of `summary`, and records its number in the current span.
    pub fn open(self: &Arc<Self>, summary: &Summary) -> Session {
        let entry = Arc::new(SessionEntry {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            summary: summary.clone(),
            since: Timestamp::now(),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
            end: CancellationToken::new(),
            liveness: Arc::default(),
            task_left: Notify::new(),
            info: Mutex::new(SessionInfo {
                open: self.metrics.session_open(SessionProtocol::Dap),
                protocol: SessionProtocol::Dap,
                state: SessionState::Handshake,
                subject: None,
                client: None,
                editor: Editor::Other,
                breakpoint: None,
                process: None,
                principal: None,
                armed: None,
            }),
        });
        Span::current().record("session", entry.id);
        self.live.insert(entry.id, entry.clone());
        Session {
            table: self.clone(),
            entry,
        }
    }

    /// Whether session `id` has not ended.
    pub(crate) fn is_live(&self, id: u64) -> bool {
        self.live.contains_key(&id)
    }

    /// The end of session `id`, if it has a worker or armed lines, and `may` accepts its principal and its breakpoint.
    pub fn ends(
        &self,
        id: u64,
        may: impl FnOnce(Option<&Principal>, Option<&Arc<Breakpoint>>) -> bool,
    ) -> Option<Ends> {
        let entry = self.live.get(&id)?;
        let info = entry.info.lock();
        let ends = match info.protocol {
            SessionProtocol::Lines | SessionProtocol::Cluster if info.armed.is_some() => {
                Ends::Lines
            }
            SessionProtocol::Dap | SessionProtocol::Terminal if info.state.has_worker() => {
                Ends::Worker(info.breakpoint.clone()?)
            }
            _ => return None,
        };
        let breakpoint = info.breakpoint.as_ref();
        may(info.principal.as_ref(), breakpoint).then_some(ends)
    }

    /// Ends session `id`, if it is one that can be [ended](Self::ends).
    pub fn end(&self, id: u64) {
        if let Some(entry) = self.live.get(&id) {
            entry.end.cancel();
        }
    }

    /// Probes whether the client of session `id` is still there; `None`: there is no such session with a debugger.
    pub fn doubt(&self, id: u64) -> Option<LivenessProbe> {
        let entry = self.live.get(&id)?;
        let is_dap = entry.info.lock().protocol == SessionProtocol::Dap;
        is_dap.then(|| LivenessProbe::new(&entry.liveness, id, entry.summary.peer()))
    }

    /// The worker `id`, if a live session of `principal` reaches it or a subprocess of it.
    pub fn reached(&self, id: BreakpointId, principal: &Principal) -> Option<Arc<Breakpoint>> {
        self.live.iter().find_map(|entry| {
            let info = entry.info.lock();
            let breakpoint = info.breakpoint.as_ref().filter(|b| b.id == id)?;
            let of = info.principal.as_ref()?;
            of.is_same(principal).then(|| breakpoint.clone())
        })
    }

    /// Sessions of `principal` with subprocesses of the worker `id` that have a client, as far as known.
    pub(crate) fn with_subprocesses(&self, id: BreakpointId, principal: &Principal) -> Vec<u64> {
        let entries = self.live.iter().filter(|entry| {
            let info = entry.info.lock();
            let of_worker = info.breakpoint.as_ref().is_some_and(|b| b.id == id);
            let own = |of: &Principal| of.is_same_person(principal);
            of_worker
                && info.process.is_some()
                && info.state != SessionState::Parked
                && info.principal.as_ref().is_some_and(own)
        });
        entries.map(|entry| entry.id).collect()
    }

    /// Notifies the sessions of `principal` with subprocesses of the worker `id` that a client detached from the task
    /// and left it paused.
    pub fn task_is_left(&self, id: BreakpointId, principal: &Principal) {
        for session in self.with_subprocesses(id, principal) {
            if let Some(entry) = self.live.get(&session) {
                entry.task_left.notify_one();
            }
        }
    }

    /// All of them, the oldest first.
    pub fn rows(&self) -> Vec<SessionRow> {
        let mut rows: Vec<_> = self.live.iter().map(|entry| entry.row()).collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

impl SessionEntry {
    fn row(&self) -> SessionRow {
        let info = self.info.lock();
        SessionRow {
            id: self.id,
            protocol: info.protocol.label(),
            state: info.state,
            request: self.summary.id(),
            peer: self.summary.peer(),
            subject: info.subject.clone(),
            client: info.client.clone(),
            breakpoint: info.breakpoint.as_ref().map(|b| b.id),
            name: info.breakpoint.as_ref().map(|b| b.name()),
            cluster: match &info.breakpoint {
                Some(breakpoint) => Some(breakpoint.cluster.to_string()),
                None => info.armed.as_ref().and_then(ArmedSummary::cluster),
            },
            armed: info.armed.clone(),
            since: self.since,
            bytes_up: self.bytes_up.load(Ordering::Relaxed),
            bytes_down: self.bytes_down.load(Ordering::Relaxed),
            held: info.breakpoint.clone(),
        }
    }
}

impl Session {
    /// Number of the session, from 1.
    pub fn id(&self) -> u64 {
        self.entry.id
    }

    /// Fires when a permitted user has requested its end.
    pub fn asked_to_end(&self) -> CancellationToken {
        self.entry.end.clone()
    }

    /// Resolves when the client detached from the parent task of this subprocess and left it paused. Cancel safe.
    pub(crate) async fn task_left(&self) {
        self.entry.task_left.notified().await;
    }

    /// Address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.entry.summary.peer()
    }

    /// Log summary of its connection.
    pub fn summary(&self) -> &Summary {
        &self.entry.summary
    }

    /// The holder for a breakpoint that `principal` claims in this session, with a client of that name.
    pub fn holder(&self, principal: &Principal, client: &str) -> Holder {
        Holder::here(
            self.id(),
            principal.known_subject(),
            client,
            Some(self.peer()),
        )
    }

    /// The park for a client that is lost now, valid `until` then.
    pub fn park_view(&self, until: Timestamp) -> ParkView {
        let client = self.entry.info.lock().client.clone();
        ParkView {
            client: client.unwrap_or_default(),
            since: self.entry.since,
            until,
        }
    }

    /// The holder for a breakpoint that `principal` has parked.
    pub fn parked(&self, principal: &Principal, view: &ParkView) -> Holder {
        self.set_client(view.client.clone());
        Holder {
            since: view.since,
            parked_until: Some(view.until),
            ..self.holder(principal, &view.client)
        }
    }

    /// Sets the subject, once known.
    pub(crate) fn set_subject(&self, subject: &str) {
        self.change(|info| info.subject = Some(subject.to_owned()));
    }

    /// Sets the principal, by which further sessions of the same worker are authorised.
    pub fn set_principal(&self, principal: Principal) {
        if !principal.is_anonymous() {
            self.set_subject(principal.subject());
        }
        self.change(|info| info.principal = Some(principal));
    }

    /// The session's principal, once known.
    pub fn principal(&self) -> Option<Principal> {
        self.entry.info.lock().principal.clone()
    }

    /// Sets the lines that it has armed, if any.
    pub fn set_armed(&self, armed: Option<ArmedSummary>) {
        self.change(|info| info.armed = armed);
    }

    /// Sets how often its lines were hit.
    pub fn set_hits(&self, hits: u64) {
        self.change(|info| {
            if let Some(armed) = &mut info.armed {
                armed.hits = hits;
            }
        });
    }

    /// Sets the name that the client gives itself.
    pub fn set_client(&self, client: String) {
        self.change(|info| info.client = Some(client));
    }

    /// Sets the client's editor, for statistics.
    pub fn set_editor(&self, editor: Editor) {
        self.change(|info| info.editor = editor);
    }

    /// Counts its end, and adds its facts to the connection's log summary.
    pub fn ended(&self, outcome: Outcome) {
        let info = self.entry.info.lock();
        let metrics = &self.table.metrics;
        metrics.session_ended(info.protocol, info.editor, outcome);
        self.entry.summary.note(|facts| {
            facts.client = info.client.clone();
            facts.editor = Some(info.editor);
            facts.breakpoint = info.breakpoint.clone();
            facts.bytes = self.bytes();
            facts.outcome = Some(outcome);
        });
    }

    /// Records that it reached a worker that had waited since `listed`.
    pub fn attached(&self, listed: Timestamp) {
        let now = Timestamp::now();
        let waited = listed.until(now);
        self.table.metrics.session_attached(self.protocol(), waited);
        self.entry.summary.note(|facts| facts.attached = Some(now));
    }

    /// Sets its protocol and state.
    pub fn set_state(&self, protocol: SessionProtocol, state: SessionState) {
        let metrics = &self.table.metrics;
        self.change(|info| {
            if info.protocol != protocol {
                info.protocol = protocol;
                info.open = metrics.session_open(protocol);
            }
            info.state = state;
        });
    }

    /// Sets the worker that it reaches.
    pub fn set_breakpoint(&self, breakpoint: Arc<Breakpoint>) {
        self.change(|info| info.breakpoint = Some(breakpoint));
    }

    /// Sets the subprocess that it debugs, if any.
    pub(crate) fn set_process(&self, process: Option<u32>) {
        self.change(|info| info.process = process);
    }

    /// Sets the bytes received so far from the client and from the worker.
    pub fn set_bytes(&self, up: u64, down: u64) {
        let counted = (
            self.entry.bytes_up.swap(up, Ordering::Relaxed),
            self.entry.bytes_down.swap(down, Ordering::Relaxed),
        );
        let metrics = &self.table.metrics;
        metrics.session_bytes(Direction::Up, up.saturating_sub(counted.0));
        metrics.session_bytes(Direction::Down, down.saturating_sub(counted.1));
    }

    /// Byte counts as last set.
    pub fn bytes(&self) -> (u64, u64) {
        (
            self.entry.bytes_up.load(Ordering::Relaxed),
            self.entry.bytes_down.load(Ordering::Relaxed),
        )
    }

    /// Probes of its client by [other clients](SessionTable::doubt).
    pub fn liveness(&self) -> &Liveness {
        &self.entry.liveness
    }

    /// Its current protocol.
    pub fn protocol(&self) -> SessionProtocol {
        self.entry.info.lock().protocol
    }

    fn change(&self, change: impl FnOnce(&mut SessionInfo)) {
        change(&mut self.entry.info.lock());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.table.live.remove(&self.entry.id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_access::identity::testing::somebody;
    use ray_relay_ray::ray::testing::paused;

    #[test]
    fn session_ids_are_never_reused() {
        let table = Arc::new(SessionTable::new(Metrics::new().unwrap()));
        let open = || table.open(&Summary::new(([127, 0, 0, 1], 1).into()));
        let (first, second) = (open(), open());
        let (ended_id, live_id) = (first.id(), second.id());
        assert_ne!(ended_id, live_id);
        drop(first);
        let third = open();
        assert!(third.id() != ended_id && third.id() != live_id);
        // A late request to end the first session ends no other one.
        table.end(ended_id);
        assert!(!second.asked_to_end().is_cancelled() && !third.asked_to_end().is_cancelled());
    }

    #[test]
    fn worker_is_reached_only_by_the_user_of_its_session() {
        let revoked = tokio::sync::watch::Sender::default();
        let [ann, bob] = ["ann", "bob"].map(|name| somebody(name, [], &revoked));
        let table = Arc::new(SessionTable::new(Metrics::new().unwrap()));
        let session = table.open(&Summary::new(([127, 0, 0, 1], 1).into()));
        let breakpoint = Arc::new(paused("step", 1));
        session.set_principal(ann.clone());
        session.set_breakpoint(Arc::clone(&breakpoint));
        assert!(table.reached(breakpoint.id, &ann).is_some());
        assert!(table.reached(breakpoint.id, &bob).is_none());
        drop(session);
        assert!(table.reached(breakpoint.id, &ann).is_none());
    }
}
