//! The park of relays and agents alike: a debugger that waits without a client until one resumes it, or its time is
//! over.
//!
//! Its owner decides about permissions and other reasons to end it, and polls the events with [`next`](Waiting::next).

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::unattended::{Taker, Unattended, UnattendedEvent};

/// How long the debugger may be busy with a request of the lost client when another client wants to resume it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an expression of the lost client may run before it is interrupted: no client waits for its result.
const INTERRUPT_AFTER: Duration = Duration::from_secs(10);

/// Poll interval meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A parked debugger; `W` is the channel to the client that wants to resume it. Dropping it detaches in order.
#[derive(Debug)]
pub struct Waiting<W> {
    /// The parked debugger.
    pub debugger: Unattended,
    /// End of its time.
    pub until: Instant,
    request: Option<WaitRequest<W>>,
    /// When a running expression is interrupted.
    interrupt_at: Option<Instant>,
}

/// A client that wants to resume it, its kind, and its deadline.
#[derive(Debug)]
struct WaitRequest<W> {
    client: W,
    taker: Taker,
    until: Instant,
}

/// The result of waiting.
pub enum AfterWaiting<W> {
    /// The debugger has sent something.
    Event(UnattendedEvent),
    /// This client can resume it now.
    Ready(W),
    /// This client is refused: the debugger is still busy.
    Busy(W),
    /// An expression of the lost client still runs: the owner has to [interrupt](Unattended::interrupt) it.
    Evaluates,
    /// Its time is over.
    Expired,
}

impl<W> Waiting<W> {
    /// Parks `debugger` until then.
    pub fn new(debugger: Unattended, until: Instant) -> Self {
        Self {
            debugger,
            until,
            request: None,
            interrupt_at: Some(Instant::now() + INTERRUPT_AFTER),
        }
    }

    /// Registers `client`, which wants to resume it as `taker`.
    ///
    /// # Errors
    /// `client`, if another client is registered.
    pub fn register(&mut self, taker: Taker, client: W) -> Result<(), W> {
        if self.request.is_some() {
            return Err(client);
        }
        let until = Instant::now() + BUSY_TIMEOUT;
        self.interrupt_at = self.interrupt_at.map(|_| Instant::now());
        self.request = Some(WaitRequest {
            client,
            taker,
            until,
        });
        Ok(())
    }

    /// Waits for the next result. Cancel safe.
    pub async fn next(&mut self) -> AfterWaiting<W> {
        loop {
            match self.request.take() {
                Some(ready) if self.debugger.is_ready(ready.taker) => {
                    return AfterWaiting::Ready(ready.client);
                }
                Some(late) if late.until <= Instant::now() => {
                    return AfterWaiting::Busy(late.client);
                }
                waiting => self.request = waiting,
            }
            let evaluates = self.debugger.evaluates();
            if !evaluates {
                self.interrupt_at = None;
            }
            let poll_at = Instant::now() + POLL_INTERVAL;
            let interrupt_at = self.interrupt_at.unwrap_or(poll_at);
            tokio::select! {
                biased;
                () = sleep_until(self.until) => return AfterWaiting::Expired,
                event = self.debugger.next() => return AfterWaiting::Event(event),
                () = sleep_until(interrupt_at), if self.interrupt_at.is_some() => {
                    self.interrupt_at = None;
                    return AfterWaiting::Evaluates;
                }
                () = sleep_until(poll_at), if self.request.is_some() || evaluates => {}
            }
            // The end of an expression is a response to the lost client, which is no event.
            if evaluates && !self.debugger.evaluates() {
                return AfterWaiting::Event(UnattendedEvent::Nothing);
            }
        }
    }
}
