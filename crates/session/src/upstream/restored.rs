//! Debugger connections of a relay that was killed or restarted: finds their owner, and makes the permit to resume
//! them.
//!
//! The opener of a connection stores its owner ([`Ownership`]). The next relay authenticates that user again, finds the
//! worker in the registry, and claims it before any other client can. If that fails, the debugger is detached in order,
//! and its task resumes, as if its session had expired or its credential had been revoked.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::tenancy::Tenancy;
use crate::agents::WorkerRoute;
use crate::context::Context;
use crate::session::{Authorized, Permit, parks};
use ray_relay_access::identity::{CarriedIdentity, Principal};
use ray_relay_base::memory::Account;
use ray_relay_base::timestamp::{Timestamp, unix_ms};
use ray_relay_base::wire::tcp;
use ray_relay_base::wire::tunnel::messages::ParkTerms;
use ray_relay_debugger::debugger::kept::{KeptConnection, Stored};
use ray_relay_debugger::debugger::legacy::LegacySession;
use ray_relay_debugger::debugger::unattended::{Unattended, keeping};
use ray_relay_debugger::debugger::{Direct, PROBE_AFTER, Stream, Tenant, Worker};
use ray_relay_debugger::keeper::{KeptSlot, UnclaimedConnection};
use ray_relay_ray::ray::registry::{
    Breakpoint, BreakpointId, ClaimError, EnteredBreakpoint, Holder, Registry,
};

/// Deadline to look up the worker of a session that is not parked.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two lookups of a worker.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(2);

/// Deadline for a pending connection to be established.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Deadline for a debugger to synchronise.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// The owner of a worker, as stored for the next process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ownership {
    /// `None`: authentication is off.
    identity: Option<CarriedIdentity>,
    cluster: String,
    worker_id: String,
    breakpoint: String,
    /// The subprocess of the connection; `None`: the worker itself.
    #[serde(default)]
    process: Option<u32>,
    /// Session number in the earlier process.
    session: u64,
    /// Name and address of its client, and its begin.
    client: String,
    peer: Option<SocketAddr>,
    since_unix_ms: u64,
}

impl Ownership {
    /// For the session by which `holder` has `breakpoint`, or `process` of its worker, for `principal`.
    pub(super) fn of(
        principal: &Principal,
        breakpoint: &Breakpoint,
        process: Option<u32>,
        holder: &Holder,
    ) -> Option<Value> {
        let owner = Self {
            identity: CarriedIdentity::of(principal),
            cluster: breakpoint.cluster.to_string(),
            worker_id: breakpoint.worker_id.to_string(),
            breakpoint: breakpoint.id.to_string(),
            process,
            session: holder.session,
            client: holder.client.clone(),
            peer: holder.peer,
            since_unix_ms: unix_ms(holder.since.time),
        };
        serde_json::to_value(owner).ok()
    }
}

/// A connection from an earlier process, with its decoded record.
pub struct Restored {
    connection: TcpStream,
    kept: Option<KeptConnection>,
    stored: Stored,
    owner: Ownership,
}

/// A worker that is claimed again for its owner.
pub struct Claimed {
    /// Permit to resume it.
    pub permit: Permit,
    /// The connection to its debugger.
    pub debugger: ClaimedDebugger,
    /// Its session.
    pub session: LostSession,
}

/// A debugger connection from an earlier process. Dropping it detaches in order.
pub enum ClaimedDebugger {
    /// To debugpy.
    Debugpy(Box<Worker>),
    /// To a prompt of the legacy debugger.
    Legacy(Box<LegacySession>),
}

impl ClaimedDebugger {
    /// Whether it is in a state where another client can resume.
    fn stays(&self) -> bool {
        match self {
            Self::Debugpy(worker) => worker.stays(),
            Self::Legacy(entered) => entered.stays(),
        }
    }
}

/// A session of an earlier process.
pub struct LostSession {
    /// Its number in that process.
    pub number: u64,
    /// Address of its client.
    pub peer: SocketAddr,
    /// Its park terms.
    pub keep: ParkTerms,
    /// The park as shown to users.
    pub view: parks::ParkView,
    /// Begin of the first session with the worker.
    pub began: Instant,
}

