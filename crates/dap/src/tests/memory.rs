//! Memory of a session that runs for hours.

use std::mem::{size_of, size_of_val};

use super::*;
use crate::worker::ActiveSession;

#[tokio::test]
async fn session_future_stays_within_its_size_budget() {
    let context = context(|_| ());
    let (_client, accepted, peer) = connection().await;
    let session = context.sessions.table.open(&Summary::new(peer));
    let serving = serve(context, session, accepted, ConnectionInfo::plain(peer));
    // 13,200 and 18,800 bytes when there was room for every stage at once.
    assert!(size_of_val(&serving) <= 1832, "{}", size_of_val(&serving));
    // 24 of it for a task that runs and is to stop, 24 for what its cluster session asks, 64 for where in a value a direction is and
    // how long its turns are, 24 for the time that others wait for the task,
    // 8 for when subprocesses may wait, 8 for whether the end of the task was reported, and
    // 16 for what of values is hidden, and 24 for which expressions can be cancelled, 40 for the names of its job.
    let relaying = size_of::<ActiveSession<'_, TcpStream>>();
    assert!(relaying <= 2072, "{relaying}");
}
