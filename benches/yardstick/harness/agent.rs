//! `ray-relay node` next to the workers of a stand-in.

use std::net::SocketAddr;
use std::path::Path;

use crate::Result;
use crate::harness::contest::Contestant;
use crate::harness::process::{Process, command};
use crate::harness::yard::Yard;

/// One that links to the relay at `relay` over TLS.
pub(super) fn start(
    yard: &Yard,
    contestant: Contestant,
    relay: SocketAddr,
    head: SocketAddr,
    folder: &Path,
) -> Result<Process> {
    let mut command = command(yard.program(contestant), false);
    command
        .args(["node", "--gcs-address", "off"])
        .arg("--relay")
        .arg(format!("https://localhost:{}", relay.port()))
        .arg("--ca-file")
        .arg(&yard.credentials.certificate)
        .arg("--ray-address")
        .arg(format!("http://{head}"));
    command.env_clear().env("HOME", folder).current_dir(folder);
    Process::start(command, &folder.join("agent.log"))
}
