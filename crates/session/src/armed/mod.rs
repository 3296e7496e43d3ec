//! Armed lines: log messages of a line, and stops on it, in all workers of a running job.
//!
//! A [`JobLease`] arms lines through the agents of the cluster's nodes for as long as it exists. What reaches the line,
//! and how often, comes back as [`LeaseEvent`]s. A task that stops there waits at a breakpoint like any other.

mod job;
mod lease;
mod node;

pub use self::job::{WholeJob, live_jobs};
pub use self::lease::{JobLease, LeaseEnd, LeaseEvent, MAX_STOPPED_TASKS};
