//! The sources of a configuration: the file, the environment and the flags of one command.
//!
//! Collected by the CLI and handed to [`super::resolve()`]; tests build it by hand, so nothing
//! here reads the process's own environment except [`Sources::from_process`].

use std::ffi::OsString;
use std::path::PathBuf;

use super::file::gone;
use super::flags::Flags;
use super::problem::{Problem, nearest, printable};
use super::raw::{RawEntry, RawValue};
use super::settings::SECTIONS;

/// Prefix of every variable of the relay.
pub(super) const PREFIX: &str = "RAY_RELAY_";
/// Variable with the clusters: `URL` or `NAME=URL`, separated by commas.
pub(super) const CLUSTERS_VARIABLE: &str = "RAY_RELAY_RAY_ADDRESS";
/// Variable with the path of the file.
pub(super) const FILE_VARIABLE: &str = "RAY_RELAY_CONFIG";
/// Known variables that hold no key of the configuration: the path of the file, and the variables of the client
/// commands (`list`, `launch-config`).
const OTHER_VARIABLES: [&str; 7] = [
    FILE_VARIABLE,
    CLUSTERS_VARIABLE,
    "RAY_RELAY_URL",
    "RAY_RELAY_CA_FILE",
    "RAY_RELAY_CLIENT_CERT",
    "RAY_RELAY_CLIENT_KEY",
    "RAY_RELAY_TOKEN",
];

/// Prefixes of the variables that mark the processes of the demo and of the tests, and of those that an agent reads.
const MARKER_PREFIXES: [&str; 3] = ["RAY_RELAY_DEMO_", "RAY_RELAY_TEST_", "RAY_RELAY_NODE_"];

/// Everything that [`super::resolve()`] reads.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Environment; names outside `RAY_RELAY_` are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// The flags of the command line.
    pub flags: Flags,
}

impl Sources {
    /// This process's environment with `flags`.
    pub fn from_process(flags: Flags) -> Self {
        Self {
            environment: std::env::vars_os().collect(),
            flags,
        }
    }
}

/// The settings of the environment.
#[derive(Debug, Default)]
pub(super) struct RawEnvironment {
    /// The path in `RAY_RELAY_CONFIG`.
    pub(super) file: Option<PathBuf>,
    /// `(section, key)` with the value.
    pub(super) entries: Vec<(&'static str, &'static str, RawEntry)>,
    /// The values of `RAY_RELAY_RAY_ADDRESS`, split at commas.
    pub(super) clusters: Option<Vec<String>>,
}

/// The variable of a key.
pub(super) fn variable(section: &str, key: &str) -> String {
    format!(
        "{PREFIX}{}_{}",
        section.to_ascii_uppercase(),
        key.to_ascii_uppercase()
    )
}

pub(super) fn parse_environment(
    environment: &[(OsString, OsString)],
    problems: &mut Vec<Problem>,
) -> RawEnvironment {
    let mut raw = RawEnvironment::default();
    let mut ours: Vec<(&str, &OsString)> = environment
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value)))
        .filter(|(name, value)| name.starts_with(PREFIX) && !value.is_empty())
        .collect();
    ours.sort_unstable();
    for (name, value) in ours {
        if name == FILE_VARIABLE {
            raw.file = Some(PathBuf::from(value));
            continue;
        }
        let Some(value) = value.to_str() else {
            problems.push(problem(name, "bytes that are not UTF-8", "text", None));
            continue;
        };
        if name == CLUSTERS_VARIABLE {
            let items = value.split(',').map(|item| item.trim().to_owned());
            raw.clusters = Some(items.collect());
        } else if let Some((section, key)) = known(name) {
            let entry = RawEntry {
                label: name.to_owned(),
                place: "the environment".to_owned(),
                value: RawValue::Word(value.to_owned()),
            };
            raw.entries.push((section, key, entry));
        } else if !OTHER_VARIABLES.contains(&name)
            && !MARKER_PREFIXES.iter().any(|mark| name.starts_with(mark))
            && !is_service_variable(name, value)
        {
            problems.push(unknown(name));
        }
    }
    raw
}

/// Every key with its section.
pub(super) fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    SECTIONS
        .iter()
        .flat_map(|(section, keys)| keys.iter().map(move |key| (*section, *key)))
}

fn known(name: &str) -> Option<(&'static str, &'static str)> {
    keys().find(|(section, key)| variable(section, key) == name)
}

/// A variable that Kubernetes injects into every pod of a namespace with a Service whose name
/// begins with `ray-relay`: `RAY_RELAY_SERVICE_HOST`, `RAY_RELAY_SERVICE_PORT_DAP`,
/// `RAY_RELAY_PORT=tcp://10.0.0.1:5678`, `RAY_RELAY_PORT_5678_TCP_ADDR`, and for a Service
/// `ray-relay-metrics` the same with `METRICS_` in between.
fn is_service_variable(name: &str, value: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let of_service = |pair: &[&str]| matches!(pair, ["SERVICE", "HOST" | "PORT"]);
    let of_port = |three: &[&str]| match three {
        ["PORT", port, "TCP" | "UDP" | "SCTP"] => port.parse::<u16>().is_ok(),
        _ => false,
    };
    // The value decides: RAY_RELAY_PORT=5679 is an attempt to set the port.
    let is_url = || {
        let scheme = value.split_once("://").map(|(scheme, _)| scheme);
        matches!(scheme, Some("tcp" | "udp" | "sctp"))
    };
    words.windows(2).any(of_service)
        || words.windows(3).any(of_port)
        || words.last() == Some(&"PORT") && is_url()
}

fn unknown(name: &str) -> Problem {
    let candidates: Vec<String> = keys()
        .map(|(section, key)| variable(section, key))
        .chain(OTHER_VARIABLES.map(str::to_owned))
        .collect();
    // Compared without the prefix, which all share and which would make all names look similar.
    let bare = |name| str::trim_start_matches(name, PREFIX);
    let near = nearest(bare(name), candidates.iter().map(|name| bare(name)));
    let gone = gone(|section, key| variable(section, key) == name);
    let hint = match (gone, near) {
        (Some(what), _) => what,
        (None, Some(near)) => format!("did you mean {PREFIX}{near}?"),
        (None, None) => {
            "keys are RAY_RELAY_<SECTION>_<KEY>, as in RAY_RELAY_LISTEN_ADDRESS".to_owned()
        }
    };
    problem(
        name,
        "a variable that is not known",
        "a variable named after a key of the configuration",
        Some(hint),
    )
}

fn problem(name: &str, found: &str, expected: &str, hint: Option<String>) -> Problem {
    Problem {
        key: printable(name),
        place: "the environment".to_owned(),
        found: found.to_owned(),
        expected: expected.to_owned(),
        hint,
    }
}
