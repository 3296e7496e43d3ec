//! A park, for the person who is shown it.

use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::Holder;

/// A park as it is shown, and until when it lasts.
#[derive(Debug, Clone)]
pub struct ParkView {
    /// What the client called itself whose session it is.
    pub client: String,
    /// When that one attached.
    pub since: Timestamp,
    /// When its time is over.
    pub until: Timestamp,
}

impl ParkView {
    /// How `holder` has left its session; `None`: it has not.
    pub fn of(holder: &Holder) -> Option<Self> {
        Some(Self {
            client: holder.client.clone(),
            since: holder.since,
            until: holder.parked_until?,
        })
    }
}
