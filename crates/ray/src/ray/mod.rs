//! Ray from the relay's view: its head over HTTP, and from that the list of waiting tasks; its jobs; and snapshots of
//! its processes.

pub mod dump;
pub mod head;
pub mod jobs;
pub mod look;
pub mod pause_clock;
pub mod registry;
pub mod task_end;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
