//! Inspects a worker that waits at no breakpoint: its hook is asked, and py-spy if there is no hook, or no answer.
//! The hook also opens the worker's debugger, and is injected for that if it is missing.
//!
//! A relay names a worker and its process. A hook confirms itself that it is that worker, in a process that is
//! visibly a worker of this machine. Before the agent reaches into a process, Ray has confirmed that it is that
//! worker's.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Agent;
use super::connect::Dialler;
use super::hook::{self, NoAnswer, Request};
use super::look::Refused;
use super::processes::Resident;
use super::stream::{stream_for, tell_refused};
use ray_relay_base::wire::text::one_line;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, Hooked, Inspect, Inspection, Listening, Refusal, StreamGreeting, read, written,
};
use ray_relay_ray::ray::look::{self, Look};

/// The longest time for one request, whatever a relay asks for.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a hook may take for a snapshot before py-spy is tried. Half of the remaining time, if that is less.
const HOOK: Duration = Duration::from_secs(2);

/// How long a hook may take to respond before its debugger is opened. A quarter of the remaining time, if that is
/// less. Opening a debugger takes seconds, which a user whose task holds the GIL need not wait for.
const HEARD: Duration = Duration::from_secs(10);

/// How long a relay may take to read an answer.
const TAKEN: Duration = Duration::from_secs(10);

/// Serves the request, or reports on the relay's link why not.
pub(super) async fn serve(
    agent: Arc<Agent>,
    dialler: Dialler,
    asked: Inspect,
    cancelled: CancellationToken,
    answers: mpsc::Sender<FromAgent>,
) {
    let until = Instant::now() + MAX_REQUEST_TIMEOUT.min(Duration::from_millis(asked.patience_ms));
    let answered = async {
        let answer = Box::pin(inspected(&agent, &asked, until)).await?;
        let relay = stream_for(&dialler, asked.stream, &asked.secret).await?;
        Ok::<_, Refused>((answer, ByteStream::new(relay)))
    };
    let answered = tokio::select! {
        answered = answered => answered,
        () = cancelled.cancelled() => return,
        () = agent.ending.cancelled() => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
    };
    let (answer, mut relay) = match answered {
        Ok(answered) => answered,
        Err(refused) => {
            info!(kind = ?refused.kind, detail = %refused.detail, "a worker is not inspected");
            return tell_refused(asked.stream, refused, &answers).await;
        }
    };
    info!(what = ?asked.what, "a worker was inspected");
    let telling = async {
        relay.say(written(&StreamGreeting::Dialled)).await?;
        relay.write_all(&answer).await?;
        relay.shutdown().await
    };
    let told = tokio::select! {
        told = timeout(TAKEN, telling) => told,
        () = agent.ending.cancelled() => return,
    };
    if !matches!(told, Ok(Ok(()))) {
        debug!("the relay has not taken an answer");
    }
}

async fn inspected(agent: &Agent, asked: &Inspect, until: Instant) -> Result<Vec<u8>, Refused> {
    if asked.what == Inspection::Failed {
        // Its process may be gone.
        let look = asked
            .failure
            .and_then(|id| agent.black_boxes.look(id, &asked.worker_id));
        let gone = || {
            other("what was kept of that task is gone: it was too old, or others took its place")
        };
        return look.map(|look| look.to_vec()).ok_or_else(gone);
    }
    if asked.what == Inspection::Hooked {
        let pids = hook::present(&agent.look, until).await;
        let pids =
            pids.ok_or_else(|| other("the node's agent has not seen all of its workers in time"))?;
        return Ok(written(&Hooked { pids }).into_bytes());
    }
    let workers = agent.look.residents(asked.pid).await?;
    match asked.what {
        Inspection::Look | Inspection::Evaluate => {
            let look = looked(agent, asked, &workers, until).await?;
            // Strings and numbers only: this cannot fail.
            Ok(serde_json::to_vec(&look).unwrap_or_default())
        }
        Inspection::Open => {
            let left = until.saturating_duration_since(Instant::now());
            let heard_until = Instant::now() + HEARD.min(left / 4);
            match hooked(asked, "look", &workers, heard_until).await {
                Ok(_) => {}
                Err(NoAnswer::Absent) => inject(agent, asked, &workers, until).await?,
                Err(why) => return Err(refused(&why)),
            }
            let answer = hooked(asked, "open", &workers, until).await;
            let answer = answer.map_err(|why| refused(&why))?;
            let listening = str::from_utf8(&answer)
                .ok()
                .and_then(|text| read::<Listening>(text).ok());
            let listening = listening.ok_or_else(|| {
                other("the worker's hook does not say where its debugger listens")
            })?;
            Ok(written(&listening).into_bytes())
        }
        Inspection::Failed | Inspection::Hooked | Inspection::Unknown => Err(other(
            "the node's agent is older than the relay, and does not know that request",
        )),
    }
}

