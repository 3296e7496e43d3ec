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
    // It was 13,200 and 18,800 bytes when every stage had its own space.
    assert!(size_of_val(&serving) <= 1832, "{}", size_of_val(&serving));
    // 24 bytes for a pending pause, 24 for requests of the cluster session, 64 for the position of a direction in a value and
    // the length of its turns, 24 for how long others wait for the task,
    // 8 for the time subprocesses may wait, 8 for whether the end of the task was reported,
    // 16 for the hidden parts of values, 24 for expressions that can be cancelled, and 40 for the names of the job.
    let relaying = size_of::<ActiveSession<'_, TcpStream>>();
    assert!(relaying <= 2072, "{relaying}");
}
