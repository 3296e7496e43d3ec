//! A private virtual environment with Ray and debugpy, made once and reused.
//!
//! Called by the demo and by the tests. Invariant: a directory whose marker file holds exactly the
//! requirements is finished; anything else is made anew, by one process at a time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Command;

use super::progress::{Progress, Step};

/// Written last, with one requirement a line.
const MARKER: &str = ".installed";
/// Interpreters to try, in this order.
const PYTHONS: &[&str] = &[
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.10",
    "python3.9",
];
/// A download of some 100 MB over a slow line still fits.
const INSTALL_DEADLINE: Duration = Duration::from_secs(30 * 60);
/// `python -m venv` copies pip; it takes seconds.
const CREATE_DEADLINE: Duration = Duration::from_secs(120);
/// Lines of a failed command that are shown.
const KEPT_LINES: usize = 8;

/// Why there is no environment. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum VenvError {
    /// No interpreter.
    #[error("no python3 was found on PATH; install Python {} to 3.13, for example with `apt install python3 python3-venv` or `brew install python@3.12`", .oldest)]
    NoPython {
        /// Lowest usable version, e.g. `3.9`.
        oldest: &'static str,
    },
    /// None of those found fits.
    #[error(
        "Ray {ray} does not run on {found}; install {wanted} and have it on PATH (it may stand beside the other one, as python3.X)"
    )]
    UnsupportedPython {
        /// Ray version asked for.
        ray: String,
        /// Interpreters found, e.g. `Python 3.6`.
        found: String,
        /// What would do, e.g. `Python 3.9 to 3.11`.
        wanted: String,
    },
    /// Debian and Ubuntu leave it out.
    #[error(
        "{python} cannot make virtual environments; on Debian or Ubuntu run `apt install python3-venv`. It said: {said}"
    )]
    NoVenvModule {
        /// The interpreter.
        python: PathBuf,
        /// Its last lines.
        said: String,
    },
    /// pip could not reach the package index.
    #[error(
        "pip cannot reach the package index; check the network, or set PIP_INDEX_URL to a mirror that can be reached. It said: {said}"
    )]
    NoNetwork {
        /// pip's last lines.
        said: String,
    },
    /// The index has no such Ray for this Python and machine.
    #[error(
        "there is no Ray {ray} for Python {python} on this machine; choose another with --ray-version, or put another Python (3.10 to 3.12 fit most) first on PATH. pip said: {said}"
    )]
    NoRelease {
        /// Ray version asked for.
        ray: String,
        /// Version of the interpreter.
        python: String,
        /// pip's last lines.
        said: String,
    },
    /// Anything else that pip or venv died of.
    #[error(
        "`{command}` failed; mend what it complains about, or delete the directory and try again. It said: {said}"
    )]
    Command {
        /// What was run.
        command: String,
        /// Its last lines.
        said: String,
    },
    /// A file or directory.
    #[error("cannot {what} {path}: {source}; choose another directory with --dir", path = .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// A finished environment.
#[derive(Debug, Clone)]
pub struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// The environment in `dir` if it is there, whoever made it: an interpreter, Ray, and the
    /// marker of a finished installation. The marker's text is not compared.
    pub fn existing(dir: &Path) -> Option<Self> {
        let venv = Self {
            dir: dir.to_path_buf(),
        };
        (venv.python().exists() && venv.ray().exists() && dir.join(MARKER).exists()).then_some(venv)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.dir.join("bin/python")
    }

    /// Its `ray` command.
    pub fn ray(&self) -> PathBuf {
        self.dir.join("bin/ray")
    }
}

/// An interpreter on PATH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// Where it is.
    pub path: PathBuf,
    /// `(3, 11)`.
    pub version: (u32, u32),
}

/// Python versions that run Ray `ray`, from the classifiers of its wheels where that is known to
/// matter; newer limits are left to pip, which knows them better.
pub fn supported_pythons(ray: &str) -> std::ops::RangeInclusive<(u32, u32)> {
    match major_minor(ray) {
        (2, minor) if minor <= 9 => (3, 8)..=(3, 11),
        (2, minor) if minor <= 43 => (3, 9)..=(3, 12),
        (2, minor) if minor <= 50 => (3, 9)..=(3, 13),
        _ => (3, 10)..=(3, 14),
    }
}

/// `(2, 60)` of `2.60.0`; what cannot be read counts as newest.
pub fn major_minor(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (u32::MAX, 0),
    }
}

