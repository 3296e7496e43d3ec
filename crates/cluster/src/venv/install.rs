//! Runs `python -m venv` and pip, shows their output, and interprets their failures.
//!
//! Called by [`super::prepare`]. Invariant: each command ends with the future that runs it.

use std::collections::VecDeque;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Command;

use super::python::Python;
use super::{Venv, VenvError};
use ray_relay_access::telemetry::progress::{PreparationClock, ProgressStep};

/// Fits a download of some 100 MB over a slow line.
pub(crate) const INSTALL_DEADLINE: Duration = Duration::from_secs(30 * 60);
/// `python -m venv` copies pip; it takes seconds.
const CREATE_DEADLINE: Duration = Duration::from_secs(120);
/// Number of output lines shown of a failed command.
const MAX_LAST_LINES: usize = 8;

pub(crate) async fn create(
    venv: &Venv,
    python: &Python,
    progress: &PreparationClock,
) -> Result<(), VenvError> {
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
        Err(output) => {
            // A directory without pip would be mistaken for the user's own next time.
            let _ = fs::remove_dir_all(&venv.dir);
            let lacking = output.contains("ensurepip") || output.contains("No module named venv");
            Err(if lacking {
                VenvError::NoVenvModule {
                    python: python.path.clone(),
                    output,
                }
            } else {
                VenvError::Command {
                    command: format!("{} -m venv", python.path.display()),
                    output,
                }
            })
        }
    }
}

pub(crate) async fn install(
    venv: &Venv,
    python: &Python,
    ray: &str,
    requirements: &[String],
    progress: &PreparationClock,
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
    // Of some fifty packages, only the large downloads are shown.
    let telling = |line: &str| line.ends_with(" MB)") || line.starts_with("Installing");
    match run(command, INSTALL_DEADLINE, &mut step, telling).await {
        Ok(()) => {
            step.done("installed");
            Ok(())
        }
        Err(output) => {
            let _ = fs::remove_dir_all(&venv.dir);
            Err(why_pip_failed(output, ray, python))
        }
    }
}

fn why_pip_failed(output: String, ray: &str, python: &Python) -> VenvError {
    // An unreachable index also ends in "No matching distribution", so check for network errors first.
    let offline = [
        "Failed to establish a new connection",
        "Temporary failure in name resolution",
        "ProxyError",
        "ConnectTimeout",
        "Connection refused",
        "NewConnectionError",
        "NameResolutionError",
    ];
    if offline.iter().any(|sign| output.contains(sign)) {
        VenvError::NoNetwork { output }
    } else if output.contains("No matching distribution found for ray") {
        VenvError::NoRelease {
            ray: ray.to_owned(),
            python: format!("{}.{}", python.version.0, python.version.1),
            output,
        }
    } else {
        VenvError::Command {
            command: "pip install".to_owned(),
            output,
        }
    }
}

/// Runs the command to its end, showing lines that are `telling`. `Err` holds its last lines.
async fn run(
    mut command: Command,
    deadline: Duration,
    step: &mut ProgressStep<'_>,
    telling: impl Fn(&str) -> bool,
) -> Result<(), String> {
    // In a group of its own: Ctrl-C in the terminal is for this process, which then ends its children.
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
    let mut last_lines: VecDeque<String> = VecDeque::new();
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
        // pip repeats a warning on each attempt; keep only the last.
        let again = |line: &str| line.starts_with("WARNING: Retrying");
        if again(line) && last_lines.back().is_some_and(|last| again(last)) {
            last_lines.pop_back();
        }
        if !line.is_empty() {
            last_lines.push_back(line.chars().take(400).collect());
            if last_lines.len() > MAX_LAST_LINES {
                last_lines.pop_front();
            }
        }
    }
    match tokio::time::timeout_at(end, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{status}\n{}", Vec::from(last_lines).join("\n"))),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no end after {} s", deadline.as_secs())),
    }
}

type InstallOutput = tokio::io::Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>;

fn lines(pipe: Option<impl AsyncRead + Send + Unpin + 'static>) -> InstallOutput {
    let pipe: Box<dyn AsyncRead + Send + Unpin> = match pipe {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::empty()),
    };
    BufReader::new(pipe).lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_failures_are_classified() {
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
}
