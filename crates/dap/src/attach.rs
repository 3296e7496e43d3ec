//! Rewrites attach arguments on their way to the worker's debugger.
//!
//! Pure. Source of each rule: Ray 2.60 with debugpy 1.8.22 and VS Code's Python Debugger extension 2026.7, each seen.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::source_folder::LOCAL_ROOT_COMMAND;
use ray_relay_access::identity::Secret;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::json::typed_at;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId};

/// File in which Ray suspends the thread. Under `justMyCode` debugpy treats it as library code and the
/// breakpoint never stops; this rule in front of the client's own makes it count as the user's.
const RAY_HELPER: &str = "**/ray/util/debugpy.py";

/// Builds the worker's arguments from the client's. Keeps `host`, `port` and `connect`: debugpy echoes them to the
/// sessions it starts for subprocesses, and never dials them. Drops `rayRelay`.
pub fn for_worker(arguments: &Value, breakpoint: &Breakpoint, local_root: Option<&str>) -> Value {
    let mut upstream = match arguments {
        Value::Object(keys) => keys.clone(),
        _ => Map::new(),
    };
    for key in ["rayRelay", "rayRelayToken"] {
        upstream.shift_remove(key);
    }
    keep_ray_breakpoint(&mut upstream);
    map_files(&mut upstream, breakpoint, local_root);
    mappings::settle(&mut upstream);
    Value::Object(upstream)
}

fn keep_ray_breakpoint(arguments: &mut Map<String, Value>) {
    // Absent means true to debugpy.
    if arguments.get("justMyCode") == Some(&Value::Bool(false)) {
        return;
    }
    let rule = json!({"path": RAY_HELPER, "include": true});
    match arguments.get_mut("rules") {
        // A subprocess inherits the rules of its parent's session.
        Some(Value::Array(rules)) if rules.contains(&rule) => {}
        Some(Value::Array(rules)) => rules.insert(0, rule),
        _ => {
            arguments.insert("rules".into(), json!([rule]));
        }
    }
}

/// Maps the worker's files to the client's, unless the client maps them itself: the `working_dir` to the open folder.
/// Without a `working_dir`, files below the open folder have the same path on both sides. For a file outside all mapped
/// folders debugpy sends a reference with the path, by which an editor fetches the worker's text instead of searching
/// its own disk.
fn map_files(
    arguments: &mut Map<String, Value>,
    breakpoint: &Breakpoint,
    local_root: Option<&str>,
) {
    if mappings::has_mappings(arguments) {
        return;
    }
    let unpacked = breakpoint.names.unpacked_working_dir;
    let workspace = arguments
        .get("workspaceFolder")
        .and_then(Value::as_str)
        .filter(|folder| !folder.is_empty());
    let mapping = match (local_root, workspace) {
        (Some(""), _) => mappings::nowhere(),
        // Explicit, so it applies whatever the registry knows of the job.
        (Some(root), _) => json!([{"localRoot": root, "remoteRoot": "."}]),
        (None, Some(folder)) if unpacked => json!([{"localRoot": folder, "remoteRoot": "."}]),
        (None, Some(folder)) => json!([{"localRoot": folder, "remoteRoot": folder}]),
        // A package that Ray has unpacked is no user's folder. Explicit `pathMappings` are respected.
        (None, None) if unpacked && !arguments.contains_key("pathMappings") => mappings::nowhere(),
        (None, None) => return,
    };
    arguments.insert("pathMappings".into(), mapping);
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PathMapping<'a> {
    local_root: Option<&'a str>,
    remote_root: Option<&'a str>,
}

/// Hint for a user whose editor does not find a file: which folder the job's `working_dir` is mapped to, by the
/// arguments `sent` to the worker. `None` if the files are where the cluster has them.
pub(crate) fn source_note(sent: &Value, breakpoint: &Breakpoint) -> Option<String> {
    let mappings: Vec<PathMapping> = typed_at(sent, "pathMappings");
    let here = mappings.iter().find(|one| one.remote_root == Some("."));
    let maps = mappings.iter().any(|one| one.local_root != one.remote_root);
    let folder = match here.and_then(|one| one.local_root) {
        Some(folder) => ray_relay_base::wire::text::shortened(folder, 200),
        None if !breakpoint.names.unpacked_working_dir || maps => return None,
        // A user who sees the worker's own files needs no hint for that.
        None if sent.get("pathMappings") == Some(&mappings::nowhere()) => {
            return Some(format!(
                "no local folder stands for the job's working_dir, so its files are shown as the worker has them, read-only; type `{LOCAL_ROOT_COMMAND} FOLDER` here with the folder that holds them, or set rayRelay.localRoot in the configuration"
            ));
        }
        None => "no local folder".to_owned(),
    };
    Some(format!(
        "{folder} stands for the job's working_dir; where a file is not found, type `{LOCAL_ROOT_COMMAND} \"\"` here to be shown the worker's own, or `{LOCAL_ROOT_COMMAND} FOLDER` with the folder that holds it (the same as rayRelay.localRoot in the configuration)"
    ))
}