/// The first interpreter on PATH that runs Ray `ray`.
///
/// # Errors
/// [`VenvError::NoPython`], [`VenvError::UnsupportedPython`].
pub async fn find_python(ray: &str) -> Result<Python, VenvError> {
    let wanted = supported_pythons(ray);
    let mut found = Vec::new();
    for name in PYTHONS {
        let Some(python) = probe_python(name).await else {
            continue;
        };
        if wanted.contains(&python.version) {
            return Ok(python);
        }
        found.push(format!("Python {}.{}", python.version.0, python.version.1));
    }
    if found.is_empty() {
        return Err(VenvError::NoPython { oldest: "3.9" });
    }
    found.dedup();
    let ((_, low), (_, high)) = (wanted.start(), wanted.end());
    Err(VenvError::UnsupportedPython {
        ray: ray.to_owned(),
        found: found.join(", "),
        wanted: format!("Python 3.{low} to 3.{high}"),
    })
}

async fn probe_python(name: &str) -> Option<Python> {
    let probe = "import sys; print(*sys.version_info[:2], sys.executable)";
    let output = Command::new(name)
        .args(["-c", probe])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(20), output)
        .await
        .ok()?
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut words = text.trim().splitn(3, ' ');
    let version = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let path = PathBuf::from(words.next()?);
    Some(Python { path, version })
}

/// The environment in `dir` with `requirements` installed, made if need be. `ray` is the version
/// among them, for choosing the interpreter and for messages. Where another process is making it,
/// waits for that one. Dropping the future ends the installation; it is begun anew next time.
///
/// # Errors
/// [`VenvError`].
pub async fn prepare(
    dir: &Path,
    ray: &str,
    requirements: &[String],
    progress: &Progress,
) -> Result<Venv, VenvError> {
    let venv = Venv {
        dir: dir.to_path_buf(),
    };
    let wanted = requirements.join("\n") + "\n";
    if finished(&venv, &wanted) {
        progress.say(format_args!("Ray {ray} is ready in {}", venv.dir.display()));
        return Ok(venv);
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
    }
    let _lock = lock(dir, progress).await?;
    if finished(&venv, &wanted) {
        return Ok(venv);
    }
    let python = find_python(ray).await?;
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
    fs::write(&marker, wanted).map_err(failed("write", &marker))?;
    Ok(venv)
}

