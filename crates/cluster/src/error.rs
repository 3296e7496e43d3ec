//! Why a cluster could not start.

use std::io;

use ray_relay_base::wire::tcp::FREE_PORTS;

use crate::bounds::UP_DEADLINE;
use ray_relay_ray::ray::head::HeadConfigError;

/// Why a cluster could not start. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file or directory cannot be created or used.
    #[error("cannot {what}: {source}; is there room in {dir}, and may this user write there?")]
    Io {
        /// The failed action.
        what: &'static str,
        /// The cluster's directory.
        dir: String,
        /// The operating system's error message.
        source: io::Error,
    },
    /// No port of the range is free.
    #[error("no free port between {} and {} on 127.0.0.1; end what uses them", FREE_PORTS.start, FREE_PORTS.end)]
    NoPort,
    /// `ray start` ended.
    #[error("`ray start` of node {node} ended ({status}); its last lines:\n{output}")]
    Exited {
        /// `head` or `w1`.
        node: String,
        /// Exit status of the node's process.
        status: String,
        /// End of its log.
        output: String,
    },
    /// The head's address is invalid.
    #[error(transparent)]
    Address(#[from] HeadConfigError),
    /// Not all nodes came up.
    #[error("only {alive} of {expected} Ray nodes were alive after {} s; close what keeps this machine busy, or try --nodes 1. The head said:\n{output}", UP_DEADLINE.as_secs())]
    Late {
        /// Number of nodes that were alive.
        alive: usize,
        /// Number of nodes that were started.
        expected: usize,
        /// End of the head's log.
        output: String,
    },
}

impl ClusterError {
    /// Whether Ray itself gave up on a node that took more than 30 s (hard-coded, up to 2.60).
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::Exited { output, .. } if output.contains("timed out during startup"))
    }
}
