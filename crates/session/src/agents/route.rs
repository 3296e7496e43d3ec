//! Picks the route to a breakpoint, or says why there is none.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hyper::Uri;
use tokio::time::{Instant, timeout};

use super::Agents;
use super::link::Link;
use super::table::Lost;
use ray_relay_base::config::{UpstreamPath, is_loopback_host};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::tunnel::messages::Name;
use ray_relay_ray::hold::REPORT_VALIDITY;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Kind, RayNode};

/// Deadline for agents to locate a legacy breakpoint among their nodes.
const LOCATE_TIMEOUT: Duration = Duration::from_secs(2);

/// How much later than a stream's end the end of its agent's link may be noticed.
const LINK_END_TIMEOUT: Duration = Duration::from_millis(500);

/// Route from the relay to a worker.
#[derive(Debug, Clone)]
pub enum WorkerRoute {
    /// The relay dials. `without` says why no agent does.
    Direct {
        /// `None`: no agent is configured.
        without: Option<NoAgentReason>,
    },
    /// The agent of its node dials.
    Agent {
        /// Its link.
        link: Arc<Link>,
        /// The node.
        node_id: Name,
    },
}

impl WorkerRoute {
    /// The name in the audit log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Direct { .. } => "direct",
            Self::Agent { .. } => "agent",
        }
    }
}

/// Why no agent dials. `Display` is a clause.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoAgentReason {
    /// None has ever linked.
    #[error("no agent (`ray-relay node`) is linked for its node")]
    None,
    /// It is gone.
    #[error("the agent of its node has been gone for {} ({why})", span(.since.until(Timestamp::now())))]
    Down {
        /// Since when.
        since: Timestamp,
        /// Why its link ended.
        why: String,
    },
    /// Two claim the node.
    #[error("two agents claim its node, and both are refused for a minute")]
    Contested,
    /// The node is not known, and no agent could locate it.
    #[error("no linked agent has it on its node")]
    NotLocated,
}

impl From<&Lost> for NoAgentReason {
    fn from(lost: &Lost) -> Self {
        Self::Down {
            since: lost.since,
            why: lost.why.clone(),
        }
    }
}

/// Why a breakpoint is unreachable. `Display` is a sentence for the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoRoute {
    /// The cluster requires an agent, and there is none.
    #[error(
        "it cannot be reached: {0}, and workers of cluster {1} are reached through agents alone"
    )]
    NoAgent(NoAgentReason, Arc<str>),
    /// According to the agent, a session of another relay holds it.
    #[error("it is being debugged by {0}")]
    Held(Box<Holder>),
    /// Its debugger listens on its node's loopback address.
    #[error(
        "this breakpoint can be entered only on its own node, because that node was started without `--ray-debugger-external`{}",
        .0.as_ref().map(|absence| format!(", and {absence}")).unwrap_or_default()
    )]
    NotExternal(Option<NoAgentReason>),
}

/// Whether a head at `ray_address` is on the relay's machine, so that its node's loopback address is the relay's.
pub(super) fn is_local(ray_address: &str) -> bool {
    let uri: Option<Uri> = ray_address.parse().ok();
    uri.is_some_and(|uri| is_loopback_host(uri.host().unwrap_or_default()))
}

impl Agents {
    /// Picks the route to `breakpoint`. If Ray does not say which node it is on, agents get at most 2 s to locate it.
    ///
    /// # Errors
    /// [`NoRoute`].
    pub async fn route(&self, breakpoint: &Breakpoint) -> Result<WorkerRoute, NoRoute> {
        if let Some(holder) = self.holder_elsewhere(breakpoint) {
            return Err(NoRoute::Held(Box::new(holder)));
        }
        let path = self.path(&breakpoint.cluster);
        let without = match path {
            UpstreamPath::Direct => None,
            UpstreamPath::Agent | UpstreamPath::PreferAgent => {
                match self.speaker(breakpoint).await {
                    Ok((link, node_id)) => return Ok(WorkerRoute::Agent { link, node_id }),
                    Err(absence) => Some(absence),
                }
            }
        };
        let is_local = || {
            let cluster = self.clusters.get(&*breakpoint.cluster);
            cluster.is_some_and(|cluster| cluster.is_local)
        };
        let on_loopback = match breakpoint.kind {
            Kind::Debugpy => false,
            // Unless RAY_DEBUGGER_EXTERNAL is set.
            Kind::Pdb => breakpoint.upstream().ip().is_loopback(),
        };
        match (path, without) {
            (UpstreamPath::Agent, Some(absence)) => {
                Err(NoRoute::NoAgent(absence, Arc::clone(&breakpoint.cluster)))
            }
            (_, without) if on_loopback && !is_local() => Err(NoRoute::NotExternal(without)),
            (_, without) => Ok(WorkerRoute::Direct { without }),
        }
    }

