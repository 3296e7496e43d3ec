//! The command of `ray-relay connect URL -- COMMAND`.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{self, Child};
use tokio::signal::unix::{self, SignalKind, signal};

use super::args::NotConnected;
use crate::cli::failure::Failure;

/// A running command, or none.
pub(super) struct ChildCommand(Option<RunningCommand>);

struct RunningCommand {
    child: Child,
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl ChildCommand {
    /// Runs `words`, with the port in its environment. Without words, there is nothing to run.
    ///
    /// # Errors
    /// [`NotConnected::Command`].
    pub(super) fn start(words: &[String], address: SocketAddr) -> Result<Self, NotConnected> {
        let [name, rest @ ..] = words else {
            return Ok(Self(None));
        };
        let url = url(address);
        let child = process::Command::new(name)
            .args(rest)
            .env("RAY_RELAY_URL", &url)
            .env("RAY_ADDRESS", &url)
            .kill_on_drop(true)
            .spawn();
        let child = child.map_err(|source| NotConnected::Command {
            command: name.clone(),
            source,
        })?;
        let listener = |kind| signal(kind).map_err(NotConnected::Signal);
        Ok(Self(Some(RunningCommand {
            child,
            interrupt: listener(SignalKind::interrupt())?,
            terminate: listener(SignalKind::terminate())?,
            hang_up: listener(SignalKind::hangup())?,
        })))
    }

    /// Waits for the command to end, and forwards signals to it. Cancel safe.
    ///
    /// # Errors
    /// The command's exit code other than 0, or 128 plus its signal. [`NotConnected::Signal`].
    pub(super) async fn ended(&mut self) -> Result<(), Failure> {
        let Some(running) = &mut self.0 else {
            return std::future::pending().await;
        };
        let status = loop {
            let passed_on = tokio::select! {
                status = running.child.wait() => break status.map_err(NotConnected::Signal)?,
                // A terminal sends it to both.
                _ = running.interrupt.recv() => (!io::stdin().is_terminal()).then_some(Signal::INT),
                _ = running.terminate.recv() => Some(Signal::TERM),
                _ = running.hang_up.recv() => Some(Signal::HUP),
            };
            let id = running.child.id().and_then(|id| id.try_into().ok());
            if let (Some(id), Some(signal)) = (id.and_then(Pid::from_raw), passed_on) {
                // A command that has just ended needs no signal.
                let _ = kill_process(id, signal);
            }
        };
        let signal = || 128 + status.signal().unwrap_or_default();
        match status.code().unwrap_or_else(signal) {
            0 => Ok(()),
            code => Err(Failure::reported(u8::try_from(code).unwrap_or(1))),
        }
    }
}

/// The URL of `address` on this machine.
pub(super) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{ip}:{}", address.port())
}
