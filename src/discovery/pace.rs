//! Request rates towards the API server.

use std::time::Duration;

use ray_relay_base::wire::backoff::Backoff;

/// Duration of one watch, by the API server's clock.
pub(super) const WATCH_PERIOD: Duration = Duration::from_secs(120);

/// First and longest pause after a failure.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Backoff after a failure.
pub(super) const BACKOFF: Backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
