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
use super::processes::Resident;
use super::py_spy::DumpError;
use super::stream::{report_refusal, stream_for};
use super::verifier::Refused;
use ray_relay_base::wire::text::one_line;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, Hooked, Inspect, Inspection, Listening, PYTORCH_DEBUG_PORT, Refusal, StreamGreeting,
    read, written,
};
use ray_relay_ray::ray::look::{self, Look};

/// The longest time for one request, whatever a relay asks for.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a hook may take for a snapshot before py-spy is tried. Half of the remaining time, if that is less.
const HOOK_SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a hook may take to respond before its debugger is opened. A quarter of the remaining time, if that is
/// less. Opening a debugger takes seconds, which a user whose task holds the GIL need not wait for.
const HOOK_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a relay may take to read an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The word of RAY_RELAY_HOOK by which the hook records no positions.
const NO_RING: &str = "no-ring";

/// Serves the request, or reports on the relay's link why not.
pub(super) async fn serve(
    agent: Arc<Agent>,
    dialler: Dialler,
    request: Inspect,
    cancelled: CancellationToken,
    answers: mpsc::Sender<FromAgent>,
) {
    let deadline =
        Instant::now() + MAX_REQUEST_TIMEOUT.min(Duration::from_millis(request.patience_ms));
    let answered = async {
        let answer = Box::pin(answer_for(&agent, &request, deadline)).await?;
        let relay = stream_for(&dialler, request.stream, &request.secret).await?;
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
            return report_refusal(request.stream, refused, &answers).await;
        }
    };
    info!(what = ?request.what, "a worker was inspected");
    let sending = async {
        relay.say(written(&StreamGreeting::Dialled)).await?;
        relay.write_all(&answer).await?;
        relay.shutdown().await
    };
    let sent = tokio::select! {
        sent = timeout(READ_TIMEOUT, sending) => sent,
        () = agent.ending.cancelled() => return,
    };
    if !matches!(sent, Ok(Ok(()))) {
        debug!("the relay has not taken an answer");
    }
}

