//! A park, for whoever is shown it.

use crate::moment::Moment;
use crate::ray::registry::Holder;

/// A park as it is shown, and until when it lasts.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// What the client called itself whose session it is.
    pub(crate) client: String,
    /// When that one attached.
    pub(crate) since: Moment,
    /// When its time is over.
    pub(crate) until: Moment,
}

impl Left {
    /// How `holder` has left its session; `None`: it has not.
    pub(crate) fn of(holder: &Holder) -> Option<Self> {
        Some(Self {
            client: holder.client.clone(),
            since: holder.since,
            until: holder.parked_until?,
        })
    }
}
