//! Inspection of a park, without resuming it: a request to its debugger, which leaves it as it is.

use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use crate::session::parks::Busy;
use ray_relay_access::recording::{CaptureTee, Direction};

/// Deadline of a debugger's answer: the probe takes 5 s at most.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A pending inspection and its deadline.
pub(super) struct Looking {
    answer: oneshot::Sender<Result<Result<String, String>, Busy>>,
    pub(super) until: Instant,
}

impl Looking {
    pub(super) fn new(answer: oneshot::Sender<Result<Result<String, String>, Busy>>) -> Self {
        Self {
            answer,
            until: Instant::now() + PROBE_TIMEOUT,
        }
    }

    /// Answers with the debugger's `value`, after it was recorded in `capture`.
    pub(super) fn done(self, value: Result<String, String>, capture: &CaptureTee) {
        let result = value.and_then(|value| {
            let recorded = capture.take(Direction::Down, value.as_bytes());
            recorded.map(|()| value).map_err(|why| why.to_string())
        });
        // The caller may be gone.
        let _ = self.answer.send(Ok(result));
    }

    /// The debugger is busy, or did not answer in time.
    pub(super) fn busy(self) {
        let _ = self.answer.send(Err(Busy));
    }
}