    /// The route to a worker that the agent of its node keeps parked.
    ///
    /// # Errors
    /// [`NoRoute::NoAgent`].
    pub(crate) async fn route_to_agent(
        &self,
        breakpoint: &Breakpoint,
    ) -> Result<WorkerRoute, NoRoute> {
        match self.speaker(breakpoint).await {
            Ok((link, node_id)) => Ok(WorkerRoute::Agent { link, node_id }),
            Err(absence) => Err(NoRoute::NoAgent(absence, Arc::clone(&breakpoint.cluster))),
        }
    }

    /// Why no agent speaks any more for the node of a worker of `cluster` whose connection by `route` broke. `None`: an
    /// agent does, or `route` used no agent. The link may end later than the connection: waits half a second for it.
    pub async fn lost(&self, cluster: &str, route: &WorkerRoute) -> Option<String> {
        let WorkerRoute::Agent { link, node_id } = route else {
            return None;
        };
        timeout(LINK_END_TIMEOUT, link.closed()).await.ok()?;
        let table = self.table.lock();
        if table.of_node(cluster, node_id).is_some() {
            return None;
        }
        table.lost(cluster, node_id).map(|lost| lost.why.clone())
    }

    /// Why the state of the task of `breakpoint` is unknown, which is assumed to run since `at`. Either the agent of
    /// its node was lost with the session, and parks the task if it still lives; or only agents reach it, and its agent
    /// has not reported yet. `None`: it is known.
    pub(crate) fn lost_with(
        &self,
        breakpoint: &Breakpoint,
        at: Timestamp,
    ) -> Option<NoAgentReason> {
        let cluster = &*breakpoint.cluster;
        if self.path(cluster) == UpstreamPath::Direct {
            return None;
        }
        let table = self.table.lock();
        let node_id: Name = (&*breakpoint.node_id).into();
        if table.of_node(cluster, &node_id).is_some() {
            return None;
        }
        let Some(lost) = table.lost(cluster, &node_id) else {
            return (self.path(cluster) == UpstreamPath::Agent).then_some(NoAgentReason::None);
        };
        // A session may notice before its agent's link does.
        (at.until(lost.since) <= REPORT_VALIDITY).then(|| lost.into())
    }

    /// The agent that speaks for the node of `breakpoint`.
    async fn speaker(&self, breakpoint: &Breakpoint) -> Result<(Arc<Link>, Name), NoAgentReason> {
        let cluster = &*breakpoint.cluster;
        if breakpoint.node_id.is_empty() {
            return self.locate(breakpoint).await;
        }
        let link = self.speaks_for(cluster, &breakpoint.node_id)?;
        Ok((link, (&*breakpoint.node_id).into()))
    }

    /// The agent that speaks for the node `node_id` of `cluster`.
    pub(super) fn speaks_for(
        &self,
        cluster: &str,
        node_id: &str,
    ) -> Result<Arc<Link>, NoAgentReason> {
        let table = self.table.lock();
        if let Some(link) = table.of_node(cluster, node_id) {
            return Ok(Arc::clone(link));
        }
        Err(match table.lost(cluster, node_id) {
            _ if table.is_contested(cluster, node_id, Instant::now()) => NoAgentReason::Contested,
            Some(lost) => lost.into(),
            None => NoAgentReason::None,
        })
    }

    /// Locates a legacy breakpoint whose Ray does not name its node (before 2.40): by its address or, if that is
    /// `localhost`, by asking all agents.
    async fn locate(&self, breakpoint: &Breakpoint) -> Result<(Arc<Link>, Name), NoAgentReason> {
        let links = self.table.lock().of_cluster(&breakpoint.cluster);
        if links.is_empty() {
            return Err(NoAgentReason::None);
        }
        let address = breakpoint.node_ip;
        if !address.is_loopback() {
            let has = |link: &Arc<Link>| {
                let nodes = link.nodes();
                let here =
                    |node: &&RayNode| node.address == address && node.cluster == breakpoint.cluster;
                let node = nodes.iter().find(here)?;
                Some(((*node.node_id).into(), Arc::clone(link)))
            };
            let found = links.iter().find_map(has);
            let (node_id, link) = found.ok_or(NoAgentReason::None)?;
            return Ok((link, node_id));
        }
        let registered = breakpoint.registered.as_ref();
        let title = registered.map_or("", |registered| registered.title.as_str());
        let ask = links.into_iter().map(|link| async move {
            let found = timeout(LOCATE_TIMEOUT, link.locate(breakpoint.port, title)).await;
            let node_id = found.ok().flatten()?;
            // An agent speaks for its own nodes only.
            let own = link
                .nodes()
                .iter()
                .any(|node| *node.node_id == *node_id && node.cluster == breakpoint.cluster);
            own.then_some((node_id, link))
        });
        let mut found = join_all(ask).await.into_iter().flatten();
        // Two agents have the same port and title: ambiguous.
        match (found.next(), found.next()) {
            (Some((node_id, link)), None) => Ok((link, node_id)),
            _ => Err(NoAgentReason::NotLocated),
        }
    }
}
