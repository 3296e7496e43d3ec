//! Why there is no environment.

use std::io;
use std::path::PathBuf;

/// Why there is no environment. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum VenvError {
    /// There is no Python interpreter.
    #[error(
        "no python3 was found on PATH; install {suitable}, for example with `apt install python3 python3-venv` or `brew install python@3.12`"
    )]
    NoPython {
        /// Suitable versions, e.g. `Python 3.10 to 3.14`.
        suitable: String,
    },
    /// None of the interpreters found runs that version of Ray.
    #[error(
        "Ray {ray} does not run on {found}; install {suitable} and have it on PATH (it may stand beside the other one, as python3.X)"
    )]
    UnsupportedPython {
        /// Requested version of Ray.
        ray: String,
        /// Interpreters found, e.g. `Python 3.6`.
        found: String,
        /// Suitable versions, e.g. `Python 3.9 to 3.11`.
        suitable: String,
    },
    /// The interpreter has no `venv` module, which Debian and Ubuntu leave out.
    #[error(
        "{python} cannot make virtual environments; on Debian or Ubuntu run `apt install python3-venv`. It said: {output}"
    )]
    NoVenvModule {
        /// The path of the interpreter.
        python: PathBuf,
        /// The last lines of its output.
        output: String,
    },
    /// pip could not reach the package index.
    #[error(
        "pip cannot reach the package index; check the network, or set PIP_INDEX_URL to a mirror that can be reached. It said: {output}"
    )]
    NoNetwork {
        /// The last lines of pip's output.
        output: String,
    },
    /// The index has no such Ray for this Python and machine.
    #[error(
        "there is no Ray {ray} for Python {python} on this machine; choose another with --ray-version, or put another Python (3.10 to 3.12 fit most) first on PATH. pip said: {output}"
    )]
    NoRelease {
        /// Requested version of Ray.
        ray: String,
        /// Version of the interpreter.
        python: String,
        /// The last lines of pip's output.
        output: String,
    },
    /// Any other failure of pip or venv.
    #[error(
        "`{command}` failed; mend what it complains about, or delete the directory and try again. It said: {output}"
    )]
    Command {
        /// The command that was run.
        command: String,
        /// The last lines of its output.
        output: String,
    },
    /// A file or directory cannot be created or used.
    #[error("cannot {what} {path}: {source}; choose another directory with --dir", path = .path.display())]
    Io {
        /// The failed action.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error message.
        source: io::Error,
    },
}
