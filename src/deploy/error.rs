//! Why a deployment failed, or is incomplete.

use std::io;
use std::path::PathBuf;

use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::head::{HeadConfigError, HeadError};

/// Why a deployment failed. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The cluster gave no usable answer.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The cluster's address or token is invalid.
    #[error(transparent)]
    Address(#[from] HeadConfigError),
    /// A file cannot be read.
    #[error("cannot read {file}: {cause}", file = replaced(&.file.display().to_string()))]
    File {
        /// Its path.
        file: PathBuf,
        /// The operating system's error message.
        cause: io::Error,
    },
    /// A file has the wrong content.
    #[error("{file}: {what}", file = replaced(&.file.display().to_string()))]
    Content {
        /// Its path.
        file: PathBuf,
        /// The problem, and the solution.
        what: &'static str,
    },
    /// Agents would send their token in clear text.
    #[error(
        "the agents would send their token to {0} in clear text: use https, or, on a private network, give --allow-plaintext"
    )]
    InClear(String),
    /// The running program cannot run on a Ray node.
    #[error(
        "deploy puts the running program on the cluster's nodes, which are Linux: run it on Linux"
    )]
    NotLinux,
    /// A sealed text cannot be opened.
    #[error("the sealed credential is for another recipient, or was damaged on its way")]
    Seal,
    /// A process on the cluster lost the one that it talks to.
    #[error("cannot talk to the process that started this one: {0}")]
    Pipe(io::Error),
    /// A deployment of that name is running.
    #[error(
        "{name} runs already (job {id}, relay: {relays}), and its sessions would end: `ray-relay deploy --status` shows it, \
         --replace ends it first, and --name gives yours another name"
    )]
    Runs {
        /// Its name.
        name: String,
        /// Submission id.
        id: String,
        /// The relays that its agents dial.
        relays: String,
    },
    /// The driver's job ended, or did not start.
    #[error("the job {id} on the cluster {what}. It said:\n{output}")]
    Job {
        /// Submission id.
        id: String,
        /// The event, as the end of a sentence.
        what: String,
        /// End of its output.
        output: String,
    },
    /// The deployment is incomplete; the printed rows show where.
    #[error("{0}")]
    Incomplete(String),
    /// Standard output cannot be written to.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}
