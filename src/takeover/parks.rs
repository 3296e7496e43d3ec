//! Parks that go from a predecessor to its successor: the connection to the debugger, and what is known of it.
//!
//! What the predecessor has said of the worker stands at the successor until the park is taken up, so that no other client gets it
//! in between; also where it is in no list yet, because Ray no longer has it as paused.

use std::os::fd::OwnedFd;

use serde_json::Value;
use tokio::sync::mpsc;
use tracing::warn;

use super::Takeover;
use super::link::OutgoingMessage;
use super::messages::Message;
use crate::debugger::kept::Stored;
use crate::ray::registry::PassedHold;

/// Parks that have come and are not taken up yet.
pub(super) const COMING: usize = 1024;

/// A park that comes from a predecessor.
pub(crate) struct PassedPark {
    /// The connection to its debugger.
    pub(crate) connection: OwnedFd,
    /// What is known of it, as JSON.
    pub(crate) stored: Value,
    /// What stands for it here; `None`: it is a subprocess, beside the worker.
    pub(crate) hold: Option<PassedHold>,
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

    /// Whether a process has taken over that takes parks too.
    pub(crate) fn takes_parks(&self) -> bool {
        let neighbours = self.neighbours.lock();
        self.succeeded.is_cancelled() && neighbours.iter().any(|known| known.takes_parks())
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
        let named = (tenant["cluster"].as_str(), tenant["worker_id"].as_str());
        let hold = match named {
            // A subprocess is beside the worker, which another park has.
            (Some(cluster), Some(worker)) if tenant["process"].is_null() => {
                Some(self.registry.hand_over(cluster, worker))
            }
            _ => None,
        };
        let park = PassedPark {
            connection,
            stored,
            hold,
        };
        if self.parks.try_send(park).is_err() {
            warn!("there is no room for a park of the predecessor, and its task runs on");
        }
    }
}