/// Fingerprint of the arguments of an `attach`, without the keys by which an editor marks its own sessions, and without
/// the address of the relay.
pub fn fingerprint(arguments: &Value) -> u64 {
    const OWN: [&str; 6] = [
        "__sessionId",
        "__configurationTarget",
        "name",
        "host",
        "port",
        "connect",
    ];
    let mut hasher = DefaultHasher::new();
    for (key, value) in arguments.as_object().into_iter().flatten() {
        if !OWN.contains(&key.as_str()) {
            (key, value.to_string()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The address that the client dialled, in the two forms that clients use, or the program that it starts instead.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayEndpoint {
    /// Host as the client wrote it.
    pub host: Value,
    /// Port as the client wrote it: a number or a string.
    pub port: Value,
    /// `rayRelay.listen`: the `listen` key of a client that runs `ray-relay dap` for its sessions, which removes it
    /// from the arguments. Nothing listens there; it makes VS Code start a program.
    pub listen: Option<Value>,
}

impl RelayEndpoint {
    /// The address in `connect` or at the top level of attach arguments. `fallback` is the relay's own port, for a
    /// client that does not tell its debugger (it used a setting such as `debugServer`).
    pub fn read(arguments: &Value, fallback: u16) -> Self {
        let listen = arguments
            .pointer("/rayRelay/listen")
            .filter(|l| !l.is_null());
        let of = |from: &Value| {
            let port = from
                .get("port")
                .filter(|p| p.is_number() || p.is_string())?
                .clone();
            let host = from.get("host").filter(|h| h.is_string()).cloned();
            Some(Self {
                host: host.unwrap_or_else(|| "127.0.0.1".into()),
                port,
                listen: listen.cloned(),
            })
        };
        arguments
            .get("connect")
            .and_then(of)
            .or_else(|| of(arguments))
            .unwrap_or_else(|| Self {
                host: "127.0.0.1".into(),
                port: fallback.into(),
                listen: listen.cloned(),
            })
    }

    /// Directs the session of `configuration` to this address. `at_top`: the client reads host and port at the top
    /// level, not in `connect`.
    pub(super) fn put_into(&self, configuration: &mut Map<String, Value>, at_top: bool) {
        for key in ["host", "port", "connect"] {
            configuration.shift_remove(key);
        }
        match &self.listen {
            Some(listen) => _ = configuration.insert("listen".into(), listen.clone()),
            None if at_top => {
                configuration.insert("host".into(), self.host.clone());
                configuration.insert("port".into(), self.port.clone());
            }
            None => {
                let address = json!({"host": self.host, "port": self.port});
                configuration.insert("connect".into(), address);
            }
        }
    }

    /// The host as text, where it is text.
    pub(crate) fn host_text(&self) -> Option<&str> {
        self.host.as_str()
    }
}

/// Credentials of a child session that the relay has a client open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pass<'a> {
    /// Its ticket, if authentication is on.
    pub ticket: Option<&'a Secret>,
    /// Family of its cluster session.
    pub family: Option<&'a str>,
    /// Whether its task runs and should be paused.
    pub pauses: bool,
}

/// Configuration of a child session for `breakpoint`, from the parent's own attach arguments. It presents `pass`.
pub fn child_configuration(
    parent: &Value,
    breakpoint: &Breakpoint,
    dialled: &RelayEndpoint,
    pass: Pass<'_>,
) -> Value {
    let mut child = match parent {
        Value::Object(keys) => keys.clone(),
        _ => Map::new(),
    };
    // Keys of the parent alone: VS Code's own marks, and tasks that would run again for each child.
    for key in [
        "__sessionId",
        "__configurationTarget",
        "preLaunchTask",
        "postDebugTask",
        "restart",
        "subProcessId",
        "rayRelayToken",
    ] {
        child.shift_remove(key);
    }
    // ray-debugger.nvim reads the top level only, VS Code `connect`, and debugpy refuses both together.
    let at_top = child.contains_key("port") && !child.contains_key("connect");
    dialled.put_into(&mut child, at_top);
    child.insert(
        "name".into(),
        ray_relay_base::wire::text::shortened(&breakpoint.session_name(), 120).into(),
    );
    child.insert("request".into(), Command::Attach.as_str().into());
    let mut relay = way_back(breakpoint.id, pass);
    let own = parent.get("rayRelay");
    for key in ["localRoot", "onClose"] {
        if let Some(own) = own.and_then(|own| own.get(key)) {
            relay[key] = own.clone();
        }
    }
    child.insert("rayRelay".into(), relay);
    Value::Object(child)
}

/// `rayRelay` of a session that the relay itself has a client open.
pub(super) fn way_back(id: BreakpointId, pass: Pass<'_>) -> Value {
    let mut relay = json!({"breakpoint": id});
    if let Some(ticket) = pass.ticket {
        relay["ticket"] = ticket.expose().into();
    }
    if let Some(family) = pass.family {
        relay["family"] = family.into();
    }
    if pass.pauses {
        relay["running"] = true.into();
    }
    relay
}

#[cfg(test)]
mod tests;
