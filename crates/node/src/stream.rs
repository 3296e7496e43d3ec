//! One connection to a debugger, from the relay's request to the debugger's end.
//!
//! The agent verifies the target, acquires the worker, opens the stream to the relay, and dials last: no debugger is
//! dialled without a session. When the relay has gone, the debugger is detached in the order that it survives. If the
//! relay has sent terms and vanished without closing, the worker is kept instead ([`super::keeping`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::SinkExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::Agent;
use super::connect::Dialler;
use super::held::WorkerHold;
use super::keeping::{KeepingTerms, ParkedDebugger, WorkerHandle};
use super::pump::{DebuggerStream, Pump, PumpEnd};
use super::verifier::{DialTarget, Refused};
use ray_relay_base::dial::Stream;
use ray_relay_base::dial::websocket::Socket;
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::message::kept_subprocess;
use ray_relay_base::wire::tunnel::messages::{
    DialFailure, FromAgent, Hex, Open, Refusal, Replica, StreamGreeting, StreamId, read, written,
};
use ray_relay_base::wire::tunnel::{self, ByteStream, handshake};
use ray_relay_debugger::debugger::at_node::{self, Attended};
use ray_relay_debugger::debugger::settled;

/// The deadline of a dial to one address of the debugger.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The deadline for the previous session to be over: longer than a debugger takes to close.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a relay may take to close after the debugger has closed.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);

/// The relay that requests a stream.
pub(super) struct Requester {
    pub(super) dialler: Dialler,
    pub(super) replica: Replica,
    /// Cancelled when its link was silent for too long.
    pub(super) lost: CancellationToken,
}

/// Serves the request `open`, or reports on the relay's link why not.
pub(super) async fn serve(
    agent: Arc<Agent>,
    requester: Requester,
    open: Open,
    cancelled: CancellationToken,
    answers: mpsc::Sender<FromAgent>,
) {
    if open.resume.is_some() {
        return Box::pin(resume(&agent, &requester, &open, cancelled, answers)).await;
    }
    let opening = Box::pin(prepare(
        &agent,
        &requester.dialler,
        requester.replica,
        &open,
    ));
    let opened = tokio::select! {
        opened = opening => opened,
        () = cancelled.cancelled() => return,
        () = agent.ending.cancelled() => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
    };
    match opened {
        Ok(opened) => Box::pin(opened.run(&agent, &open, &requester.lost)).await,
        Err(refused) => {
            refuse(&open, refused, &answers).await;
        }
    }
}

async fn refuse(open: &Open, refused: Refused, answers: &mpsc::Sender<FromAgent>) {
    info!(port = open.port, kind = ?refused.kind, detail = %refused.detail, "refused a relay's request");
    report_refusal(open.stream, refused, answers).await;
}

/// Reports to the relay why there is no stream.
pub(super) async fn report_refusal(
    stream: StreamId,
    refused: Refused,
    answers: &mpsc::Sender<FromAgent>,
) {
    let Refused {
        kind,
        detail,
        holder,
    } = refused;
    let refused = FromAgent::Refused {
        stream,
        kind,
        detail,
        holder,
    };
    // If the link is gone, no relay waits.
    _ = answers.send(refused).await;
}

/// Opens the stream to the relay that requested it by that id and secret.
pub(super) async fn stream_for(
    dialler: &Dialler,
    stream: StreamId,
    secret: &Hex<16>,
) -> Result<Socket, Refused> {
    let path = format!("{}{}", tunnel::STREAM_PATH, stream.digits());
    let opened = dialler.open(
        &path,
        tunnel::STREAM_PROTOCOL,
        handshake::secret_header(secret),
        tunnel::stream_config(),
    );
    opened
        .await
        .map_err(|error| Refused::new(Refusal::Busy, &format!("no stream to the relay: {error}")))
}

/// A stream that the relay waits on, and the addresses of its debugger.
struct PendingStream {
    relay: Socket,
    targets: Vec<DialTarget>,
    hold: WorkerHold,
}