async fn answer_for(
    agent: &Agent,
    request: &Inspect,
    deadline: Instant,
) -> Result<Vec<u8>, Refused> {
    if request.what == Inspection::Failed {
        // Its process may be gone.
        let snapshot = request
            .failure
            .and_then(|id| agent.black_boxes.snapshot(id, &request.worker_id));
        let gone = || {
            other("what was kept of that task is gone: it was too old, or others took its place")
        };
        return snapshot.map(|snapshot| snapshot.to_vec()).ok_or_else(gone);
    }
    if request.what == Inspection::Hooked {
        let late = || other("the node's agent has not seen all of its workers in time");
        let pids = hook::present(&agent.verifier, deadline).await;
        let pids = pids.ok_or_else(late)?;
        let serving = agent.verifier.serving(PYTORCH_DEBUG_PORT);
        let pytorch_debug = timeout_at(deadline, serving).await.map_err(|_| late())?;
        return Ok(written(&Hooked {
            pids,
            pytorch_debug,
        })
        .into_bytes());
    }
    let workers = agent.verifier.residents(request.pid).await?;
    match request.what {
        Inspection::Look | Inspection::Evaluate | Inspection::Native => {
            let snapshot = match (request.what, &*workers) {
                (Inspection::Native, [worker]) => dumped(agent, request, worker, deadline).await?,
                (Inspection::Native, _) => {
                    return Err(other("the node's agent does not find its process"));
                }
                _ => snapshot_of(agent, request, &workers, deadline).await?,
            };
            // Strings and numbers only: this cannot fail.
            Ok(serde_json::to_vec(&snapshot).unwrap_or_default())
        }
        Inspection::Open => {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let respond_until = Instant::now() + HOOK_RESPONSE_TIMEOUT.min(remaining / 4);
            match ask_hook(request, "look", &workers, respond_until).await {
                Ok(_) => {}
                Err(NoAnswer::Absent) => inject(agent, request, &workers, deadline).await?,
                Err(why) => return Err(hook_refusal(&why)),
            }
            let answer = ask_hook(request, "open", &workers, deadline).await;
            let answer = answer.map_err(|why| hook_refusal(&why))?;
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

async fn snapshot_of(
    agent: &Agent,
    request: &Inspect,
    workers: &[Resident],
    deadline: Instant,
) -> Result<Look, Refused> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let hook_until = match request.what {
        Inspection::Look => Instant::now() + HOOK_SNAPSHOT_TIMEOUT.min(remaining / 2),
        _ => deadline,
    };
    let why = match ask_hook(request, "look", workers, hook_until).await {
        Ok(answer) => match Look::read(&answer) {
            Ok(snapshot) => {
                return Ok(Look {
                    pid: request.pid,
                    source: look::Source::Hook,
                    ..snapshot
                });
            }
            Err(error) => {
                return Err(other(&format!(
                    "the worker's hook sent an invalid answer: {error}"
                )));
            }
        },
        Err(why @ (NoAnswer::Refused(_) | NoAnswer::Forbidden(_))) => {
            return Err(hook_refusal(&why));
        }
        Err(why) => why,
    };
    let [worker] = workers else {
        return Err(hook_refusal(&why));
    };
    let dumped = dumped(agent, request, worker, deadline).await;
    let snapshot = dumped.map_err(|unseen| match unseen.kind {
        Refusal::Other => other(&format!("{why}; {}", unseen.detail)),
        _ => unseen,
    })?;
    let note = match &why {
        NoAnswer::Absent => None,
        why => Some(why.to_string()),
    };
    Ok(Look { note, ..snapshot })
}

/// Has py-spy dump the requested worker, which is `worker`.
async fn dumped(
    agent: &Agent,
    request: &Inspect,
    worker: &Resident,
    deadline: Instant,
) -> Result<Look, Refused> {
    let (py_spy, pid) = (&agent.py_spy, request.pid);
    let dump = async {
        agent.verifier.is_resident(&request.worker_id, pid).await?;
        let dump = match request.what {
            Inspection::Native => py_spy.dump_native(worker, pid, deadline).await,
            _ => py_spy.dump(worker, pid, deadline).await,
        };
        dump.map_err(|unseen| other(&unseen.to_string()))
    };
    let late = |_| Err(other(&DumpError::Late.to_string()));
    timeout_at(deadline, dump).await.unwrap_or_else(late)
}

/// Asks the hook of the requested worker for `what`.
async fn ask_hook(
    request: &Inspect,
    what: &'static str,
    workers: &[Resident],
    deadline: Instant,
) -> Result<Vec<u8>, NoAnswer> {
    let hook_request = Request {
        what,
        evaluate: request.what == Inspection::Evaluate,
        worker_id: &request.worker_id,
    };
    let mut why = NoAnswer::Absent;
    for worker in workers {
        match hook::ask(worker, request.pid, &hook_request, deadline).await {
            Ok(answer) => return Ok(answer),
            Err(NoAnswer::Absent) => {}
            Err(other) => why = other,
        }
    }
    Err(why)
}

/// Whether a job's RAY_RELAY_HOOK, words with commas between them, keeps debuggers from being opened. Unknown words do.
fn forbids_debuggers(policy: &str) -> bool {
    let mut words = policy.split(',').map(str::trim);
    words.any(|word| !word.is_empty() && word != NO_RING)
}

/// Injects the hook into the requested worker, unless its job's owner has forbidden that.
async fn inject(
    agent: &Agent,
    request: &Inspect,
    workers: &[Resident],
    deadline: Instant,
) -> Result<(), Refused> {
    let [worker] = workers else {
        return Err(hook_refusal(&NoAnswer::Absent));
    };
    let policy = agent.verifier.hook_policy(worker.pid).await?;
    if forbids_debuggers(&policy) {
        let sentence = format!(
            "the job allows no debugger to be opened in its workers (RAY_RELAY_HOOK={})",
            one_line(&policy)
        );
        return Err(Refused::new(Refusal::Forbidden, &sentence));
    }
    agent
        .verifier
        .is_resident(&request.worker_id, request.pid)
        .await?;
    let remaining = deadline.saturating_duration_since(Instant::now());
    // The rest of the time is for opening the debugger.
    let injected = agent
        .injections
        .inject(worker, Instant::now() + remaining.mul_f64(0.6))
        .await;
    injected.map_err(|why| {
        let absent = NoAnswer::Absent;
        other(&format!(
            "{absent}, and it cannot be put there now: {why}; the next run of its job can have it from the beginning, see `ray-relay hook --help`"
        ))
    })
}

fn hook_refusal(why: &NoAnswer) -> Refused {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_but_no_ring_forbids_debuggers() {
        for policy in ["", "no-ring", " no-ring ,"] {
            assert!(!forbids_debuggers(policy), "{policy}");
        }
        for policy in ["look", "off", "no-ring,look", "No-ring", "on"] {
            assert!(forbids_debuggers(policy), "{policy}");
        }
    }
}
