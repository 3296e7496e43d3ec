//! Finds the workers of this machine that have the hook, by their sockets, without a request to them.

use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

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
        for socket in sockets(session.folder).await {
            if found.len() >= MAX_WORKERS {
                return found;
            }
            // A worker that holds the GIL connects as well: the kernel accepts for it.
            if socket.connect(verifier).await.is_some() {
                found.push(socket.number);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A socket in a session's folder that is called like a hook's, whichever process owns it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NamedSocket {
    folder: PathBuf,
    /// The own pid of the worker that it is called after.
    pub(crate) number: u32,
    /// Distinguishes it from the socket of a later process with that pid.
    inode: u64,
}

impl NamedSocket {
    /// Connects to it. `None`: nothing listens there, or another process than that worker: every user may create a
    /// socket there.
    pub(crate) async fn connect(&self, verifier: &TargetVerifier) -> Option<UnixStream> {
        let stream = connect_in(&self.folder, self.number).await.ok()?;
        let peer = stream.peer_cred().ok()?;
        let pid = u32::try_from(peer.pid()?).ok()?;
        let worker = verifier.worker(pid, peer.uid()).await;
        (worker == Some(self.number)).then_some(stream)
    }
}

/// Returns the sockets in `folder` that are called like a hook's.
pub(crate) async fn sockets(folder: PathBuf) -> Vec<NamedSocket> {
    let named = tokio::task::spawn_blocking(move || named(&folder)).await;
    named.ok().and_then(Result::ok).unwrap_or_default()
}

/// Blocks.
fn named(folder: &Path) -> io::Result<Vec<NamedSocket>> {
    let entries = std::fs::read_dir(folder)?.flatten().take(MAX_NAMES);
    let socket = |entry: DirEntry| {
        let name = entry.file_name();
        let digits = name.to_str()?.strip_prefix("ray-relay-")?;
        Some(NamedSocket {
            folder: folder.to_owned(),
            number: digits.parse().ok()?,
            inode: entry.ino(),
        })
    };
    Ok(entries.filter_map(socket).collect())
}
