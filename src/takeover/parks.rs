//! Parks that go from a predecessor to its successor: the connection to the debugger, and what is known of it.
//!
//! The successor has what the predecessor holds claimed already; the claim goes with the park, so that no other client gets the
//! worker in between. What it has not listed yet, because Ray no longer has it as paused, stays held as the predecessor said.

use std::os::fd::OwnedFd;

use serde_json::Value;
use tokio::sync::mpsc;
use tracing::warn;

use super::Takeover;
use super::link::OutgoingMessage;
use super::messages::Message;
use crate::debugger::kept::Stored;
use crate::ray::registry::{Claim, HandedOver};

/// Parks that have come and are not taken up yet.
pub(super) const COMING: usize = 1024;

/// A park that comes from a predecessor.
pub(crate) struct PassedPark {
    /// The connection to its debugger.
    pub(crate) connection: OwnedFd,
    /// What is known of it, as JSON.
    pub(crate) stored: Value,
    /// What has stood for it here.
    pub(crate) claim: Option<Claim>,
    /// What stands for it where it is in no list yet.
    pub(crate) unlisted: Option<HandedOver>,
}

/// Room for one park on its way to the successor.
pub(crate) struct PlaceForPark(mpsc::OwnedPermit<OutgoingMessage>);

impl PlaceForPark {
    /// Gives `connection` to the successor, with what is `stored` of it.
    pub(crate) fn give(self, connection: OwnedFd, stored: &Stored) {
        let stored = serde_json::to_value(stored).unwrap_or_default();
        self.0.send((Message::Parked { stored }, Some(connection)));
    }
}

impl Takeover {
    /// Resolves when there may be a successor that takes parks. Cancel safe.
    pub(crate) async fn may_take_parks(&self) {
        self.succeeded.cancelled().await;
        // It says so with the first thing that it tells.
        tokio::time::sleep(super::link::LOOK).await;
    }

    /// Room for one park; `None`: no task takes it, or too many are on their way.
    pub(crate) fn place_for_park(&self) -> Option<PlaceForPark> {
        if !self.succeeded.is_cancelled() {
            return None;
        }
        let neighbours = self.neighbours.lock();
        let successor = neighbours.iter().find_map(|known| known.place_for_park());
        successor.map(PlaceForPark)
    }

    /// The parks that come; once.
    pub(crate) fn coming_parks(&self) -> Option<mpsc::Receiver<PassedPark>> {
        self.coming_parks.lock().take()
    }

    /// A predecessor has given a park.
    pub(super) fn take_park(&self, connection: OwnedFd, stored: Value) {
        let tenant = &stored["tenant"];
        let id = tenant["breakpoint"].as_str();
        // A subprocess is beside the worker, which another park has.
        let id = id.filter(|_| tenant["process"].is_null());
        let id = id.and_then(|id| id.parse().ok());
        let claim = id.and_then(|id| self.registry.take_over(id));
        let named = (tenant["cluster"].as_str(), tenant["worker_id"].as_str());
        let unlisted = match (id, &claim, named) {
            (Some(_), None, (Some(cluster), Some(worker))) => {
                Some(self.registry.hand_over(cluster, worker))
            }
            _ => None,
        };
        let park = PassedPark {
            connection,
            stored,
            claim,
            unlisted,
        };
        if self.parks.try_send(park).is_err() {
            warn!("there is no room for a park of the predecessor, and its task runs on");
        }
    }
}
