//! The state of an agent that all links share.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use hyper::Uri;
use rand::RngExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::ArmedMarkers;
use super::failed::BlackBoxes;
use super::gossip::RevocationGossip;
use super::held::HoldTable;
use super::injection::Injections;
use super::py_spy::PySpy;
use super::settings::{AgentError, Settings};
use super::verifier::{NodeLocation, TargetVerifier};
use ray_relay_base::config::is_loopback_host;
use ray_relay_base::dial::Proxies;
use ray_relay_base::wire::tunnel::messages::{Hex, MAX_ROWS};

/// The state that all links share.
pub(super) struct Agent {
    /// Distinguishes this process from others that claim its node.
    pub(super) instance: Hex<16>,
    pub(super) verifier: TargetVerifier,
    pub(super) py_spy: PySpy,
    pub(super) injections: Injections,
    pub(super) black_boxes: BlackBoxes,
    pub(super) held: HoldTable,
    pub(super) armed: ArmedMarkers,
    pub(super) gossip: RevocationGossip,
    pub(super) reverse_ports: Option<RangeInclusive<u16>>,
    /// The proxies for relays, never for a head or a debugger.
    pub(super) proxies: Proxies,
    /// One slot for each stream, and for each request being answered.
    pub(super) stream_slots: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    pub(super) ending: CancellationToken,
}

impl Agent {
    pub(super) fn new(settings: &Settings, proc: &Path) -> Result<Arc<Self>, AgentError> {
        let uri: Option<Uri> = settings.cluster.ray_address.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let location = NodeLocation {
            node_id: settings.node_id.clone(),
            configured: settings.node_addresses.clone(),
            loopback: is_loopback_host(host),
        };
        if location.node_id.is_none() && location.addresses().is_empty() {
            return Err(AgentError::Nowhere);
        }
        let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
        Ok(Arc::new(Self {
            instance: Hex(rand::rng().random()),
            verifier: TargetVerifier::new(&settings.cluster, location, proc)?,
            py_spy: PySpy::new(),
            injections: Injections::new(tasks.clone(), ending.clone()),
            black_boxes: BlackBoxes::new(),
            held: HoldTable::new(),
            armed: ArmedMarkers::default(),
            gossip: RevocationGossip::new(),
            reverse_ports: settings.reverse_ports.clone(),
            proxies: Proxies::from_env(),
            stream_slots: Arc::new(Semaphore::new(MAX_ROWS)),
            tasks,
            ending,
        }))
    }
}
