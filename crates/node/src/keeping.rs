//! A worker whose relay is lost: it stays stopped for the person who had it, at whatever relay that one comes to next.
//!
//! The relay has said on the stream by what ([`ParkTerms`]), and [`super::held`] tells every relay. It waits as in a park of a
//! relay's own ([`Waiting`]). It ends when a session goes on with it, when its time is over, when a
//! relay wants the task to run, with the debugger, or with the agent; in all cases but the first the debugger is left in
//! order.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::info;

use super::Agent;
use super::held::{HeldRequest, WorkerHold};
use super::look::Refused;
use ray_relay_base::wire::tunnel::messages::{ParkTerms, Refusal};
use ray_relay_debugger::debugger::at_node::Attended;
use ray_relay_debugger::debugger::unattended::{Taker, UnattendedEvent};
use ray_relay_debugger::debugger::waiting::{AfterWaiting, Waiting};

/// The longest that a relay may have a worker kept.
const MAX_KEEP_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// By what a worker is kept, and since when that holds.
#[derive(Debug, Clone)]
pub(super) struct KeepingTerms {
    pub(super) keep: ParkTerms,
    pub(super) at: Instant,
}

/// A worker, its debugger, and what keeps it from everybody else. Dropped, the worker is left.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) debugger: Attended,
    pub(super) hold: WorkerHold,
    /// Its own, to know when this one debugger has been left.
    pub(super) leaving: TaskTracker,
}

/// See the module. Dropped, it leaves the worker.
#[derive(Debug)]
pub(super) struct ParkedDebugger {
    waiting: Waiting<ResumeSender>,
    said: KeepingTerms,
    asks: mpsc::Receiver<HeldRequest>,
    hold: WorkerHold,
    /// Whether an expression of the lost client runs, as relays were told last.
    evaluates: bool,
    /// It is a subprocess, which is kept no longer than its worker.
    subprocess: bool,
    leaving: TaskTracker,
}

/// Who wants to go on with it.
type ResumeSender = oneshot::Sender<Result<Box<ParkedDebugger>, Refused>>;

impl ParkedDebugger {
    /// Of a worker whose relay is lost now.
    ///
    /// # Errors
    /// The worker, to be left: there are too many, or its debugger is gone.
    pub(super) async fn begin(
        tenure: Box<WorkerHandle>,
        said: KeepingTerms,
        subprocess: bool,
    ) -> Result<Box<Self>, Box<WorkerHandle>> {
        let now = Instant::now();
        let left = said.keep.lasts(now - said.at).min(MAX_KEEP_PERIOD);
        let until = now + left;
        let WorkerHandle {
            debugger,
            hold,
            leaving,
        } = *tenure;
        let left_over = |debugger, hold, leaving| {
            Box::new(WorkerHandle {
                debugger,
                hold,
                leaving,
            })
        };
        let debugger = match debugger.unattended().await {
            Ok(debugger) => debugger,
            Err(debugger) => return Err(left_over(debugger, hold, leaving)),
        };
        let evaluates = debugger.evaluates();
        let asks = match hold.park(&said.keep, left, evaluates) {
            Ok(asks) => asks,
            Err(most) => {
                info!(%most, "a worker whose relay is lost is not kept, and its task runs on");
                let (debugger, _) = Attended::for_next_client(debugger);
                return Err(left_over(debugger, hold, leaving));
            }
        };
        info!(
            seconds = left.as_secs(),
            "a relay is lost, and the worker stays parked"
        );
        Ok(Box::new(Self {
            waiting: Waiting::new(debugger, until),
            said,
            asks,
            hold,
            evaluates,
            subprocess,
            leaving,
        }))
    }

    /// Waits until a session goes on with it, or to its end: then it is to be left.
    pub(super) async fn wait(mut self: Box<Self>, agent: &Agent) -> Option<WorkerHandle> {
        loop {
            let evaluates = self.waiting.debugger.evaluates();
            if std::mem::replace(&mut self.evaluates, evaluates) != evaluates {
                self.hold.evaluates(evaluates);
            }
            let over = tokio::select! {
                biased;
                () = agent.ending.cancelled() => "the agent ends",
                () = self.hold.left_by_its_task(), if self.subprocess => "its task is kept no longer",
                Some(ask) = self.asks.recv() => match ask {
                    HeldRequest::HandOver(answer) => {
                        if let Err(answer) = self.waiting.register(Taker::Relay, answer) {
                            _ = answer.send(Err(busy()));
                        }
                        continue;
                    }
                    HeldRequest::LetRun => "it was released",
                },
                next = self.waiting.next() => match next {
                    AfterWaiting::Ready(answer) => match answer.send(Ok(self)) {
                        Ok(()) => return None,
                        // No relay waits any more.
                        Err(Ok(stays)) => {
                            self = stays;
                            continue;
                        }
                        Err(Err(_)) => return None,
                    },
                    AfterWaiting::Busy(answer) => {
                        _ = answer.send(Err(busy()));
                        continue;
                    }
                    AfterWaiting::Event(UnattendedEvent::Gone | UnattendedEvent::Closed) => "the debugger is gone",
                    AfterWaiting::Event(UnattendedEvent::Garbled) => "the debugger is not understood",
                    AfterWaiting::Evaluates => {
                        self.waiting.debugger.interrupt().await;
                        continue;
                    }
                    AfterWaiting::Event(_) => continue,
                    AfterWaiting::Expired => match self.hold.kept_with_its_task() {
                        Some(left) if self.subprocess => {
                            self.waiting.until = Instant::now() + left.min(MAX_KEEP_PERIOD);
                            continue;
                        }
                        _ => "its time is over",
                    },
                },
            };
            info!(why = over, "a worker is kept no longer");
            return Some(self.into_tenure().0);
        }
    }

    /// For who goes on with it: the worker, by what it was kept, and, as its debugger would say it, what was said meanwhile and
    /// where it stands.
    pub(super) fn resumed(self) -> (WorkerHandle, KeepingTerms, Vec<u8>) {
        let (tenure, missed, said) = self.into_tenure();
        let said = KeepingTerms {
            keep: said.keep.renewed(said.at.elapsed()),
            at: Instant::now(),
        };
        (tenure, said, missed)
    }

    fn into_tenure(self) -> (WorkerHandle, Vec<u8>, KeepingTerms) {
        let Self {
            waiting,
            said,
            hold,
            leaving,
            ..
        } = self;
        let (debugger, missed) = Attended::for_next_client(waiting.debugger);
        let tenure = WorkerHandle {
            debugger,
            hold,
            leaving,
        };
        (tenure, missed, said)
    }
}

fn busy() -> Refused {
    Refused::new(
        Refusal::Kept,
        "its debugger still works on what was asked before",
    )
}
