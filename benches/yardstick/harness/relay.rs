//! `ray-relay serve` in front of a stand-in.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::Result;
use crate::harness::contest::Contestant;
use crate::harness::process::{Process, command};
use crate::harness::scene::{Access, Plan};
use crate::harness::yard::Yard;

pub(super) async fn start(
    yard: &Yard,
    contestant: Contestant,
    plan: &Plan,
    head: SocketAddr,
    folder: &Path,
) -> Result<(Process, SocketAddr)> {
    let file = folder.join("ray-relay.toml");
    std::fs::write(&file, config(yard, plan, head, folder))?;
    let mut command = command(yard.program(contestant), plan.pinned);
    command.arg("serve").arg("--config").arg(&file);
    // Ignores the configuration and tokens of the environment.
    command.env_clear().env("HOME", folder).current_dir(folder);
    if plan.pinned {
        command.env("TOKIO_WORKER_THREADS", "1");
    }
    let mut process = Process::start(command, &folder.join("ray-relay.log"))?;
    let address = process.until(async |log| Ok(listens_at(log))).await?;
    Ok((process, address))
}

fn config(yard: &Yard, plan: &Plan, head: SocketAddr, folder: &Path) -> String {
    let credentials = &yard.credentials;
    let mut text = format!(
        "[listen]\naddress = \"127.0.0.1:0\"\nmax_connections = {}\n\
         [[cluster]]\nname = \"default\"\nray_address = \"http://{head}\"\ngcs_address = \"off\"\n\
         [registry]\npoll_interval = \"{}ms\"\nlocations = false\n\
         [park]\nfor = \"0s\"\n\
         [http]\nmax_event_streams = {}\n\
         [log]\nformat = \"json\"\n",
        // One principal has a quarter of them.
        4 * plan.connections.max(256),
        plan.poll.as_millis(),
        4 * plan.connections.max(256),
    );
    if plan.access != Access::Everybody {
        text += &format!("[auth]\nkeys = [{:?}]\n", credentials.public_key);
    }
    match plan.access {
        Access::Everybody => {}
        Access::Audited => {
            text += &format!(
                "[audit]\nsink = \"file\"\nfile = {:?}\n",
                folder.join("audit.log")
            );
        }
        Access::ViewMasked => {}
    }
    if plan.tunnel {
        text += "[upstream]\npath = \"agent\"\n";
    }
    if plan.tls || plan.tunnel {
        // Measured traffic is encrypted; the list is read without TLS.
        text += &format!(
            "[tls]\nmode = \"optional\"\ncert_file = {:?}\nkey_file = {:?}\n",
            credentials.certificate, credentials.certificate_key
        );
    }
    text
}

/// Returns the address that the log announces.
fn listens_at(log: &str) -> Option<SocketAddr> {
    log.lines().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["address"].as_str()?.parse().ok()
    })
}
