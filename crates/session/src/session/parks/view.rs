//! A park as shown to users.

use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::Holder;

/// A park as shown to users, with its deadline.
#[derive(Debug, Clone)]
pub struct ParkView {
    /// Name of the lost client.
    pub client: String,
    /// When that client attached.
    pub since: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

impl ParkView {
    /// The park of `holder`; `None`: it has not parked it.
    pub fn of(holder: &Holder) -> Option<Self> {
        Some(Self {
            client: holder.client.clone(),
            since: holder.since,
            until: holder.parked_until?,
        })
    }
}
