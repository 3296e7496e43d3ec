//! A worker whose relay is lost: it stays paused for its owner, who may resume it through any relay.
//!
//! The relay sent the terms ([`ParkTerms`]) on the stream, and [`super::held`] tells every relay. The worker waits as
//! in a relay's own park ([`Waiting`]). The wait ends when a session resumes, when its time is over, when a relay
//! requests that the task resumes, with the debugger, or with the agent. In all cases but the first the debugger is
//! detached in order.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::info;

use super::Agent;
use super::held::{HeldRequest, WorkerHold};
use super::verifier::Refused;
use ray_relay_base::wire::tunnel::messages::{ParkTerms, Refusal};
use ray_relay_debugger::debugger::at_node::Attended;
use ray_relay_debugger::debugger::unattended::{Taker, UnattendedEvent};
use ray_relay_debugger::debugger::waiting::{AfterWaiting, Waiting};

/// The longest period for which a relay may have a worker kept.
const MAX_KEEP_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// The terms by which a worker is kept, and since when they apply.
#[derive(Debug, Clone)]
pub(super) struct KeepingTerms {
    pub(super) keep: ParkTerms,
    pub(super) at: Instant,
}

/// A worker, its debugger, and the hold that keeps other sessions out. Dropping it detaches from the worker.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) debugger: Attended,
    pub(super) hold: WorkerHold,
    /// A tracker of its own, to know when this one debugger has been detached.
    pub(super) detaching: TaskTracker,
}

/// A parked worker, as described in the module. Dropping it detaches from the worker.
#[derive(Debug)]
pub(super) struct ParkedDebugger {
    waiting: Waiting<ResumeSender>,
    terms: KeepingTerms,
    requests: mpsc::Receiver<HeldRequest>,
    hold: WorkerHold,
    /// Whether an expression of the lost client runs, as last published to relays.
    evaluates: bool,
    /// Whether it is a subprocess, which is kept no longer than its worker.
    subprocess: bool,
    detaching: TaskTracker,
}

/// A session that waits for the handover.
type ResumeSender = oneshot::Sender<Result<Box<ParkedDebugger>, Refused>>;

impl ParkedDebugger {
    /// Parks a worker whose relay has just been lost.
    ///
    /// # Errors
    /// The worker, to be detached: the limit is reached, or its debugger is gone.
    pub(super) async fn begin(
        worker: Box<WorkerHandle>,
        terms: KeepingTerms,
        subprocess: bool,
    ) -> Result<Box<Self>, Box<WorkerHandle>> {
        let now = Instant::now();
        let remaining = terms.keep.lasts(now - terms.at).min(MAX_KEEP_PERIOD);
        let until = now + remaining;
        let WorkerHandle {
            debugger,
            hold,
            detaching,
        } = *worker;
        let to_detach = |debugger, hold, detaching| {
            Box::new(WorkerHandle {
                debugger,
                hold,
                detaching,
            })
        };
        let debugger = match debugger.unattended().await {
            Ok(debugger) => debugger,
            Err(debugger) => return Err(to_detach(debugger, hold, detaching)),
        };
        let evaluates = debugger.evaluates();
        let requests = match hold.park(&terms.keep, remaining, evaluates) {
            Ok(requests) => requests,
            Err(limit) => {
                info!(most = %limit, "a worker whose relay is lost is not kept, and its task runs on");
                let (debugger, _) = Attended::for_next_client(debugger);
                return Err(to_detach(debugger, hold, detaching));
            }
        };
        info!(
            seconds = remaining.as_secs(),
            "a relay is lost, and the worker stays parked"
        );
        Ok(Box::new(Self {
            waiting: Waiting::new(debugger, until),
            terms,
            requests,
            hold,
            evaluates,
            subprocess,
            detaching,
        }))
    }

    /// Waits until a session resumes it, or to its end. Returns the worker in the latter case, to be detached.
    pub(super) async fn wait(mut self: Box<Self>, agent: &Agent) -> Option<WorkerHandle> {
        loop {
            let evaluates = self.waiting.debugger.evaluates();
            if std::mem::replace(&mut self.evaluates, evaluates) != evaluates {
                self.hold.evaluates(evaluates);
            }
            let reason = tokio::select! {
                biased;
                () = agent.ending.cancelled() => "the agent ends",
                () = self.hold.owner_lost_worker(), if self.subprocess => "its task is kept no longer",
                Some(request) = self.requests.recv() => match request {
                    HeldRequest::HandOver(answer) => {
                        if let Err(answer) = self.waiting.register(Taker::Relay, answer) {
                            _ = answer.send(Err(busy()));
                        }
                        continue;
                    }
                    HeldRequest::Resume => "it was released",
                },
                next = self.waiting.next() => match next {
                    AfterWaiting::Ready(answer) => match answer.send(Ok(self)) {
                        Ok(()) => return None,
                        // The relay no longer waits.
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
                    AfterWaiting::Expired => match self.hold.worker_keep_time() {
                        Some(remaining) if self.subprocess => {
                            self.waiting.until = Instant::now() + remaining.min(MAX_KEEP_PERIOD);
                            continue;
                        }
                        _ => "its time is over",
                    },
                },
            };
            info!(why = reason, "a worker is kept no longer");
            return Some(self.into_worker().0);
        }
    }

    /// Returns, for the session that resumes: the worker, the terms it was kept by, and, in its debugger's protocol,
    /// the messages missed meanwhile and where the task is paused.
    pub(super) fn resumed(self) -> (WorkerHandle, KeepingTerms, Vec<u8>) {
        let (worker, missed, terms) = self.into_worker();
        let terms = KeepingTerms {
            keep: terms.keep.renewed(terms.at.elapsed()),
            at: Instant::now(),
        };
        (worker, terms, missed)
    }

    fn into_worker(self) -> (WorkerHandle, Vec<u8>, KeepingTerms) {
        let Self {
            waiting,
            terms,
            hold,
            detaching,
            ..
        } = self;
        let (debugger, missed) = Attended::for_next_client(waiting.debugger);
        let worker = WorkerHandle {
            debugger,
            hold,
            detaching,
        };
        (worker, missed, terms)
    }
}

fn busy() -> Refused {
    Refused::new(
        Refusal::Kept,
        "its debugger still works on what was asked before",
    )
}