async fn prepare(
    agent: &Agent,
    dialler: &Dialler,
    replica: Replica,
    open: &Open,
) -> Result<PendingStream, Refused> {
    let targets = agent.verifier.targets(open).await?;
    let hold = agent.held.acquire(open, replica).map_err(|held| {
        let holder_name = match held.name.is_empty() {
            true => &*held.client,
            false => &*held.name,
        };
        let detail = format!("{holder_name} holds it through another relay");
        Refused {
            holder: Some(held),
            ..Refused::new(Refusal::Held, &detail)
        }
    })?;
    // If a session does not end in time, the debugger itself rejects this one.
    _ = timeout(SETTLE_TIMEOUT, hold.settled()).await;
    let relay = stream_for(dialler, open.stream, &open.secret).await?;
    Ok(PendingStream {
        relay,
        targets,
        hold,
    })
}

impl PendingStream {
    async fn run(self, agent: &Agent, open: &Open, lost: &CancellationToken) {
        let Self {
            relay,
            targets,
            hold,
        } = self;
        let addresses: Vec<SocketAddr> = targets.iter().map(|target| target.address).collect();
        let stream = match at_node::dial(&addresses, DIAL_TIMEOUT).await {
            Ok(stream) => stream,
            Err(error) => {
                info!(port = open.port, %error, "a debugger cannot be reached");
                return send_failure(relay, failure(&error)).await;
            }
        };
        if let Err(refused) = agent.verifier.verify_unchanged(&targets, &stream).await {
            info!(port = open.port, detail = %refused.detail, "a debugger is left before its first message");
            let failed = StreamGreeting::Failed {
                kind: DialFailure::Unreachable,
                detail: refused.detail,
            };
            return send_failure(relay, failed).await;
        }
        info!(port = open.port, "session attached");
        let detaching = TaskTracker::new();
        match Attended::follow(open.kind, stream, detaching.clone()) {
            Ok(debugger) => {
                let worker = WorkerHandle {
                    debugger,
                    hold,
                    detaching,
                };
                Box::pin(worker.serve(agent, relay, None, open, lost)).await;
            }
            Err(error) => debug!(%error, "a debugger's connection broke at once"),
        }
        info!(port = open.port, "session ended");
    }
}

/// Reports to the relay that there is no debugger.
async fn send_failure(mut relay: Socket, failed: StreamGreeting) {
    let sending = async {
        _ = relay.send(Message::text(written(&failed))).await;
        _ = relay.close(None).await;
    };
    _ = timeout(LINGER_TIMEOUT, sending).await;
}

/// How a session resumes: the terms by which its worker was kept, and the first messages for its relay.
type Resumed = (KeepingTerms, Vec<u8>);

impl WorkerHandle {
    /// Passes bytes both ways, and keeps the worker if its relay is lost and has requested that.
    async fn serve(
        self,
        agent: &Agent,
        relay: Socket,
        resumed: Option<Resumed>,
        open: &Open,
        lost: &CancellationToken,
    ) {
        let Self {
            debugger,
            hold,
            detaching,
        } = self;
        let relay = ByteStream::new(relay).with_texts();
        let (first, terms, missed) = match resumed {
            None => {
                let terms = open.keep.as_deref().map(|keep| KeepingTerms {
                    keep: keep.clone(),
                    at: Instant::now(),
                });
                (StreamGreeting::Dialled, terms, Vec::new())
            }
            Some((terms, missed)) => {
                let first = StreamGreeting::Resumed(Box::new(terms.keep.clone()));
                (first, Some(terms), missed)
            }
        };
        let mut pump = Pump::after(debugger, relay, missed);
        let end = exchange(agent, &mut pump, written(&first), lost).await;
        let mut park_terms = None;
        let undelivered = std::mem::take(&mut pump.undelivered);
        let last = match end {
            PumpEnd::Relay => &*undelivered,
            PumpEnd::Debugger => &[],
        };
        pump.debugger.complete(last);
        if end == PumpEnd::Relay {
            let text = pump.take_terms();
            let newer = text.and_then(|(at, text)| {
                let keep = read(&text).ok()?;
                Some(KeepingTerms { keep, at })
            });
            let stays = pump.is_lost() && !agent.ending.is_cancelled();
            park_terms = newer
                .or(terms)
                .filter(|_| stays && pump.debugger.is_resumable());
        }
        let (debugger, _) = pump.into_parts();
        let worker = Self {
            debugger,
            hold,
            detaching,
        };
        let Some(terms) = park_terms else {
            return worker.detach().await;
        };
        let subprocess = open.process.is_some();
        match ParkedDebugger::begin(Box::new(worker), terms, subprocess).await {
            Ok(parked) => wait(agent, parked).await,
            Err(worker) => worker.detach().await,
        }
    }

