//! Why the demo ended early.

use std::net::SocketAddr;

use crate::app;
use ray_relay_cluster::ClusterError;
use ray_relay_cluster::venv::VenvError;
use ray_relay_ray::ray::head::{HeadConfigError, HeadError};

/// Why the demo ended early. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The Ray version is too old.
    #[error(
        "Ray {0} has no debugger that this relay covers; take 2.9 or newer, or leave --ray-version out"
    )]
    TooOld(String),
    /// `--listen` names an address that other machines can reach.
    #[error(
        "the demo listens on this machine only, because it authenticates no client: give an address such as 127.0.0.1:5678, not {0}"
    )]
    NotLoopback(SocketAddr),
    /// There is no directory for Ray.
    #[error("no directory to install Ray in: HOME is not set; give one with --dir")]
    NoCacheDirectory,
    /// Ray could not be installed.
    #[error(transparent)]
    Venv(#[from] VenvError),
    /// Ray did not start.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The relay did not start, or stopped.
    #[error(transparent)]
    Relay(#[from] app::Error),
    /// The job could not be submitted.
    #[error("the sample job could not be submitted: {0}")]
    Submit(#[source] HeadError),
    /// The given cluster's address is invalid.
    #[error(transparent)]
    Address(#[from] HeadConfigError),
    /// The job ended, or did not stop at its breakpoints.
    #[error("{what}. The job said:\n{output}")]
    NoBreakpoints {
        /// The actual event: the job ended, or too few breakpoints appeared.
        what: String,
        /// End of the job's output.
        output: String,
    },
    /// The system refuses a file or a signal.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed action, as a verb with its object.
        what: &'static str,
        /// The operating system's error message.
        source: std::io::Error,
    },
    /// A signal came before everything was up.
    #[error("stopped before the demo was ready; nothing is left running")]
    Interrupted,
    /// A process did not die.
    #[error("these processes would not end: run `kill -9 {}`; one that the kernel holds goes when its disk or network answers", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))]
    Left(Vec<i32>),
}
