//! How often the API server is asked.

use std::time::Duration;

use ray_relay_base::wire::backoff::Backoff;

/// How long one watch lasts, by the API server's clock.
pub(super) const WATCH: Duration = Duration::from_secs(120);

/// First and longest pause after a failure.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// After a failure.
pub(super) const BACKOFF: Backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
