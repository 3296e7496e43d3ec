//! A worker's hook (`ray_relay.setup`), at its Unix socket in Ray's session folder.
//!
//! Everybody on the node may put things into that folder. So nothing in it is believed: who has the socket is seen by the
//! credentials of its process, before a word is said.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::door::{directory, inside};
use super::processes::Resident;
use ray_relay_base::wire::text::one_line;
use ray_relay_ray::ray::look::MAX_INSPECTION_BYTES;

mod present;

pub(super) use self::present::present;

/// What a hook is asked, in one line.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    #[serde(rename = "do")]
    pub(super) what: &'static str,
    pub(super) evaluate: bool,
    pub(super) worker_id: &'a str,
}

/// Why a hook does not answer. `Display` is a sentence's beginning.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// There is none.
    #[error("the worker has no hook (`ray_relay.setup`)")]
    Absent,
    /// What listens there is not to be spoken to.
    #[error("the socket of the worker's hook belongs to another process, of the user {0}")]
    Anothers(u32),
    /// There is a hook, and nothing comes of it.
    #[error(
        "the worker's hook does not answer: what runs there keeps Python's lock (GIL), as C code can, or the process is stopped"
    )]
    Silent,
    /// It says why not.
    #[error("{0}")]
    Refused(String),
    /// The owner of the worker's job has forbidden it.
    #[error("{0}")]
    Forbidden(String),
    /// It broke off, as it does where its process ends.
    #[error("the worker's hook has broken off: the worker may just have ended")]
    Closed,
    /// It may not be spoken to, or breaks.
    #[error("the worker's hook cannot be reached ({0}); run the agent as the workers' user")]
    Broken(io::Error),
}

/// What it says where it does not do as it was asked.
#[derive(Deserialize)]
struct Failed {
    error: String,
    #[serde(default)]
    forbidden: bool,
}

/// What the hook of `worker`, which calls itself `number`, answers to `request` until then.
///
/// # Errors
/// [`NoAnswer`].
pub(super) async fn ask(
    worker: &Resident,
    number: u32,
    request: &Request<'_>,
    until: Instant,
) -> Result<Vec<u8>, NoAnswer> {
    let asking = async {
        let mut stream = connect(worker, number).await?;
        // Of names and constants: that does not fail.
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        stream.write_all(&line).await.map_err(NoAnswer::Broken)?;
        let mut answer = Vec::new();
        let most = MAX_INSPECTION_BYTES as u64 + 1;
        let read = stream.take(most).read_to_end(&mut answer).await;
        match read {
            Ok(1..) => Ok(answer),
            Ok(0) | Err(_) => Err(NoAnswer::Closed),
        }
    };
    let answer = timeout_at(until, asking).await;
    let answer = answer.unwrap_or(Err(NoAnswer::Silent))?;
    match serde_json::from_slice::<Failed>(&answer) {
        Ok(failed) => {
            let why = one_line(&failed.error);
            Err(match failed.forbidden {
                true => NoAnswer::Forbidden(why),
                false => NoAnswer::Refused(why),
            })
        }
        Err(_) => Ok(answer),
    }
}

/// A connection with `worker`, whichever of its folders has it.
async fn connect(worker: &Resident, number: u32) -> Result<UnixStream, NoAnswer> {
    let mut why = NoAnswer::Absent;
    for folder in &worker.folders {
        let stream = match connect_in(folder, number).await {
            Ok(stream) => stream,
            Err(error) => {
                match error.kind() {
                    // Where no process has such a socket, or none any more; where the agent does not see the folder.
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                    // So many wait already.
                    io::ErrorKind::WouldBlock => why = NoAnswer::Silent,
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
            false => why = NoAnswer::Anothers(peer.uid()),
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
