//! `ray-relay doctor`: checks the chain from here to the workers' debuggers, link by link.
//!
//! Each link is checked the way the other commands use it, and in their order. Links behind a broken one are not
//! guessed. It changes nothing, and dials no debug port.

mod alive;
mod connection;
mod folder;
mod report;
mod token;

use std::path::Path;
use std::time::SystemTime;

use serde_json::{Map, Value};

use self::connection::refused;
use self::report::Report;
use super::relay_client::{RelayClient, RelayError};
use super::{DoctorArgs, Failure, RelayArgs};
use ray_relay_base::wire::json::{take, typed_at};
use ray_relay_base::wire::text::shortened;
use ray_relay_view::doctor::{ChainLink, Finding, hooks, lists};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay doctor
  ray-relay doctor --relay https://relay.example.com --token-file ann.token
  ray-relay doctor --kube
  HEALTHCHECK CMD [\"/ray-relay\", \"doctor\", \"--alive\"]           # in a Dockerfile
  ray-relay doctor --json | jq -r '.findings[] | select(.severity == \"error\") | .says'

Checks each link from here to the debuggers of the paused tasks: the relay's address, certificate, clock and version, the token, the Ray heads, the agents and the paused tasks. It also checks whether this folder has the files of the tasks. Nothing is changed, and no debugger is dialled. A token with `admin` that nothing narrows sees more of the heads. With --alive it needs no token. It then exits with 0 if the relay answers, even if a Ray head is down or the certificate is not trusted, and with 69 otherwise.

Exit codes: 0 nothing is wrong, 1 a warning; with an error, by the first one: 69 something cannot be reached, 77 the relay wants a token or the token does not permit it, 78 something is set up wrongly.";

pub(super) async fn run(mut args: DoctorArgs) -> Result<(), Failure> {
    if args.alive {
        return Box::pin(alive::run(args.relay)).await;
    }
    let mut report = Report::new(args.json);
    if connection::find(&mut args.relay, &mut report).await? {
        examine(&args.relay, &mut report).await?;
    }
    match report.end(&args.relay.relay.to_string())? {
        0 => Ok(()),
        code => Err(Failure::reported(code)),
    }
}

/// Checks every link, until one is broken.
async fn examine(args: &RelayArgs, report: &mut Report) -> Result<(), Failure> {
    report.add(connection::address(args))?;
    if !connection::examine(args, report).await? {
        return Ok(());
    }
    report.about("asking the relay");
    let client = match RelayClient::new(args.clone()) {
        Ok(client) => client,
        Err(error) => return Ok(report.add(refused(&error))?),
    };
    let presented_token = match token::presented(args, SystemTime::now()).await {
        Ok(presented_token) => presented_token,
        Err(error) => return Ok(report.add(refused(&error))?),
    };
    match client.time().await {
        Ok(Some(relay_time)) => report.add(connection::clock(relay_time, SystemTime::now()))?,
        Ok(None) => {}
        Err(error) => return Ok(report.add(refused(&error))?),
    }
    let list = match client.breakpoints(true).await {
        Ok(list) => list,
        Err(error) if error.is_not_permitted() => {
            return Ok(report.add(presented_token.refused(&error))?);
        }
        Err(error) => return Ok(report.add(refused(&error))?),
    };
    for finding in presented_token.findings() {
        report.add(finding)?;
    }
    report.about("asking for the nodes");
    let nodes = match client.nodes().await {
        Ok(nodes) => Some(nodes),
        Err(error) if error.is_not_permitted() => {
            let says = "the token does not show whole nodes, so nothing is known of their agents";
            let next = "it takes `list` that no job, namespace or task narrows";
            report.add(Finding::note(ChainLink::Agents, says).next(next))?;
            None
        }
        Err(error) => return Ok(report.add(refused(&error))?),
    };
    report.add(version(nodes.as_ref()))?;
    report.about("having the relay look at its heads");
    for finding in behind(client.findings().await, &list, nodes.as_ref()) {
        report.add(finding)?;
    }
    report.about("asking which workers have the hook");
    for finding in hooks(&client, nodes.as_ref()).await {
        report.add(finding)?;
    }
    report.about("looking for the files of the tasks");
    if let Ok(here) = std::env::current_dir() {
        for finding in folder::findings(&list, Path::new(&here)) {
            report.add(finding)?;
        }
    }
    Ok(())
}

/// Findings about which workers have the hook, as far as the token shows running tasks.
async fn hooks(client: &RelayClient, nodes: Option<&Value>) -> Vec<Finding> {
    let query = Map::from_iter([("hook".to_owned(), Value::from(true))]);
    match client.tasks(&query).await {
        Ok(tasks) => hooks::findings(&tasks, nodes),
        // An older relay without this feature, or a token without this permission, is no fault of the chain.
        Err(_) => Vec::new(),
    }
}

/// Findings about the chain behind the relay: its own if it provides them, or those from its lists.
fn behind(
    own: Result<Option<Value>, RelayError>,
    list: &Value,
    nodes: Option<&Value>,
) -> Vec<Finding> {
    let note = |says: String| Finding::note(ChainLink::Head, says);
    let why = match own {
        Ok(Some(mut own)) => {
            let findings: Result<Vec<Finding>, _> = serde_json::from_value(take(&mut own, "findings"));
            match findings {
                Ok(findings) => return findings.into_iter().map(Finding::cleaned).collect(),
                Err(_) => Some(note(
                    "the relay's own findings are of another version".to_owned(),
                )),
            }
        }
        Err(error) if error.is_not_permitted() => Some(
            note("the relay tells more of its heads, and of nodes without debugpy, to a token with `admin` on the whole relay".to_owned())
                .next("where `breakpoint()` does not stop: `pip install debugpy` on the nodes, or have an operator run this"),
        ),
        Err(error) => Some(note(format!(
            "the relay has not looked at its heads itself: {error}"
        ))),
        Ok(None) => None,
    };
    let mut all = lists::heads(list);
    all.extend(why);
    all.extend(lists::findings(list, nodes));
    all
}

/// Compares the relay's version, from its list of `nodes`, with this program's.
fn version(nodes: Option<&Value>) -> Finding {
    const OWN: &str = env!("CARGO_PKG_VERSION");
    let relay_version = nodes.and_then(|nodes| typed_at::<Option<&str>>(nodes, "version"));
    match relay_version {
        Some(OWN) => Finding::ok(
            ChainLink::Relay,
            format!("the relay is ray-relay {OWN}, as this is"),
        ),
        Some(relay_version) => {
            let relay_version = shortened(relay_version, 40);
            let says = format!("the relay is ray-relay {relay_version}, and this is {OWN}");
            Finding::note(ChainLink::Relay, says)
                .next("have the same version at both ends where something is not understood")
        }
        None => Finding::note(
            ChainLink::Relay,
            "the relay does not say which version it is",
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
