//! JSON of agents: `GET /relay/v1/nodes`, and the other relays' sessions of `GET /relay/v1/sessions`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;

use super::Agents;
use super::link::Link;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::config::UpstreamPath;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::{self, Replica};
use ray_relay_ray::ray::registry::{BreakpointId, RayNode};

/// One live Ray node.
#[derive(Debug, Serialize)]
pub struct NodeRow {
    cluster: Arc<str>,
    node_id: Arc<str>,
    address: IpAddr,
    /// Configured route to its workers.
    path: &'static str,
    /// `linked`, `down`, `contested` or `none`.
    link: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentRow>,
    /// When and why its agent was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    down: Option<DownRow>,
}

#[derive(Debug, Serialize)]
struct AgentRow {
    version: String,
    host: String,
    architecture: String,
    pid: u32,
    sees_processes: bool,
    /// Ports on which it can listen for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverse_ports: Option<String>,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_ms: Option<f64>,
    /// Open debugger connections through it.
    streams: usize,
    /// Workers held through it by sessions of any relay.
    held: usize,
    /// Number of failed tasks that it keeps, or why it keeps none; neither if it has not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keeps_no_failures: Option<String>,
}

#[derive(Debug, Serialize)]
struct DownRow {
    since: Timestamp,
    why: String,
}

/// One live session of another relay, as reported by an agent.
#[derive(Debug, Serialize)]
pub struct SessionElsewhere {
    /// The relay, whose session numbers are its own.
    replica: Replica,
    id: u64,
    kind: messages::Kind,
    state: &'static str,
    peer: Option<SocketAddr>,
    subject: Option<String>,
    client: Option<String>,
    breakpoint: Option<BreakpointId>,
    name: Option<String>,
    cluster: Arc<str>,
    since: Timestamp,
}

impl AgentRow {
    fn of(link: &Link, failures: usize) -> Self {
        let about = &link.about;
        let keeps = link.state.lock().keeps_failures.clone();
        let (keeps, trouble) = match keeps {
            Some(trouble) => (true, trouble),
            None => (false, None),
        };
        let micros = |round_trip: std::time::Duration| round_trip.as_micros() as f64 / 1000.0;
        Self {
            version: about.version.to_string(),
            host: about.hostname.to_string(),
            architecture: about.architecture.to_string(),
            pid: about.pid,
            sees_processes: about.sees_processes,
            reverse_ports: about
                .reverse_ports
                .map(|(first, last)| format!("{first}-{last}")),
            since: link.since,
            round_trip_ms: link.round_trip().map(micros),
            streams: super::MAX_STREAMS - link.process.streams.available_permits(),
            held: link.held().len(),
            failures: keeps.then_some(failures),
            keeps_no_failures: trouble.map(|why| why.to_string()),
        }
    }
}

impl Agents {
    /// The live nodes whose breakpoints `principal` may list.
    pub fn rows(&self, live: &[RayNode], principal: &Principal) -> Vec<NodeRow> {
        let access = principal.access();
        let seen = live.iter().filter(|node| {
            access.may_on_node(Scope::List, &node.cluster, &node.node_id, node.address)
        });
        let (table, now) = (self.table.lock(), Instant::now());
        let row = |node: &RayNode| {
            let (cluster, node_id) = (&*node.cluster, &*node.node_id);
            let agent = table
                .of_node(cluster, node_id)
                .map(|link| AgentRow::of(link, self.failures.of(link.id)));
            let lost = table.lost(cluster, node_id).filter(|_| agent.is_none());
            let link = match (&agent, lost) {
                (Some(_), _) => "linked",
                (None, _) if table.is_contested(cluster, node_id, now) => "contested",
                (None, Some(_)) => "down",
                (None, None) => "none",
            };
            NodeRow {
                cluster: Arc::clone(&node.cluster),
                node_id: Arc::clone(&node.node_id),
                address: node.address,
                path: match self.path(cluster) {
                    UpstreamPath::PreferAgent => "prefer-agent",
                    UpstreamPath::Agent => "agent",
                    UpstreamPath::Direct => "direct",
                },
                link,
                agent,
                down: lost.map(|lost| DownRow {
                    since: lost.since,
                    why: lost.why.clone(),
                }),
            }
        };
        seen.map(row).collect()
    }

    /// Sessions of other relays: `principal`'s own, and those that it administers.
    pub fn sessions_elsewhere(&self, principal: &Principal) -> Vec<SessionElsewhere> {
        let access = principal.access();
        let holds = self.registry.remote_sessions();
        let rows = holds.into_iter().filter_map(|(hold, breakpoint)| {
            let holder = hold.holder();
            let is_own = holder.subject.as_deref() == Some(principal.subject());
            if !is_own && !access.administers(breakpoint.as_deref()) {
                return None;
            }
            Some(SessionElsewhere {
                replica: hold.held.replica,
                id: holder.session,
                kind: hold.held.kind,
                state: match holder.parked_until {
                    Some(_) => "parked",
                    None => "attached",
                },
                peer: holder.peer,
                subject: holder.subject,
                client: (!holder.client.is_empty()).then_some(holder.client),
                breakpoint: breakpoint.as_ref().map(|b| b.id),
                name: breakpoint.map(|b| b.name()),
                cluster: Arc::clone(&hold.node.cluster),
                since: holder.since,
            })
        });
        rows.collect()
    }

    /// Whether no agent is linked.
    pub fn is_empty(&self) -> bool {
        self.table.lock().is_empty()
    }
}
