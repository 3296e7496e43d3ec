//! Errors in the log about lines that were not written.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::error;

use super::{Entry, EntryKind, Running};
use crate::identity::Principal;
use ray_relay_base::config::OnFailure;

/// The shortest time between two such errors in the log.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

impl Running {
    /// Logs an error, rate-limited.
    pub(super) fn complain(&self, entry: &Entry, why: &str) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.last_complaint_ms.load(Ordering::Relaxed);
        let pause = u64::try_from(COMPLAINT_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let due = last == 0 || now.saturating_sub(last) >= pause;
        if !due
            || self
                .last_complaint_ms
                .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            self.suppressed_complaints.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let others = self.suppressed_complaints.swap(0, Ordering::Relaxed);
        let consequence = match (self.on_failure, entry.action) {
            (OnFailure::Allow, _) => "it happens unrecorded, as audit.on_failure says",
            (OnFailure::Deny, EntryKind::SessionParked | EntryKind::SessionEnded) => {
                "it has happened, and its line follows as soon as one can be written"
            }
            (OnFailure::Deny, EntryKind::Command) => "it belongs to a session that is live or was",
            (OnFailure::Deny, _) => "it was refused",
        };
        error!(
            action = entry.action.word(),
            subject = entry.principal.as_ref().map(Principal::subject),
            session = entry.session,
            others,
            why,
            "NOT ON RECORD: {consequence}"
        );
    }
}