    /// Detaches the debugger in order, then releases the worker.
    async fn detach(self) {
        let Self {
            debugger,
            hold,
            detaching,
        } = self;
        drop(debugger);
        detaching.close();
        detaching.wait().await;
        settled().await;
        drop(hold);
    }
}

/// Keeps a worker until a session resumes it, or detaches from it.
async fn wait(agent: &Agent, parked: Box<ParkedDebugger>) {
    if let Some(worker) = Box::pin(parked.wait(agent)).await {
        worker.detach().await;
    }
}

/// Resumes a worker that is kept for its owner.
async fn resume(
    agent: &Agent,
    requester: &Requester,
    open: &Open,
    cancelled: CancellationToken,
    answers: mpsc::Sender<FromAgent>,
) {
    // Not cancelled: once handed over, the worker is this session's.
    let parked = match agent.held.hand_over(open).await {
        Ok(parked) => parked,
        Err(refused) => return refuse(open, refused, &answers).await,
    };
    let opened = tokio::select! {
        opened = Box::pin(stream_for(&requester.dialler, open.stream, &open.secret)) => opened,
        () = cancelled.cancelled() => Err(Refused::new(Refusal::Busy, "the relay waits no longer")),
        () = agent.ending.cancelled() => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
    };
    match opened {
        Ok(relay) => {
            let (worker, terms, mut missed) = parked.resumed();
            if open.process.is_none() {
                for process in agent.held.kept_subprocesses(open) {
                    missed.extend(frame(&kept_subprocess(process)));
                }
            }
            worker.hold.resume(open, requester.replica);
            info!(port = open.port, "a client resumes a parked worker");
            let resumed = Some((terms, missed));
            worker
                .serve(agent, relay, resumed, open, &requester.lost)
                .await;
            info!(port = open.port, "session ended");
        }
        Err(refused) => {
            refuse(open, refused, &answers).await;
            wait(agent, parked).await;
        }
    }
}

/// Reports the debugger to the relay by `first`, then passes bytes both ways until either side or the agent ends, or
/// the relay is `lost`.
async fn exchange<D: DebuggerStream>(
    agent: &Agent,
    pump: &mut Pump<D, Stream>,
    first: String,
    lost: &CancellationToken,
) -> PumpEnd {
    let exchange = async {
        if timeout(DIAL_TIMEOUT, pump.begin(first)).await != Ok(true) {
            return PumpEnd::Relay;
        }
        let end = pump.run().await;
        if end == PumpEnd::Debugger {
            _ = timeout(LINGER_TIMEOUT, pump.linger()).await;
        }
        end
    };
    tokio::select! {
        end = exchange => end,
        () = agent.ending.cancelled() => PumpEnd::Relay,
        () = lost.cancelled() => PumpEnd::Relay,
    }
}

fn failure(error: &std::io::Error) -> StreamGreeting {
    let kind = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => DialFailure::Refused,
        std::io::ErrorKind::TimedOut => DialFailure::TimedOut,
        _ => DialFailure::Unreachable,
    };
    StreamGreeting::Failed {
        kind,
        detail: error.to_string().as_str().into(),
    }
}
