//! Ray as the relay sees it: its head over HTTP, and from that the list of what waits; and its jobs.

pub mod head;
pub mod jobs;
pub mod registry;
