//! Which workers of this machine have the hook, by their sockets: nothing is asked of them.

use std::io;
use std::path::Path;

use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::connect_in;
use crate::look::TargetVerifier;

const MAX_WORKERS: usize = 4096;

/// Names in a folder that are looked at. Workers that were killed leave theirs behind.
const MAX_NAMES: usize = 1 << 16;

/// The workers that have one, by the numbers by which they call themselves; `None`: that is not known until then.
pub(crate) async fn present(look: &TargetVerifier, until: Instant) -> Option<Vec<u32>> {
    timeout_at(until, all(look)).await.ok()
}

async fn all(look: &TargetVerifier) -> Vec<u32> {
    let mut found = Vec::new();
    for session in look.sessions().await {
        let folder = session.folder.clone();
        let named = tokio::task::spawn_blocking(move || named(&folder)).await;
        for number in named.ok().and_then(Result::ok).unwrap_or_default() {
            if found.len() >= MAX_WORKERS {
                return found;
            }
            // One that holds Python's lock takes the connection as well: the system does that.
            let Ok(stream) = connect_in(&session.folder, number).await else {
                continue;
            };
            if is_its(look, &stream, number).await {
                found.push(number);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether the worker that calls itself `number` has the other end: everybody may put a socket there.
async fn is_its(look: &TargetVerifier, stream: &UnixStream, number: u32) -> bool {
    let Ok(peer) = stream.peer_cred() else {
        return false;
    };
    match peer.pid().and_then(|pid| u32::try_from(pid).ok()) {
        Some(pid) => look.worker(pid, peer.uid()).await == Some(number),
        None => false,
    }
}

/// The numbers in the names of hooks' sockets, whichever process has them. It blocks.
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
