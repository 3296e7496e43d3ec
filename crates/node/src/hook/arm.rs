//! A worker's hook that arms lines: the request, and its reports until the connection closes.

use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_util::codec::{Framed, LinesCodec};

use super::answer::{Failed, NoAnswer};
use ray_relay_base::wire::tunnel::messages::{MAX_REPORT_BYTES, Name, WorkerReport, read};

/// How long a hook may take to answer: a worker may hold the GIL for a while.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a hook may take to receive the lines.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two bytes by which the hook knows that the agent is alive. It disarms its lines after three of
/// them.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The request to a hook, in one line.
#[derive(Serialize)]
pub(crate) struct ArmRequest<'a> {
    #[serde(rename = "do")]
    pub(crate) what: &'static str,
    pub(crate) node_id: &'a str,
    pub(crate) job_id: &'a str,
}

/// The answer of a hook, unless it is [`Failed`], as that of an older one.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    worker_id: Option<Name>,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    other_worker: bool,
}

/// The worker is of another job, or of another node of this machine.
#[derive(Debug)]
pub(crate) struct OtherWorker;

/// A hook that has armed lines, while this exists.
pub(crate) struct ArmedHook {
    pub(crate) worker_id: Name,
    reports: Framed<UnixStream, LinesCodec>,
    heartbeat: Interval,
}

impl ArmedHook {
    /// Has the hook at `stream` arm the lines in `payload`, one line of JSON, if `request` means it.
    ///
    /// # Errors
    /// [`OtherWorker`], or why it does not.
    pub(crate) async fn arm(
        stream: UnixStream,
        request: &ArmRequest<'_>,
        payload: &str,
    ) -> Result<Result<Self, OtherWorker>, NoAnswer> {
        let mut hook = Framed::new(stream, LinesCodec::new_with_max_length(MAX_REPORT_BYTES));
        // Strings only: this cannot fail.
        let request = serde_json::to_string(request).unwrap_or_default();
        send(&mut hook, &request).await?;
        let answer = timeout(ANSWER_TIMEOUT, hook.next()).await;
        let answer = answer.map_err(|_| NoAnswer::Silent)?;
        let answer = answer.ok_or(NoAnswer::Closed)?.map_err(|_| invalid())?;
        match serde_json::from_str(&answer).map_err(|_| invalid())? {
            Answer {
                ready: true,
                worker_id: Some(worker_id),
                ..
            } => {
                send(&mut hook, payload).await?;
                let mut heartbeat = interval(HEARTBEAT_INTERVAL);
                heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
                Ok(Ok(Self {
                    worker_id,
                    reports: hook,
                    heartbeat,
                }))
            }
            Answer {
                other_worker: true, ..
            } => Ok(Err(OtherWorker)),
            _ => {
                let failed: Failed = serde_json::from_str(&answer).map_err(|_| invalid())?;
                Err(failed.into())
            }
        }
    }

    /// Returns its next report, and keeps the lease alive while it waits. `None`: the hook has closed the connection,
    /// or broken the protocol.
    pub(crate) async fn next(&mut self) -> Option<WorkerReport> {
        loop {
            tokio::select! {
                report = self.reports.next() => {
                    let line = report?.ok()?;
                    return read(&line).ok();
                }
                _ = self.heartbeat.tick() => send(&mut self.reports, "").await.ok()?,
            }
        }
    }
}

async fn send(hook: &mut Framed<UnixStream, LinesCodec>, line: &str) -> Result<(), NoAnswer> {
    let stream = hook.get_mut();
    let sending = async {
        stream.write_all(line.as_bytes()).await?;
        stream.write_all(b"\n").await
    };
    match timeout(SEND_TIMEOUT, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) if why.kind() == io::ErrorKind::BrokenPipe => Err(NoAnswer::Closed),
        Ok(Err(why)) => Err(NoAnswer::Broken(why)),
        Err(_) => Err(NoAnswer::Silent),
    }
}

fn invalid() -> NoAnswer {
    NoAnswer::Refused("the worker's hook sent an invalid answer".to_owned())
}
