//! A legacy breakpoint that a client has entered, as transferred between processes: Ray forgets it then.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::breakpoint::{Breakpoint, BreakpointId, Location, Names, Reason, Registered, State};
use super::state::is_registered;
use ray_relay_base::timestamp::{Timestamp, unix_ms};
use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::tunnel::messages::EnteredText;

/// All listed properties of a legacy breakpoint except its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnteredBreakpoint {
    cluster: String,
    key: String,
    title: String,
    node_id: String,
    node_ip: IpAddr,
    worker_id: String,
    port: u16,
    name: Option<String>,
    job_id: Option<String>,
    task_id: Option<String>,
    actor_id: Option<String>,
    reason: Reason,
    location: Option<Location>,
    exception: Option<String>,
    first_seen_unix_ms: u64,
    stop: u64,
}

impl EnteredBreakpoint {
    /// The properties of `breakpoint`; `None`: Ray continues to list it.
    fn of(breakpoint: &Breakpoint) -> Option<Self> {
        let registered = breakpoint.registered.as_ref()?;
        let names = &breakpoint.names;
        Some(Self {
            cluster: breakpoint.cluster.to_string(),
            key: registered.key.clone(),
            title: registered.title.clone(),
            node_id: breakpoint.node_id.to_string(),
            node_ip: breakpoint.node_ip,
            worker_id: breakpoint.worker_id.to_string(),
            port: breakpoint.port,
            name: names.name.clone(),
            job_id: names.job_id.clone(),
            task_id: names.task_id.clone(),
            actor_id: names.actor_id.clone(),
            reason: breakpoint.reason,
            location: breakpoint.location.as_deref().cloned(),
            exception: breakpoint.exception.clone(),
            first_seen_unix_ms: unix_ms(breakpoint.first_seen.time),
            stop: breakpoint.stop,
        })
    }

    /// The serialized form for other processes; `None`: it is too long.
    pub fn to_text(breakpoint: &Breakpoint) -> Option<Box<EnteredText>> {
        let text = serde_json::to_string(&Self::of(breakpoint)?).ok()?;
        let entry = EnteredText::new(&text);
        (*entry == *text).then(|| Box::new(entry))
    }

    /// Parses the serialized form; `None`: it is invalid.
    pub fn read(entry: &EnteredText) -> Option<Self> {
        let read: Option<Self> = serde_json::from_str(entry).ok();
        read.filter(|read| is_registered(&read.key))
    }

    /// The breakpoint, in the state of a free one.
    pub fn breakpoint(&self) -> Breakpoint {
        let since = Duration::from_millis(self.first_seen_unix_ms);
        let since = UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH);
        Breakpoint {
            id: BreakpointId::derive(&self.cluster, &self.key),
            kind: Kind::Pdb,
            cluster: (&*self.cluster).into(),
            node_id: (&*self.node_id).into(),
            node_ip: self.node_ip,
            worker_id: (&*self.worker_id).into(),
            pid: 0,
            port: self.port,
            paused_threads: 1,
            names: Arc::new(Names {
                name: self.name.clone(),
                job_id: self.job_id.clone(),
                task_id: self.task_id.clone(),
                actor_id: self.actor_id.clone(),
                ..Names::default()
            }),
            reason: self.reason,
            location: self.location.clone().map(Arc::new),
            exception: self.exception.clone(),
            first_seen: Timestamp::written(since),
            stop: self.stop,
            state: State::Paused,
            task_ended: None,
            registered: Some(Arc::new(Registered {
                key: self.key.clone(),
                title: self.title.clone(),
                read: Instant::now(),
            })),
        }
    }
}
