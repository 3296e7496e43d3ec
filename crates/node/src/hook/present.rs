//! Finds the workers of this machine that have the hook, by their sockets, without a request to them.

use std::io;
use std::path::Path;

use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::connect_in;
use crate::verifier::TargetVerifier;

const MAX_WORKERS: usize = 4096;

/// Names in a folder that are checked. Workers that were killed leave theirs behind.
const MAX_NAMES: usize = 1 << 16;

/// Returns the workers that have the hook, by their own pids. `None`: the scan was not done in time.
pub(crate) async fn present(verifier: &TargetVerifier, deadline: Instant) -> Option<Vec<u32>> {
    timeout_at(deadline, all(verifier)).await.ok()
}

async fn all(verifier: &TargetVerifier) -> Vec<u32> {
    let mut found = Vec::new();
    for session in verifier.sessions().await {
        let folder = session.folder.clone();
        let named = tokio::task::spawn_blocking(move || named(&folder)).await;
        for number in named.ok().and_then(Result::ok).unwrap_or_default() {
            if found.len() >= MAX_WORKERS {
                return found;
            }
            // A worker that holds the GIL connects as well: the kernel accepts for it.
            let Ok(stream) = connect_in(&session.folder, number).await else {
                continue;
            };
            if is_hook_of(verifier, &stream, number).await {
                found.push(number);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether the worker with the own pid `number` has the other end: every user may create a socket there.
async fn is_hook_of(verifier: &TargetVerifier, stream: &UnixStream, number: u32) -> bool {
    let Ok(peer) = stream.peer_cred() else {
        return false;
    };
    match peer.pid().and_then(|pid| u32::try_from(pid).ok()) {
        Some(pid) => verifier.worker(pid, peer.uid()).await == Some(number),
        None => false,
    }
}

/// Returns the numbers in the names of hook sockets, whichever process owns them. Blocks.
fn named(folder: &Path) -> io::Result<Vec<u32>> {
    let names = std::fs::read_dir(folder)?.flatten().take(MAX_NAMES);
    let number = |name: std::ffi::OsString| {
        let digits = name.to_str()?.strip_prefix("ray-relay-")?;
        digits.parse().ok()
    };
    Ok(names
        .filter_map(|entry| number(entry.file_name()))
        .collect())
}
