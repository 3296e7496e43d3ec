//! HAProxy in front of a stand-in: in TCP mode for its first worker and for the first of those for transfers, in HTTP mode
//! for its dashboard; all else is as its package has it. Where a tunnel is measured with TLS from the client on, it is two of
//! them, which speak TLS with each other.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tokio::net::{TcpSocket, TcpStream};

use crate::Result;
use crate::harness::process::{Process, command};
use crate::harness::scene::Plan;
use crate::harness::yard::Yard;
use crate::stand_in::StandIn;

pub(super) struct Addresses {
    pub(super) worker: SocketAddr,
    pub(super) bulk: SocketAddr,
    pub(super) dashboard: SocketAddr,
}

pub(super) async fn start(
    yard: &Yard,
    plan: &Plan,
    stand_in: &StandIn,
    folder: &Path,
) -> Result<(Vec<Process>, Addresses)> {
    let size = stand_in.size();
    let mut servers = Servers {
        worker: (size.workers > 0).then(|| stand_in.worker(0)).transpose()?,
        bulk: (size.bulk > 0)
            .then(|| stand_in.worker(size.workers))
            .transpose()?,
        dashboard: stand_in.head(),
    };
    let (mut processes, mut to) = (Vec::new(), String::new());
    if plan.tunnel && plan.tls {
        // Beside the workers; what comes next speaks TLS with it.
        let (process, addresses) = one(yard, plan, &servers, &to, folder, "node").await?;
        processes.push(process);
        (servers.worker, servers.bulk) = (Some(addresses.worker), Some(addresses.bulk));
        let ca = yard.credentials.certificate.display();
        to = format!(" ssl verify required ca-file {ca} verifyhost localhost");
    }
    let (process, addresses) = one(yard, plan, &servers, &to, folder, "front").await?;
    processes.push(process);
    Ok((processes, addresses))
}

/// The backend of a HAProxy.
struct Servers {
    worker: Option<SocketAddr>,
    bulk: Option<SocketAddr>,
    dashboard: SocketAddr,
}

/// One process, which speaks with the servers of sessions as `to` says.
async fn one(
    yard: &Yard,
    plan: &Plan,
    servers: &Servers,
    to: &str,
    folder: &Path,
    name: &str,
) -> Result<(Process, Addresses)> {
    let haproxy = yard.haproxy.as_ref().ok_or("HAProxy is not installed")?;
    let reserved = [reserve()?, reserve()?, reserve()?];
    let [worker, bulk, dashboard] = &reserved;
    let addresses = Addresses {
        worker: worker.local_addr()?,
        bulk: bulk.local_addr()?,
        dashboard: dashboard.local_addr()?,
    };
    let tls = match plan.tls {
        true => format!(" ssl crt {}", yard.credentials.pem.display()),
        false => String::new(),
    };
    let mut text = format!(
        "global\n  maxconn {}\n{}defaults\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n",
        plan.connections.max(256) + 64,
        if plan.pinned { "  nbthread 1\n" } else { "" },
    );
    let mut listen = |name, mode, address: SocketAddr, tls: &str, server: SocketAddr, to: &str| {
        text += &format!(
            "listen {name}\n  mode {mode}\n  bind {address}{tls}\n  server {name} {server}{to}\n"
        );
    };
    listen(
        "dashboard",
        "http",
        addresses.dashboard,
        "",
        servers.dashboard,
        "",
    );
    if let Some(server) = servers.worker {
        listen("worker", "tcp", addresses.worker, &tls, server, to);
    }
    if let Some(server) = servers.bulk {
        listen("bulk", "tcp", addresses.bulk, &tls, server, to);
    }
    let file = folder.join(format!("{name}.cfg"));
    std::fs::write(&file, text)?;
    let mut command = command(haproxy.program, plan.pinned);
    command.arg("-db").arg("-f").arg(&file);
    let mut process = Process::start(command, &folder.join(format!("{name}.log")))?;
    process
        .until(async |_| Ok(TcpStream::connect(addresses.dashboard).await.ok()))
        .await?;
    Ok((process, addresses))
}

/// A free port that HAProxy, which shares ports with itself, can listen on while this keeps everybody else away.
fn reserve() -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(socket)
}
