//! A private virtual environment with Ray and debugpy, made once and reused.
//!
//! Called by the demo and by the tests. Invariant: an environment is complete if its marker file contains exactly the
//! requirements. Any other is recreated, by one process at a time.

mod error;
mod install;
mod python;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

pub use self::error::VenvError;
use self::install::{INSTALL_DEADLINE, create, install};
pub use self::python::{Python, find_python, major_minor, supported_pythons};
use ray_relay_access::telemetry::progress::{PreparationClock, ProgressStep};

/// Written last, with one requirement a line.
const MARKER: &str = ".installed";
/// A complete virtual environment.
#[derive(Debug, Clone)]
pub struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// Returns the environment in `dir` if it exists, however it was created: an interpreter, Ray, and the marker of a
    /// finished installation. The marker's text is not compared.
    pub fn existing(dir: &Path) -> Option<Self> {
        let venv = Self {
            dir: dir.to_path_buf(),
        };
        (venv.python().exists() && venv.ray().exists() && dir.join(MARKER).exists()).then_some(venv)
    }

    /// The environment's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of the environment's interpreter.
    pub fn python(&self) -> PathBuf {
        self.dir.join("bin/python")
    }

    /// The path of its `ray` command.
    pub fn ray(&self) -> PathBuf {
        self.dir.join("bin/ray")
    }
}

/// Returns the environment in `dir` with `requirements`, creating it if needed. `ray` is the version among them, for
/// choosing the interpreter and for messages; the interpreter has at least the version `least`. If another process is
/// creating it, waits for that one. Dropping the future aborts the installation, which restarts next time.
///
/// # Errors
/// [`VenvError`].
pub async fn prepare(
    dir: &Path,
    ray: &str,
    least: (u32, u32),
    requirements: &[String],
    progress: &PreparationClock,
) -> Result<Venv, VenvError> {
    let venv = Venv {
        dir: dir.to_path_buf(),
    };
    let marker_text = requirements.join("\n") + "\n";
    if finished(&venv, &marker_text) {
        progress.say(format_args!("Ray {ray} is ready in {}", venv.dir.display()));
        return Ok(venv);
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
    }
    let _lock = lock(dir, progress).await?;
    if finished(&venv, &marker_text) {
        return Ok(venv);
    }
    let python = find_python(ray, least).await?;
    if dir.exists() {
        progress.say(format_args!(
            "{} is unfinished or outdated: making it anew",
            dir.display()
        ));
        fs::remove_dir_all(dir).map_err(failed("remove", dir))?;
    }
    create(&venv, &python, progress).await?;
    install(&venv, &python, ray, requirements, progress).await?;
    let marker = dir.join(MARKER);
    fs::write(&marker, marker_text).map_err(failed("write", &marker))?;
    Ok(venv)
}

fn finished(venv: &Venv, marker_text: &str) -> bool {
    venv.python().exists()
        && venv.ray().exists()
        && fs::read_to_string(venv.dir.join(MARKER)).is_ok_and(|marker| marker == marker_text)
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VenvError {
    let path = path.to_path_buf();
    move |source| VenvError::Io { what, path, source }
}

/// Locks the directory until dropped. The system releases the lock when the process dies.
async fn lock(dir: &Path, progress: &PreparationClock) -> Result<File, VenvError> {
    let mut path = dir.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let file = File::create(&path).map_err(failed("create", &path))?;
    let mut waiting: Option<ProgressStep<'_>> = None;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let step = waiting.get_or_insert_with(|| {
                    progress.step("another process is making this environment: waiting for it")
                });
                let seconds = step.elapsed().as_secs();
                if step.elapsed() > INSTALL_DEADLINE {
                    let source = io::Error::from(io::ErrorKind::TimedOut);
                    return Err(failed("lock", &path)(source));
                }
                step.pulse(|| format!("still waiting after {seconds} s"));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(failed("lock", &path)(error.into())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finished_environment_is_reused() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("python"), "").unwrap();
        fs::write(bin.join("ray"), "").unwrap();
        let venv = Venv {
            dir: dir.path().to_path_buf(),
        };
        assert!(!finished(&venv, "ray\n"));
        fs::write(dir.path().join(MARKER), "ray\n").unwrap();
        let progress = PreparationClock::new("test");
        let second = prepare(dir.path(), "2.60.0", (3, 0), &["ray".to_owned()], &progress).await;
        assert_eq!(second.unwrap().python(), bin.join("python"));
        assert!(!finished(&venv, "ray\ndebugpy\n"));
    }
}
