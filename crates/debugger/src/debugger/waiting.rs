//! The one park of relays and agents: a debugger that waits without a client until one resumes it, or its time is over.
//!
//! Whose it is, who may have it, and what else ends it is for its owner to say, who asks for what comes [`next`](Waiting::next).

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::unattended::{Taker, Unattended, UnattendedEvent};

/// How long the debugger may still work on what the lost client has asked, when another one wants to go on.
const BUSY: Duration = Duration::from_secs(5);

/// How long an expression of the lost client may go on before it is interrupted: no client waits for its answer.
const INTERRUPT_AFTER: Duration = Duration::from_secs(10);

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// See the module; `W` answers the one who wants to go on with it. Dropped, the debugger is left in order.
#[derive(Debug)]
pub struct Waiting<W> {
    /// What waits.
    pub debugger: Unattended,
    /// When its time is over.
    pub until: Instant,
    wanted: Option<WaitRequest<W>>,
    /// When an expression that goes on is interrupted.
    interrupt_at: Option<Instant>,
}

/// Who wants to go on with it, by what, and for how long that one waits.
#[derive(Debug)]
struct WaitRequest<W> {
    who: W,
    taker: Taker,
    until: Instant,
}

/// What has come of it.
pub enum AfterWaiting<W> {
    /// The debugger has said something.
    Heard(UnattendedEvent),
    /// This one can go on with it now.
    Ready(W),
    /// This one is refused: the debugger is at work still.
    Busy(W),
    /// An expression of the lost client still goes on: it is to be [interrupted](Unattended::interrupt).
    Evaluates,
    /// Its time is over.
    Expired,
}

impl<W> Waiting<W> {
    /// `debugger`, until then.
    pub fn new(debugger: Unattended, until: Instant) -> Self {
        Self {
            debugger,
            until,
            wanted: None,
            interrupt_at: Some(Instant::now() + INTERRUPT_AFTER),
        }
    }

    /// `who` wants to go on with it by `taker`.
    ///
    /// # Errors
    /// The same, where another does at this moment.
    pub fn want(&mut self, taker: Taker, who: W) -> Result<(), W> {
        if self.wanted.is_some() {
            return Err(who);
        }
        let until = Instant::now() + BUSY;
        self.interrupt_at = self.interrupt_at.map(|_| Instant::now());
        self.wanted = Some(WaitRequest { who, taker, until });
        Ok(())
    }

    /// What comes of it next. Cancel safe.
    pub async fn next(&mut self) -> AfterWaiting<W> {
        loop {
            match self.wanted.take() {
                Some(ready) if self.debugger.is_ready(ready.taker) => {
                    return AfterWaiting::Ready(ready.who);
                }
                Some(late) if late.until <= Instant::now() => return AfterWaiting::Busy(late.who),
                waiting => self.wanted = waiting,
            }
            let evaluates = self.debugger.evaluates();
            if !evaluates {
                self.interrupt_at = None;
            }
            let look = Instant::now() + LOOK;
            let interrupt_at = self.interrupt_at.unwrap_or(look);
            tokio::select! {
                biased;
                () = sleep_until(self.until) => return AfterWaiting::Expired,
                heard = self.debugger.next() => return AfterWaiting::Heard(heard),
                () = sleep_until(interrupt_at), if self.interrupt_at.is_some() => {
                    self.interrupt_at = None;
                    return AfterWaiting::Evaluates;
                }
                () = sleep_until(look), if self.wanted.is_some() || evaluates => {}
            }
            // That it ends is an answer to the lost client, which is no event.
            if evaluates && !self.debugger.evaluates() {
                return AfterWaiting::Heard(UnattendedEvent::Nothing);
            }
        }
    }
}