fn finished(venv: &Venv, wanted: &str) -> bool {
    venv.python().exists()
        && venv.ray().exists()
        && fs::read_to_string(venv.dir.join(MARKER)).is_ok_and(|marker| marker == wanted)
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VenvError {
    let path = path.to_path_buf();
    move |source| VenvError::Io { what, path, source }
}

/// Held until dropped; the system lets go of it when the process dies, however it dies.
async fn lock(dir: &Path, progress: &Progress) -> Result<File, VenvError> {
    let mut path = dir.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let file = File::create(&path).map_err(failed("create", &path))?;
    let mut waiting: Option<Step<'_>> = None;
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

async fn create(venv: &Venv, python: &Python, progress: &Progress) -> Result<(), VenvError> {
    let (major, minor) = python.version;
    let mut step = progress.step(format_args!(
        "making a virtual environment (Python {major}.{minor}) in {}",
        venv.dir.display()
    ));
    let mut command = Command::new(&python.path);
    command.args(["-m", "venv"]).arg(&venv.dir);
    match run(command, CREATE_DEADLINE, &mut step, |_| false).await {
        Ok(()) => {
            step.done("made");
            Ok(())
        }
        Err(said) => {
            // A directory without pip would be mistaken for somebody's own next time.
            let _ = fs::remove_dir_all(&venv.dir);
            let lacking = said.contains("ensurepip") || said.contains("No module named venv");
            Err(if lacking {
                VenvError::NoVenvModule {
                    python: python.path.clone(),
                    said,
                }
            } else {
                VenvError::Command {
                    command: format!("{} -m venv", python.path.display()),
                    said,
                }
            })
        }
    }
}

async fn install(
    venv: &Venv,
    python: &Python,
    ray: &str,
    requirements: &[String],
    progress: &Progress,
) -> Result<(), VenvError> {
    let mut step = progress.step(format_args!(
        "installing {} (some 100 MB the first time)",
        requirements.join(" ")
    ));
    let mut command = Command::new(venv.python());
    command
        .args(["-m", "pip", "install", "--disable-pip-version-check"])
        .args(["--no-input", "--progress-bar", "off"])
        .args(requirements);
    // Of some fifty packages, those whose download takes time.
    let telling = |line: &str| line.ends_with(" MB)") || line.starts_with("Installing");
    match run(command, INSTALL_DEADLINE, &mut step, telling).await {
        Ok(()) => {
            step.done("installed");
            Ok(())
        }
        Err(said) => Err(why_pip_failed(said, ray, python)),
    }
}

fn why_pip_failed(said: String, ray: &str, python: &Python) -> VenvError {
    // An index that cannot be reached also ends in "No matching distribution", so look for the
    // network first.
    let offline = [
        "Failed to establish a new connection",
        "Temporary failure in name resolution",
        "ProxyError",
        "ConnectTimeout",
        "Connection refused",
        "NewConnectionError",
        "NameResolutionError",
    ];
    if offline.iter().any(|sign| said.contains(sign)) {
        VenvError::NoNetwork { said }
    } else if said.contains("No matching distribution found for ray") {
        VenvError::NoRelease {
            ray: ray.to_owned(),
            python: format!("{}.{}", python.version.0, python.version.1),
            said,
        }
    } else {
        VenvError::Command {
            command: "pip install".to_owned(),
            said,
        }
    }
}

/// Runs to the end, showing the lines that are `telling`. `Err` holds its last lines.
async fn run(
    mut command: Command,
    deadline: Duration,
    step: &mut Step<'_>,
    telling: impl Fn(&str) -> bool,
) -> Result<(), String> {
    // A group of its own: Ctrl-C in the terminal is for this process, which then ends its children.
    let mut child = command
        .env_remove("PYTHONHOME")
        .env_remove("PYTHONPATH")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut out = lines(child.stdout.take());
    let mut err = lines(child.stderr.take());
    let mut kept: VecDeque<String> = VecDeque::new();
    let end = tokio::time::Instant::now() + deadline;
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let line = tokio::select! {
            line = out.next_line(), if out_open => line.inspect(|l| out_open = l.is_some()),
            line = err.next_line(), if err_open => line.inspect(|l| err_open = l.is_some()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                let seconds = step.elapsed().as_secs();
                step.pulse(|| format!("still at it after {seconds} s"));
                Ok(Some(String::new()))
            }
            () = tokio::time::sleep_until(end) => {
                return Err(format!("no end after {} s", deadline.as_secs()));
            }
        };
        let Ok(Some(line)) = line else {
            if line.is_err() {
                break;
            }
            continue;
        };
        let line = line.trim();
        if telling(line) {
            step.note(line.chars().take(100).collect::<String>());
        }
        if !line.is_empty() {
            kept.push_back(line.chars().take(400).collect());
            if kept.len() > KEPT_LINES {
                kept.pop_front();
            }
        }
    }
    match tokio::time::timeout_at(end, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{status}\n{}", Vec::from(kept).join("\n"))),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no end after {} s", deadline.as_secs())),
    }
}

type Lines = tokio::io::Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>;

fn lines(pipe: Option<impl AsyncRead + Send + Unpin + 'static>) -> Lines {
    let pipe: Box<dyn AsyncRead + Send + Unpin> = match pipe {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::empty()),
    };
    BufReader::new(pipe).lines()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_number() {
        assert_eq!(major_minor("2.9.3"), (2, 9));
        assert_eq!(major_minor("2.60.0"), (2, 60));
        assert!(!supported_pythons("2.9.3").contains(&(3, 12)));
        assert!(supported_pythons("2.60.0").contains(&(3, 12)));
        assert!(supported_pythons("nightly").contains(&(3, 12)));
    }

    #[test]
    fn pip_failures_are_told_apart() {
        let python = Python {
            path: "python3".into(),
            version: (3, 11),
        };
        let offline =
            "Failed to establish a new connection\nNo matching distribution found for ray";
        assert!(matches!(
            why_pip_failed(offline.into(), "2.60.0", &python),
            VenvError::NoNetwork { .. }
        ));
        let absent = "ERROR: No matching distribution found for ray[default]==9.9";
        let error = why_pip_failed(absent.into(), "9.9", &python);
        assert!(matches!(error, VenvError::NoRelease { .. }));
        assert!(error.to_string().contains("--ray-version"));
    }

    #[tokio::test]
    async fn a_finished_environment_is_reused_and_another_is_not() {
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
        let progress = Progress::new("test");
        let again = prepare(dir.path(), "2.60.0", &["ray".to_owned()], &progress).await;
        assert_eq!(again.unwrap().python(), bin.join("python"));
        assert!(!finished(&venv, "ray\ndebugpy\n"));
    }
}
