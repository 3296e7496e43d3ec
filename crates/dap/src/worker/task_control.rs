//! The task of a session: its paused threads, and what its debugger was asked to do with it.

use super::location_search::LocationSearch;
use super::pausing::Pausing;
use ray_relay_base::wire::dap::stopped_threads::StoppedThreads;

/// The task of a session, as far as its client and the cluster session control it.
pub(super) struct TaskControl {
    /// The paused threads, as reported to the client.
    pub(super) threads: StoppedThreads,
    /// Pending pause.
    pub(super) pausing: Pausing,
    /// Whether it was last resumed or paused for the session's own client, and not for the lead's.
    pub(super) runs_for_client: bool,
    /// Whether the process was asked for its rank, for a breakpoint that needs it.
    pub(super) rank_requested: bool,
    /// Whether the client was notified that a task of the worker has ended.
    pub(super) end_notified: bool,
    /// Stack traces still to be inspected for the program's location.
    pub(super) location: LocationSearch,
}

impl TaskControl {
    /// The task with these `threads`; `pauses`: it runs, and must be paused.
    pub(super) fn new(threads: StoppedThreads, pauses: bool) -> Box<Self> {
        Box::new(Self {
            threads,
            pausing: Pausing::attached(pauses),
            runs_for_client: false,
            rank_requested: false,
            end_notified: false,
            location: LocationSearch::default(),
        })
    }

    /// The message of the last stop of a paused thread.
    pub(super) fn last_stop(&self) -> Option<Vec<u8>> {
        self.threads.last().map(<[u8]>::to_vec)
    }
}
