//! A worker whose relay is lost: it stays stopped for the person who had it, at whatever relay that one comes to next.
//!
//! The relay has said on the stream by what ([`Keep`]), and [`super::held`] tells every relay. What the debugger says
//! meanwhile is folded as in a park of a relay's own ([`Kept`]). It ends when somebody goes on with it, when its time is over, when a
//! relay wants the task to run, with the debugger, or with the agent; in all cases but the first the debugger is left in
//! order.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::Agent;
use super::held::{Ask, Hold};
use super::look::Refused;
use crate::debugger::Worker;
use crate::debugger::unattended::{BUSY, LOOK};
use crate::memory::Account;
use crate::wire::dap::codec::{frame, put_frame};
use crate::wire::dap::kept::{Kept, Meaning};
use crate::wire::dap::message::notice;
use crate::wire::dap::splice::{NullPeer, Side, Splice, SpliceEvent};
use crate::wire::tunnel::messages::{Keep, Refusal};

/// The longest time that a relay may have a worker kept.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Bytes of one message that is looked at.
const LARGEST: usize = 1 << 24;

/// How long the debugger may take for the rest of a message that nobody hears any more.
const REST: Duration = Duration::from_secs(10);

/// By what a worker is kept, and since when that holds.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) keep: Keep,
    pub(super) at: Instant,
}

/// A worker, its debugger, and what keeps it from everybody else. Dropped, the worker is left.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) worker: Worker,
    pub(super) hold: Hold,
    /// Its own, to know when this one debugger has been left.
    pub(super) leaving: TaskTracker,
}

/// See the module. Dropped, it leaves the worker.
#[derive(Debug)]
pub(super) struct Keeping {
    splice: Splice<NullPeer, Worker>,
    kept: Kept,
    said: Said,
    until: Instant,
    asks: mpsc::Receiver<Ask>,
    hold: Hold,
    leaving: TaskTracker,
}

/// Who wants to go on with it.
type Wanted = oneshot::Sender<Result<Box<Keeping>, Refused>>;

/// Why it is over, but for who goes on with it.
enum Next {
    Wanted(Wanted),
    Over(&'static str),
}

impl Keeping {
    /// Of a worker whose relay is lost now.
    ///
    /// # Errors
    /// The worker, to be left: there are too many, or its debugger is gone.
    pub(super) async fn begin(
        mut tenure: Box<Tenure>,
        said: Said,
    ) -> Result<Box<Self>, Box<Tenure>> {
        let now = Instant::now();
        let left = said.keep.lasts(now - said.at).min(LONGEST);
        let until = now + left;
        let kept = tenure.worker.stands();
        let Ok(Ok(part)) = timeout(REST, tenure.worker.skip_rest()).await else {
            return Err(tenure);
        };
        let Some(asks) = tenure.hold.park(&said.keep, left) else {
            info!("there are too many workers that are kept: the task of this one runs on");
            return Err(tenure);
        };
        info!(
            seconds = left.as_secs(),
            "a relay is lost, and the worker stays as it is"
        );
        let Tenure {
            worker,
            hold,
            leaving,
        } = *tenure;
        Ok(Box::new(Self {
            splice: Splice::keeping(Account::default(), worker, part, LARGEST),
            kept,
            said,
            until,
            asks,
            hold,
            leaving,
        }))
    }

    /// Waits until somebody goes on with it, or to its end: then it is to be left.
    pub(super) async fn wait(mut self: Box<Self>, agent: &Agent) -> Option<Tenure> {
        loop {
            match self.next(agent).await {
                Next::Wanted(wanted) => match wanted.send(Ok(self)) {
                    Ok(()) => return None,
                    // Nobody waits any more.
                    Err(Ok(stays)) => self = stays,
                    Err(Err(_)) => return None,
                },
                Next::Over(why) => {
                    info!(why, "a worker is kept no longer");
                    return Some(self.into_parts().0);
                }
            }
        }
    }

    async fn next(&mut self, agent: &Agent) -> Next {
        let mut wanted: Option<(Wanted, Instant)> = None;
        loop {
            let look = Instant::now() + LOOK;
            tokio::select! {
                biased;
                () = agent.ending.cancelled() => return Next::Over("the agent ends"),
                Some(ask) = self.asks.recv() => match ask {
                    Ask::HandOver(answer) if wanted.is_none() => {
                        wanted = Some((answer, Instant::now() + BUSY));
                    }
                    Ask::HandOver(answer) => _ = answer.send(Err(busy())),
                    Ask::LetRun => return Next::Over("it was released"),
                },
                () = sleep_until(self.until) => return Next::Over("its time is over"),
                event = self.splice.next() => {
                    if let Some(why) = self.on_event(event) {
                        return Next::Over(why);
                    }
                }
                () = sleep_until(look), if wanted.is_some() => {}
            }
            match wanted.take() {
                Some((answer, _)) if self.splice.is_ready() => return Next::Wanted(answer),
                Some((answer, until)) if until <= Instant::now() => _ = answer.send(Err(busy())),
                waiting => wanted = waiting,
            }
        }
    }

    fn on_event(&mut self, event: SpliceEvent) -> Option<&'static str> {
        match event {
            SpliceEvent::Captured(Side::Worker, body) => match self.kept.take(&body) {
                Meaning::Ended => Some("the debugger is done with its program"),
                Meaning::Stopped | Meaning::Runs | Meaning::Nothing => None,
            },
            SpliceEvent::Eof(Side::Worker) | SpliceEvent::Failed(Side::Worker, _) => {
                Some("the debugger is gone")
            }
            SpliceEvent::Malformed(Side::Worker, error) => {
                debug!(%error, "a debugger is not understood");
                Some("the debugger is not understood")
            }
            // There is nobody.
            SpliceEvent::Captured(Side::Client, _)
            | SpliceEvent::Eof(Side::Client)
            | SpliceEvent::Failed(Side::Client, _)
            | SpliceEvent::Malformed(Side::Client, _) => None,
        }
    }

    /// For who goes on with it: the worker, by what it was kept, and, as messages of the debugger, what was said meanwhile and
    /// which threads stand.
    pub(super) fn resumed(self) -> (Tenure, Said, Vec<u8>) {
        let (mut tenure, mut kept, said) = self.into_parts();
        let mut frames = Vec::new();
        let (cut, messages) = kept.messages();
        if cut > 0 {
            let text = format!("{cut} messages of output from meanwhile were not kept");
            frames.extend(frame(&notice(&text, false)));
        }
        let mut stands = Kept::of(kept.stands.cleared());
        for message in messages {
            put_frame(&mut frames, &message);
        }
        for stop in kept.stops() {
            put_frame(&mut frames, &stop);
            stands.stopped(&stop);
        }
        tenure.worker.stand(stands);
        let said = Said {
            keep: said.keep.renewed(said.at.elapsed()),
            at: Instant::now(),
        };
        (tenure, said, frames)
    }

    fn into_parts(self) -> (Tenure, Kept, Said) {
        let Self {
            mut splice,
            kept,
            said,
            hold,
            leaving,
            ..
        } = self;
        let tenure = Tenure {
            worker: splice.worker_mut().moved(),
            hold,
            leaving,
        };
        (tenure, kept, said)
    }
}

fn busy() -> Refused {
    Refused::new(
        Refusal::Kept,
        "its debugger still works on what was asked before",
    )
}
