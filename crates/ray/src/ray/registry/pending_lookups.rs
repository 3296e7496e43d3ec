//! The pending lookups of one stop of one worker, and when they are due.

use std::time::Duration;

use tokio::time::Instant;

use crate::ray::registry::names::{Certainty, Found};

/// First pause before another query for names that were not there; doubles each time.
const RETRY: Duration = Duration::from_millis(300);

/// The longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Most queries for the names of one stop without a good answer.
const MAX_TRIES: u32 = 10;

/// Time to the confirmation of a likely answer: Ray's workers report their tasks once a second.
const CONFIRM_AFTER: Duration = Duration::from_millis(1500);

/// The lookups of one stop that have no good answer yet, and when each is due.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct PendingLookups {
    /// When to query names; `None` while a query is in flight, and when all is known.
    names: Option<Instant>,
    tries: u32,
    confirming: bool,
    location: bool,
}

impl PendingLookups {
    /// A new stop, for which everything is due now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            names: Some(now),
            tries: 0,
            confirming: false,
            location: true,
        }
    }

    /// No lookups: all is known from elsewhere.
    pub(super) fn none() -> Self {
        Self {
            names: None,
            tries: 0,
            confirming: false,
            location: false,
        }
    }

    pub(super) fn names_due(&self) -> Option<Instant> {
        self.names
    }

    /// Marks a due query for names as sent.
    pub(super) fn take_names(&mut self, now: Instant) -> bool {
        self.names.take_if(|due| *due <= now).is_some()
    }

    /// Whether the location has yet to be queried.
    pub(super) fn wants_location(&self) -> bool {
        self.location
    }

    /// Marks a due query for the location as sent.
    pub(super) fn take_location(&mut self) -> bool {
        std::mem::take(&mut self.location)
    }

    /// Records a response; `None` if the head had none.
    pub(super) fn names_answered(&mut self, found: Option<&Found>, now: Instant) {
        let certainty = found.map(|found| found.certainty);
        self.names = match certainty {
            Some(Certainty::Settled) => None,
            Some(Certainty::Likely) if self.confirming => None,
            Some(Certainty::Likely) => {
                self.confirming = true;
                Some(now + CONFIRM_AFTER)
            }
            // The confirmation found nothing more: the first answer remains.
            Some(Certainty::Provisional) | None if self.confirming => None,
            Some(Certainty::Provisional) | None => {
                self.tries += 1;
                let pause = RETRY
                    .saturating_mul(1 << (self.tries - 1).min(16))
                    .min(RETRY_MAX);
                (self.tries < MAX_TRIES).then(|| now + pause)
            }
        };
    }
}
