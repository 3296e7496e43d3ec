//! Ray as the relay sees it: its head over HTTP, and from that the list of what waits.

pub mod head;
pub mod registry;
