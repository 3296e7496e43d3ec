//! A look at what is parked, without going on with it: a question for its debugger, which leaves it as it is.

use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use crate::session::parks::Busy;
use ray_relay_access::recording::{CaptureTee, Direction};

/// How long a debugger may take to answer: the probe takes 5 s at most.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Who has asked, and until when that one waits.
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

    /// The debugger has said `value`, which is shown once it is in `capture`.
    pub(super) fn done(self, value: Result<String, String>, capture: &CaptureTee) {
        let shown = value.and_then(|value| {
            let taken = capture.take(Direction::Down, value.as_bytes());
            taken.map(|()| value).map_err(|why| why.to_string())
        });
        // Who asked may be gone.
        let _ = self.answer.send(Ok(shown));
    }

    /// It is not asked, or has not answered in time.
    pub(super) fn busy(self) {
        let _ = self.answer.send(Err(Busy));
    }
}