impl Restored {
    /// Decodes a connection that a relay has left; `None`: its record is invalid, and it is closed.
    pub fn decode(left: UnclaimedConnection) -> Option<Self> {
        let UnclaimedConnection {
            connection,
            record,
            slot,
        } = left;
        let stored = serde_json::from_slice(&record).ok();
        Self::read(connection, stored, slot)
    }

    fn read(connection: OwnedFd, stored: Option<Stored>, slot: KeptSlot) -> Option<Self> {
        let read = || {
            let stored = stored?;
            let owner = serde_json::from_value(stored.tenant.clone()).ok()?;
            let connection = std::net::TcpStream::from(connection);
            connection.set_nonblocking(true).ok()?;
            let connection = TcpStream::from_std(connection).ok()?;
            tcp::tune(&connection, PROBE_AFTER).ok()?;
            Some((stored, owner, connection))
        };
        let Some((stored, owner, connection)) = read() else {
            warn!("a connection that another process has left is not understood, and is closed");
            return None;
        };
        Some(Self {
            connection,
            kept: Some(KeptConnection::new(slot, stored.clone())),
            stored,
            owner,
        })
    }

    /// When its park expires; `None`: it is not parked.
    fn until(&self) -> Option<Timestamp> {
        let (keep, said_unix_ms) = self.stored.keep.as_ref()?;
        let now = Timestamp::now();
        let passed = unix_ms(now.time).saturating_sub(*said_unix_ms);
        let lasts = keep.lasts(Duration::from_millis(passed));
        (!lasts.is_zero()).then(|| now.after(lasts))
    }

    /// Whether it is connected: a process may be killed before it has dialled, and then there is nothing to resume.
    async fn is_dialled(&mut self) -> bool {
        if !std::mem::take(&mut self.stored.dials) {
            return true;
        }
        // A socket that was never connected is ready at once, and has no peer.
        let ready = timeout(DIAL_TIMEOUT, self.connection.writable()).await;
        let is_dialled = matches!(ready, Ok(Ok(()))) && self.connection.peer_addr().is_ok();
        if is_dialled && let Some(kept) = &mut self.kept {
            kept.dialled();
        }
        is_dialled
    }

