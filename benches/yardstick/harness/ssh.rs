//! `ssh -L` in front of a stand-in: a client and a server of OpenSSH, as their package has them, which forward to its first
//! worker and to the first of those for transfers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use tokio::net::{TcpSocket, TcpStream};

use crate::Result;
use crate::harness::process::{Process, command};
use crate::harness::yard::Yard;
use crate::stand_in::StandIn;

/// An installed OpenSSH server.
pub(crate) struct Ssh {
    server: &'static str,
}

/// A server that runs as root wants this folder, which its package makes when it starts the service.
const SEPARATION: &str = "/run/sshd";

impl Ssh {
    pub(crate) fn find() -> Option<Self> {
        // sshd requires an absolute path.
        let server = "/usr/sbin/sshd";
        let there = Path::new(server).is_file() && Command::new("ssh").arg("-V").output().is_ok();
        let root = rustix::process::geteuid().is_root();
        let ready = !root || std::fs::create_dir_all(SEPARATION).is_ok();
        (there && ready).then_some(Self { server })
    }
}

/// The processes, and where the worker and the transfers are.
pub(super) async fn start(
    yard: &Yard,
    stand_in: &StandIn,
    folder: &Path,
) -> Result<(Vec<Process>, [SocketAddr; 2])> {
    let ssh = yard.ssh.as_ref().ok_or("OpenSSH is not installed")?;
    for name in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(folder.join(name))
            .status()?;
        if !made.success() {
            return Err("ssh-keygen made no key".into());
        }
    }
    std::fs::copy(folder.join("user.pub"), folder.join("authorized"))?;
    let at = free()?;
    let config = folder.join("sshd_config");
    std::fs::write(
        &config,
        format!(
            "ListenAddress {at}\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nPidFile none\nMaxSessions 256\n",
            folder.display()
        ),
    )?;
    let mut server = command(ssh.server, false);
    server.args(["-D", "-e", "-f"]).arg(&config);
    let mut server = Process::start(server, &folder.join("sshd.log"))?;
    server
        .until(async |_| Ok(TcpStream::connect(at).await.ok()))
        .await?;

    let size = stand_in.size();
    let bulk = size.workers.min(size.workers + size.bulk - 1);
    let (ways, workers) = (
        [free()?, free()?],
        [stand_in.worker(0)?, stand_in.worker(bulk)?],
    );
    let mut client = command("ssh", false);
    client.arg("-N").arg("-i").arg(folder.join("user"));
    let known = format!("UserKnownHostsFile={}", folder.join("known").display());
    let options = [
        "StrictHostKeyChecking=accept-new",
        "ExitOnForwardFailure=yes",
        &known,
    ];
    for option in options {
        client.arg("-o").arg(option);
    }
    client.args(["-F", "none", "-p", &at.port().to_string()]);
    for (way, worker) in ways.iter().zip(workers) {
        client.arg("-L").arg(format!("{way}:{worker}"));
    }
    client.arg(at.ip().to_string());
    let mut client = Process::start(client, &folder.join("ssh.log"))?;
    client
        .until(async |_| Ok(TcpStream::connect(ways[1]).await.ok()))
        .await?;
    Ok((vec![server, client], ways))
}

/// A port that was free a moment ago: OpenSSH does not listen on port 0.
fn free() -> Result<SocketAddr> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(socket.local_addr()?)
}
