//! Helper processes on the cluster: `ray-relay deployed keep` next to the driver, `ray-relay deployed run` in each
//! actor.
//!
//! A secret file goes from the deployer to `keep`, and from there to each `run`, sealed for its reader. `run` puts it
//! into memory that only its own process can access, and then executes the agent, or the relay.

use std::io::{self, BufRead, Read as _, Write as _};

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::DeployError;
use super::sealed::{Recipient, seal};

/// Certificates and tokens take some kilobytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The hidden half of `deploy`.
#[derive(Debug, Clone, clap::Args)]
pub struct DeployedArgs {
    #[command(subcommand)]
    what: DeployedCommand,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum DeployedCommand {
    /// Keep what the deployer sealed, and seal it for the processes that need it
    Keep,
    /// Receive what is secret, and become `ray-relay` with these arguments; ends with the thread that started it
    Run {
        /// The command, and its flags
        #[arg(last = true, required = true, value_name = "ARGUMENT")]
        arguments: Vec<String>,
    },
}

/// A file for a process, with the flag that names it.
#[derive(Serialize, Deserialize)]
pub(super) struct File {
    pub(super) flag: String,
    pub(super) content: String,
}

impl Drop for File {
    fn drop(&mut self) {
        self.content.zeroize();
    }
}

/// All files that are secret, or belong to a secret one.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct SecretFiles {
    /// Files of an agent.
    pub(super) agent: Vec<File>,
    /// Files of a relay.
    pub(super) relay: Vec<File>,
}

impl SecretFiles {
    /// Serializes the files as JSON.
    pub(super) fn text(&self) -> Result<Zeroizing<Vec<u8>>, DeployError> {
        text(self)
    }
}

fn text(value: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, DeployError> {
    serde_json::to_vec(value)
        .map(Zeroizing::new)
        .map_err(|_| DeployError::Seal)
}

/// Runs `keep` or `run`.
///
/// # Errors
/// [`DeployError`].
pub fn run(args: DeployedArgs) -> Result<(), DeployError> {
    match args.what {
        DeployedCommand::Keep => keep(io::stdin().lock(), io::stdout().lock()),
        DeployedCommand::Run { arguments } => become_(&arguments),
    }
}

/// Prints its key, receives the sealed [`SecretFiles`], and answers each line `ROLE KEY` with the files for that
/// process. Ends with its input.
fn keep(mut input: impl BufRead, mut output: impl io::Write) -> Result<(), DeployError> {
    let recipient = Recipient::new()?;
    let mut answer = |line: &str| writeln!(output, "{line}").and_then(|()| output.flush());
    answer(&recipient.key()).map_err(DeployError::Pipe)?;
    let Some(sealed) = line(&mut input)? else {
        return Ok(());
    };
    let files = recipient.open(&sealed)?;
    let files: SecretFiles = serde_json::from_slice(&files).map_err(|_| DeployError::Seal)?;
    answer("kept").map_err(DeployError::Pipe)?;
    while let Some(request) = line(&mut input)? {
        let files = match request.split_once(' ') {
            Some(("agent", key)) => seal(key, &text(&files.agent)?)?,
            Some(("relay", key)) => seal(key, &text(&files.relay)?)?,
            _ => return Err(DeployError::Seal),
        };
        answer(&files).map_err(DeployError::Pipe)?;
    }
    Ok(())
}

/// Reads one line without its line ending; `None` at the end of `input`.
fn line(input: &mut impl BufRead) -> Result<Option<Zeroizing<String>>, DeployError> {
    let mut line = Zeroizing::new(String::new());
    input
        .take(MAX_LINE_BYTES)
        .read_line(&mut line)
        .map_err(DeployError::Pipe)?;
    Ok(line.pop().filter(|last| *last == '\n').map(|_| line))
}

/// Executes `ray-relay ARGUMENTS` in this process.
#[cfg(target_os = "linux")]
fn become_(arguments: &[String]) -> Result<(), DeployError> {
    use std::os::fd::AsFd as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use rustix::process::{Signal, set_parent_process_death_signal};

    // First, while the parent is sure to be alive: it still has to deliver the files.
    let with_parent = set_parent_process_death_signal(Some(Signal::TERM));
    with_parent.map_err(|error| DeployError::Pipe(error.into()))?;
    let recipient = Recipient::new()?;
    let mut output = io::stdout().lock();
    writeln!(output, "{}", recipient.key())
        .and_then(|()| output.flush())
        .map_err(DeployError::Pipe)?;
    let Some(sealed) = line(&mut io::stdin().lock())? else {
        return Ok(());
    };
    let files: Vec<File> =
        serde_json::from_slice(&recipient.open(&sealed)?).map_err(|_| DeployError::Seal)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ray-relay").args(arguments);
    let mut open_files = Vec::new();
    for file in &files {
        let (path, memory) = in_memory(&file.content).map_err(DeployError::Pipe)?;
        command.arg(&file.flag).arg(path);
        open_files.push(memory);
    }
    let log = io::stderr().as_fd().try_clone_to_owned();
    let log = log.map_err(DeployError::Pipe)?;
    Err(DeployError::Pipe(
        command.stdin(Stdio::null()).stdout(Stdio::from(log)).exec(),
    ))
}

/// Creates a memory file, and returns the path by which this process can read it repeatedly.
#[cfg(target_os = "linux")]
fn in_memory(content: &str) -> io::Result<(String, std::fs::File)> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};

    // Without CLOEXEC, so that the executed program inherits it.
    let memory = memfd_create("ray-relay", MemfdFlags::empty())?;
    fchmod(&memory, Mode::RUSR | Mode::WUSR)?;
    let mut memory = std::fs::File::from(memory);
    memory.write_all(content.as_bytes())?;
    Ok((format!("/proc/self/fd/{}", memory.as_raw_fd()), memory))
}

#[cfg(not(target_os = "linux"))]
fn become_(_: &[String]) -> Result<(), DeployError> {
    Err(DeployError::NotLinux)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn deployed_processes_get_their_own_files() {
        let (local, remote) = std::os::unix::net::UnixStream::pair().unwrap();
        let input = BufReader::new(remote.try_clone().unwrap());
        let keeper = std::thread::spawn(move || keep(input, remote));
        let mut output = BufReader::new(local.try_clone().unwrap());
        let mut request_line = |text: &str| {
            (&local).write_all(text.as_bytes()).unwrap();
            let answer = line(&mut output).unwrap().unwrap();
            String::clone(&answer)
        };
        let key = request_line("");
        let file = |flag: &str, content: &str| File {
            flag: flag.to_owned(),
            content: content.to_owned(),
        };
        let files = SecretFiles {
            agent: vec![file("--token-file", "t0ken")],
            relay: vec![file("--tls-key", "k3y")],
        };
        let sealed = seal(&key, &files.text().unwrap()).unwrap();
        assert_eq!(request_line(&format!("{sealed}\n")), "kept");
        for (role, flag, content) in [
            ("agent", "--token-file", "t0ken"),
            ("relay", "--tls-key", "k3y"),
        ] {
            let process = Recipient::new().unwrap();
            let sealed = request_line(&format!("{role} {}\n", process.key()));
            let files: Vec<File> = serde_json::from_slice(&process.open(&sealed).unwrap()).unwrap();
            assert_eq!(files.len(), 1);
            assert_eq!((&*files[0].flag, &*files[0].content), (flag, content));
        }
        local.shutdown(std::net::Shutdown::Write).unwrap();
        keeper.join().unwrap().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_file_is_rereadable_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let (path, _memory) = in_memory("t0ken").unwrap();
        for _ in 0..2 {
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "t0ken");
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