    /// Claims the worker for its owner. `None`: that failed, and it was detached.
    pub async fn claim(mut self, context: &Context) -> Option<Claimed> {
        if !self.is_dialled().await {
            return None;
        }
        let until = self.until();
        let patience = match until {
            Some(until) => Timestamp::now().until(until),
            None => LOOKUP_TIMEOUT,
        };
        let permit = timeout(patience, self.permit(context)).await;
        let permit = permit.ok().flatten();
        let tasks = &context.shutdown.tasks;
        let tenancy = permit.as_ref().map(|permit| {
            let agents = context.peers.agents.needed();
            Tenancy::boxed(permit.lease(), agents, tasks) as Box<dyn Tenant>
        });
        let Self {
            connection,
            kept,
            stored,
            owner,
            ..
        } = self;
        let stream = Stream::Direct(match kept {
            Some(kept) => Direct::kept(connection, kept),
            None => Direct::new(connection),
        });
        let debugger = match stored.prompt {
            None => {
                let worker = Worker::restored(stream, &stored, tenancy, tasks.clone());
                ClaimedDebugger::Debugpy(Box::new(worker))
            }
            Some(_) => {
                let entered = LegacySession::restored(stream, &stored, tasks);
                ClaimedDebugger::Legacy(Box::new(entered))
            }
        };
        let since = UNIX_EPOCH.checked_add(Duration::from_millis(owner.since_unix_ms));
        let keep = stored.keep.filter(|_| debugger.stays());
        let (Some(permit), Some((keep, said_unix_ms)), Some(until)) = (permit, keep, until) else {
            info!(
                breakpoint = owner.breakpoint,
                "a session of the previous process is not kept, and its task runs on"
            );
            return None;
        };
        let passed = unix_ms(SystemTime::now()).saturating_sub(said_unix_ms);
        let lasted = Duration::from_millis(keep.lasted_ms.saturating_add(passed));
        let now = Instant::now();
        Some(Claimed {
            permit,
            debugger,
            session: LostSession {
                number: owner.session,
                peer: owner.peer.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0))),
                view: parks::ParkView {
                    client: owner.client,
                    since: Timestamp::written(since.unwrap_or(UNIX_EPOCH)),
                    until,
                },
                keep: *keep,
                began: now.checked_sub(lasted).unwrap_or(now),
            },
        })
    }

    /// The permit for the owner, once Ray knows the worker; `None`: the owner may no longer have it.
    async fn permit(&self, context: &Context) -> Option<Permit> {
        let keep = self.stored.keep.as_ref().map(|(keep, _)| keep);
        let entered = keep.and_then(|keep| EnteredBreakpoint::read(keep.entered.as_deref()?));
        let breakpoint = match &entered {
            Some(entered) => Arc::new(entered.breakpoint()),
            None => self.breakpoint(context).await?,
        };
        let principal = context.auth.carried(self.owner.identity.clone())?;
        let authorized = Authorized::to_keep(&principal, &breakpoint);
        let Ownership {
            session,
            client,
            peer,
            ..
        } = &self.owner;
        let holder = Holder {
            parked_until: self.until(),
            ..Holder::here(*session, principal.known_subject(), client, *peer)
        };
        let route = WorkerRoute::Direct { without: None };
        if let Some(process) = self.owner.process {
            return Some(Permit::further(authorized, process, holder, Some(route)));
        }
        let registry = &context.registry;
        let claim = match &entered {
            // Ray has forgotten it: waits for its cluster to appear.
            Some(entered) => {
                let waits = |why: &_| matches!(why, ClaimError::Unknown | ClaimError::InUse(_));
                let again = || registry.restore(entered, holder.clone());
                once_free(registry, waits, again).await?
            }
            None => {
                let waits = |why: &_| matches!(why, ClaimError::InUse(_));
                let acquire = || Permit::acquire(registry, authorized.clone(), holder.clone());
                return once_free(registry, waits, acquire).await;
            }
        };
        if self.stored.prompt.is_some() {
            // A prompt cannot be entered again.
            claim.lease().let_run();
        }
        Some(Permit::from_claim(claim, authorized, holder, route))
    }

    /// The worker's breakpoint, as soon as the registry has it; `None`: the stored id is invalid.
    async fn breakpoint(&self, context: &Context) -> Option<Arc<Breakpoint>> {
        let Ownership {
            cluster, worker_id, ..
        } = &self.owner;
        let id: BreakpointId = self.owner.breakpoint.parse().ok()?;
        loop {
            if let Some(breakpoint) = context.registry.snapshot().find(id) {
                return Some(Arc::clone(breakpoint));
            }
            // Ray no longer lists it as paused once a client has attached.
            let registry = &context.registry;
            if registry.look_again(Some(cluster), worker_id).await != Some(id) {
                sleep(LOOKUP_INTERVAL).await;
            }
        }
    }
}

/// Result of `take`, as soon as no other session of this relay has the breakpoint. That session cannot reach the
/// debugger, which accepts one client at a time. A refusal that `waits` accepts is retried with each list; `None`:
/// another refusal.
async fn once_free<T>(
    registry: &Registry,
    waits: impl Fn(&ClaimError) -> bool,
    take: impl Fn() -> Result<T, ClaimError>,
) -> Option<T> {
    let mut lists = registry.watch();
    loop {
        lists.mark_unchanged();
        match take() {
            Ok(claimed) => return Some(claimed),
            Err(why) if waits(&why) => {}
            Err(_) => return None,
        }
        lists.changed().await.ok()?;
    }
}

impl ClaimedDebugger {
    /// Synchronises with the next message that debugpy begins, of at most `most` bytes; a prompt needs none. `None`: it
    /// does not answer, and is detached.
    pub(crate) async fn synced(
        self,
        id: BreakpointId,
        account: Account,
        most: usize,
    ) -> Option<Unattended> {
        let mut worker = match self {
            Self::Debugpy(worker) => worker,
            Self::Legacy(entered) => return Some(Unattended::legacy(entered)),
        };
        match timeout(SYNC_TIMEOUT, worker.resync()).await {
            Ok(Ok((part, kept))) => {
                let splice = keeping(account, *worker, part, most);
                Some(Unattended::splice(splice, kept))
            }
            Ok(Err(_)) | Err(_) => {
                warn!(
                    breakpoint = %id,
                    "the debugger of a session of the previous process does not answer any more: it is left"
                );
                None
            }
        }
    }
}
