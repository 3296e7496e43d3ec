//! The command of `ray-relay connect URL -- COMMAND`.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{self, Child};

use super::ConnectError;

/// A command that runs, or none.
pub(super) struct Command(Option<Child>);

impl Command {
    /// Runs `words`, with the port in its environment; none: there is nothing to run.
    ///
    /// # Errors
    /// [`ConnectError::Command`].
    pub(super) fn start(words: &[String], address: SocketAddr) -> Result<Self, ConnectError> {
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
        match child {
            Ok(child) => Ok(Self(Some(child))),
            Err(source) => Err(ConnectError::Command {
                command: name.clone(),
                source,
            }),
        }
    }

    /// Whether there is one.
    pub(super) fn is_one(&self) -> bool {
        self.0.is_some()
    }

    /// Passes on to it that it is to end.
    pub(super) fn end(&self) {
        let id = self.0.as_ref().and_then(Child::id);
        let id = id.and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(id) = id {
            // One that has ended meanwhile is no less ended.
            let _ = kill_process(id, Signal::TERM);
        }
    }

    /// Waits for its end. Cancel safe.
    ///
    /// # Errors
    /// [`ConnectError::Ended`], with its exit code or 128 and the signal; [`ConnectError::Signal`].
    pub(super) async fn ended(&mut self) -> Result<(), ConnectError> {
        let Some(child) = &mut self.0 else {
            return std::future::pending().await;
        };
        let status = child.wait().await.map_err(ConnectError::Signal)?;
        let signal = || 128 + status.signal().unwrap_or_default();
        match status.code().unwrap_or_else(signal) {
            0 => Ok(()),
            code => Err(ConnectError::Ended(u8::try_from(code).unwrap_or(1))),
        }
    }
}

/// How `address` is reached from this machine.
pub(super) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{ip}:{}", address.port())
}