async fn looked(
    agent: &Agent,
    asked: &Inspect,
    workers: &[Resident],
    until: Instant,
) -> Result<Look, Refused> {
    let left = until.saturating_duration_since(Instant::now());
    let hook_until = match asked.what {
        Inspection::Look => Instant::now() + HOOK.min(left / 2),
        _ => until,
    };
    let why = match hooked(asked, "look", workers, hook_until).await {
        Ok(answer) => match Look::read(&answer) {
            Ok(look) => {
                return Ok(Look {
                    pid: asked.pid,
                    source: look::Source::Hook,
                    ..look
                });
            }
            Err(error) => {
                return Err(other(&format!(
                    "the worker's hook sent an invalid answer: {error}"
                )));
            }
        },
        Err(why @ (NoAnswer::Refused(_) | NoAnswer::Forbidden(_))) => return Err(refused(&why)),
        Err(why) => why,
    };
    let [worker] = workers else {
        return Err(refused(&why));
    };
    let dumped = async {
        agent.look.is_resident(&asked.worker_id, asked.pid).await?;
        let dumped = agent.py_spy.dump(worker, asked.pid, until).await;
        let look = dumped.map_err(|unseen| other(&format!("{why}; {unseen}")))?;
        let note = match &why {
            NoAnswer::Absent => None,
            why => Some(why.to_string()),
        };
        Ok(Look { note, ..look })
    };
    let late = || other(&format!("{why}; and py-spy did not tell in time"));
    timeout_at(until, dumped)
        .await
        .unwrap_or_else(|_| Err(late()))
}

/// Asks the hook of the requested worker for `what`.
async fn hooked(
    asked: &Inspect,
    what: &'static str,
    workers: &[Resident],
    until: Instant,
) -> Result<Vec<u8>, NoAnswer> {
    let request = Request {
        what,
        evaluate: asked.what == Inspection::Evaluate,
        worker_id: &asked.worker_id,
    };
    let mut why = NoAnswer::Absent;
    for worker in workers {
        match hook::ask(worker, asked.pid, &request, until).await {
            Ok(answer) => return Ok(answer),
            Err(NoAnswer::Absent) => {}
            Err(other) => why = other,
        }
    }
    Err(why)
}

/// Injects the hook into the requested worker, unless its job's owner has forbidden that.
async fn inject(
    agent: &Agent,
    asked: &Inspect,
    workers: &[Resident],
    until: Instant,
) -> Result<(), Refused> {
    let [worker] = workers else {
        return Err(refused(&NoAnswer::Absent));
    };
    let may = agent.look.may_of(worker.pid).await?;
    if !may.is_empty() {
        let sentence = format!(
            "the job allows no debugger to be opened in its workers (RAY_RELAY_HOOK={})",
            one_line(&may)
        );
        return Err(Refused::new(Refusal::Forbidden, &sentence));
    }
    agent.look.is_resident(&asked.worker_id, asked.pid).await?;
    let left = until.saturating_duration_since(Instant::now());
    // The rest of the time is for opening the debugger.
    let injected = agent
        .injections
        .inject(worker, Instant::now() + left.mul_f64(0.6))
        .await;
    injected.map_err(|why| {
        let absent = NoAnswer::Absent;
        other(&format!(
            "{absent}, and it cannot be put there now: {why}; the next run of its job can have it from the beginning, see `ray-relay hook --help`"
        ))
    })
}

fn refused(why: &NoAnswer) -> Refused {
    let hint = match why {
        NoAnswer::Absent => ": give its job the hook, see `ray-relay hook --help`",
        _ => "",
    };
    let kind = match why {
        NoAnswer::Forbidden(_) => Refusal::Forbidden,
        NoAnswer::Closed => Refusal::NotAWorker,
        _ => Refusal::Other,
    };
    Refused::new(kind, &format!("{why}{hint}"))
}

fn other(detail: &str) -> Refused {
    Refused::new(Refusal::Other, detail)
}
