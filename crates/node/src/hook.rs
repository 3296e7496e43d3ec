//! Client of a worker's hook (`ray_relay.setup`), at its Unix socket in Ray's session folder.
//!
//! Every user of the node may create files in that folder, so its content is not trusted: the owner of the socket is
//! verified by its process credentials before anything is sent.

use std::io;
use std::path::Path;

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::door::{directory, inside};
use super::processes::Resident;
use ray_relay_ray::ray::look::MAX_INSPECTION_BYTES;

mod answer;
mod arm;
mod present;

use self::answer::Failed;
pub(super) use self::answer::NoAnswer;
pub(super) use self::arm::{ArmRequest, ArmedHook, OtherWorker};
pub(super) use self::present::{NamedSocket, present, sockets};

/// The request to a hook, in one line.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    #[serde(rename = "do")]
    pub(super) what: &'static str,
    pub(super) evaluate: bool,
    pub(super) worker_id: &'a str,
}

/// Sends `request` to the hook of `worker`, which has the own pid `number`, and returns the answer.
///
/// # Errors
/// [`NoAnswer`].
pub(super) async fn ask(
    worker: &Resident,
    number: u32,
    request: &Request<'_>,
    deadline: Instant,
) -> Result<Vec<u8>, NoAnswer> {
    let exchange = async {
        let mut stream = connect(worker, number).await?;
        // Names and constants only: this cannot fail.
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        stream.write_all(&line).await.map_err(NoAnswer::Broken)?;
        let mut answer = Vec::new();
        let limit = MAX_INSPECTION_BYTES as u64 + 1;
        let read = stream.take(limit).read_to_end(&mut answer).await;
        match read {
            Ok(1..) => Ok(answer),
            Ok(0) | Err(_) => Err(NoAnswer::Closed),
        }
    };
    let answer = timeout_at(deadline, exchange).await;
    let answer = answer.unwrap_or_else(|_| Err(silent(worker.pid)))?;
    match serde_json::from_slice::<Failed>(&answer) {
        Ok(failed) => Err(failed.into()),
        Err(_) => Ok(answer),
    }
}

/// Why the process `pid` does not answer.
fn silent(pid: u32) -> NoAnswer {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name is in parentheses, and may contain some.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    match state {
        Some('T') => NoAnswer::Stopped,
        _ => NoAnswer::Silent,
    }
}

/// Connects to `worker` through the first of its folders that has its socket.
async fn connect(worker: &Resident, number: u32) -> Result<UnixStream, NoAnswer> {
    let mut why = NoAnswer::Absent;
    for folder in &worker.folders {
        let stream = match connect_in(folder, number).await {
            Ok(stream) => stream,
            Err(error) => {
                match error.kind() {
                    // There is no such socket, or it is stale, or the agent cannot see the folder.
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                    // The socket's queue is full.
                    io::ErrorKind::WouldBlock => why = silent(worker.pid),
                    _ if matches!(why, NoAnswer::Absent) => why = NoAnswer::Broken(error),
                    _ => {}
                }
                continue;
            }
        };
        let peer = stream.peer_cred().map_err(NoAnswer::Broken)?;
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        match pid == Some(worker.pid) && peer.uid() == worker.uid {
            true => return Ok(stream),
            false => why = NoAnswer::OtherOwner(peer.uid()),
        }
    }
    Err(why)
}

async fn connect_in(folder: &Path, number: u32) -> io::Result<UnixStream> {
    let folder = directory(folder)?;
    UnixStream::connect(inside(&folder, &format!("ray-relay-{number}"))).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests;
