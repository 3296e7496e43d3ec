//! Values as they were written, before anybody knows what they mean, and the list of known keys.
//!
//! The TOML file, the environment and the flags all become [`Entry`] values, so that each key is
//! checked once and in the same way wherever it was given. Deserialising into a struct would
//! stop at the first mistake; this keeps all of them.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, nearest, shown};
use super::sources::variable;

/// Keys that there were, and what has become of each.
const GONE: &[(&str, &str, &str)] = &[(
    "listen",
    "silence",
    "it is gone: a connection that says nothing is waited for until listen.handshake_timeout, and a terminal shows itself by Enter; remove the key",
)];

/// What has become of a key that there was.
fn gone(section: &str, key: &str) -> Option<&'static str> {
    GONE.iter()
        .find(|(of, name, _)| (*of, *name) == (section, key))
        .map(|(_, _, what)| *what)
}

/// A variable of the environment that there was, and what has become of it.
pub(super) fn gone_variable(name: &str) -> Option<&'static str> {
    GONE.iter()
        .find(|(section, key, _)| variable(section, key) == name)
        .map(|(_, _, what)| *what)
}

/// Sections of the file with their keys, in the order of `config/example.toml`.
pub(super) const SECTIONS: &[(&str, &[&str])] = &[
    (
        "listen",
        &[
            "address",
            "insecure_no_auth",
            "max_connections",
            "handshake_timeout",
            "keepalive",
            "drain_timeout",
        ],
    ),
    (
        "auth",
        &[
            "keys",
            "audience",
            "issuer",
            "leeway",
            "max_lifetime",
            "max_token",
            "policy_file",
            "revocations_file",
            "ticket_key_file",
            "throttle_after",
            "throttle_delay",
            "throttle_max",
        ],
    ),
    (
        "tls",
        &[
            "mode",
            "cert_file",
            "key_file",
            "min_version",
            "client_auth",
            "client_ca_file",
            "client_crl_file",
        ],
    ),
    (
        "registry",
        &[
            "poll_interval",
            "request_timeout",
            "backoff_max",
            "node_interval",
            "stale_after",
            "locations",
            "keep_ended",
            "discovery",
        ],
    ),
    (
        "dap",
        &[
            "connect_timeout",
            "max_frame",
            "max_handshake_frame",
            "allow_terminate",
        ],
    ),
    (
        "http",
        &[
            "header_timeout",
            "max_rewrite",
            "max_event_streams",
            "allowed_hosts",
            "metrics_open",
        ],
    ),
    (
        "jwks",
        &["file", "url", "ca_file", "refresh", "max_stale", "timeout"],
    ),
    (
        "kubernetes",
        &[
            "enabled",
            "audiences",
            "namespace",
            "api_server",
            "ca_file",
            "token_file",
            "timeout",
            "cache_entries",
            "recheck",
            "refused_for",
            "outage_grace",
        ],
    ),
    ("advertise", &["mode", "ports", "host"]),
    ("release", &["after", "announce", "clusters"]),
    (
        "masking",
        &[
            "enabled",
            "defaults",
            "names",
            "types",
            "values",
            "email",
            "max_value",
        ],
    ),
    (
        "audit",
        &[
            "sink",
            "file",
            "syslog",
            "max_size",
            "keep",
            "sync",
            "timeout",
            "on_failure",
            "commands",
            "key_file",
        ],
    ),
    ("recording", &["dir", "max_size", "keep", "on_failure"]),
    ("log", &["level", "format"]),
];

/// Keys of one `[[cluster]]`.
pub(super) const CLUSTER_KEYS: &[&str] = &["name", "ray_address", "token_file", "gcs_address"];

/// A value that is not understood yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawValue {
    /// A TOML string.
    Text(String),
    /// From the environment or a flag, where everything is text.
    Word(String),
    /// A TOML integer that fits.
    Integer(i64),
    /// A TOML boolean.
    Bool(bool),
    /// A TOML array.
    List(Vec<RawValue>),
    /// Anything else, by the name of its type.
    Other(&'static str),
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "\"{}\"", shown(text)),
            Self::Word(word) => f.write_str(&shown(word)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::List(items) => write!(f, "an array of {}", items.len()),
            Self::Other(kind) => write!(f, "a {kind}"),
        }
    }
}

/// A value, the name under which it was given, and where.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// `listen.address`, `RAY_RELAY_LISTEN_ADDRESS` or `--listen`.
    pub(super) label: String,
    /// For people: `relay.toml line 12`.
    pub(super) place: String,
    /// As written.
    pub(super) value: RawValue,
}

/// One `[[cluster]]` of the file, or one address of the environment or a flag.
#[derive(Debug, Clone, Default)]
pub(super) struct RawCluster {
    /// `name`.
    pub(super) name: Option<Entry>,
    /// `ray_address`.
    pub(super) ray_address: Option<Entry>,
    /// `token_file`.
    pub(super) token_file: Option<Entry>,
    /// `gcs_address`.
    pub(super) gcs_address: Option<Entry>,
    /// Of the table itself.
    pub(super) place: String,
}

/// What a TOML file says.
#[derive(Debug, Default)]
pub(super) struct RawFile {
    /// `(section, key)` of [`SECTIONS`] with the value.
    pub(super) entries: Vec<(&'static str, &'static str, Entry)>,
    /// `None`: the file has no `[[cluster]]`.
    pub(super) clusters: Option<Vec<RawCluster>>,
}

/// Reads the text of a file that is called `file` in problems.
///
/// Problems never quote a line of the file: it may hold a token in the wrong place.
pub(super) fn parse_file(file: &str, text: &str, problems: &mut Vec<Problem>) -> RawFile {
    let lines = Lines { file, text };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        problems.extend(errors.iter().map(|error| Problem {
            key: "TOML".to_owned(),
            place: lines.place(error.span().map_or(0, |span| span.start)),
            found: error.message().lines().collect::<Vec<_>>().join(", "),
            expected: "a TOML document".to_owned(),
            hint: None,
        }));
        // What could be read of a broken document would only give misleading further problems.
        return RawFile::default();
    }
    let mut raw = RawFile::default();
    for (section, value) in document.into_inner() {
        let place = lines.place(section.span().start);
        let section = section.into_inner();
        if section == "cluster" {
            raw.clusters = Some(clusters(&lines, value, problems));
        } else if let Some((section, keys)) = SECTIONS.iter().find(|(name, _)| *name == section) {
            let Some(table) = table(section, &place, value, problems) else {
                continue;
            };
            for (key, value) in table {
                let label = format!("{section}.{}", key.get_ref());
                let place = lines.place(key.span().start);
                match keys.iter().find(|known| **known == key.get_ref()) {
                    Some(key) => {
                        let value = raw_value(value.into_inner());
                        raw.entries.push((
                            section,
                            key,
                            Entry {
                                label,
                                place,
                                value,
                            },
                        ));
                    }
                    None => problems.push(unknown_key(&label, place, key.get_ref(), section, keys)),
                }
            }
        } else {
            problems.push(unknown_section(&section, place));
        }
    }
    raw
}

fn clusters(
    lines: &Lines<'_>,
    value: Spanned<DeValue<'_>>,
    problems: &mut Vec<Problem>,
) -> Vec<RawCluster> {
    let place = lines.place(value.span().start);
    let tables = match value.into_inner() {
        DeValue::Array(tables) => tables,
        other => {
            problems.push(Problem {
                key: "cluster".to_owned(),
                place,
                found: format!("a {}", other.type_str()),
                expected: "one or more [[cluster]] tables".to_owned(),
                hint: Some(
                    "write [[cluster]] with two brackets, once for each Ray cluster".to_owned(),
                ),
            });
            return Vec::new();
        }
    };
    let mut clusters = Vec::new();
    for value in tables {
        let place = lines.place(value.span().start);
        let mut cluster = RawCluster {
            place: place.clone(),
            ..RawCluster::default()
        };
        let Some(table) = table("cluster", &place, value, problems) else {
            continue;
        };
        for (key, value) in table {
            let label = format!("cluster.{}", key.get_ref());
            let place = lines.place(key.span().start);
            let slot = match key.get_ref().as_ref() {
                "name" => &mut cluster.name,
                "ray_address" => &mut cluster.ray_address,
                "token_file" => &mut cluster.token_file,
                "gcs_address" => &mut cluster.gcs_address,
                other => {
                    problems.push(unknown_key(&label, place, other, "cluster", CLUSTER_KEYS));
                    continue;
                }
            };
            *slot = Some(Entry {
                label,
                place,
                value: raw_value(value.into_inner()),
            });
        }
        clusters.push(cluster);
    }
    clusters
}

fn table<'i>(
    section: &str,
    place: &str,
    value: Spanned<DeValue<'i>>,
    problems: &mut Vec<Problem>,
) -> Option<DeTable<'i>> {
    match value.into_inner() {
        DeValue::Table(table) => Some(table),
        other => {
            problems.push(Problem {
                key: section.to_owned(),
                place: place.to_owned(),
                found: format!("a {}", other.type_str()),
                expected: format!("a [{section}] table"),
                hint: None,
            });
            None
        }
    }
}

/// What `value` is, as far as any key takes it.
pub(crate) fn raw_value(value: DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::Text(text.into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(RawValue::Other("integer out of range"), RawValue::Integer),
        DeValue::Boolean(truth) => RawValue::Bool(truth),
        DeValue::Array(items) => RawValue::List(
            items
                .into_iter()
                .map(|item| raw_value(item.into_inner()))
                .collect(),
        ),
        other => RawValue::Other(other.type_str()),
    }
}

fn unknown_key(label: &str, place: String, key: &str, section: &str, keys: &[&str]) -> Problem {
    // Perhaps the key is right and only stands in the wrong section.
    let elsewhere = SECTIONS
        .iter()
        .filter(|(name, _)| *name != section)
        .find(|(_, keys)| keys.contains(&key))
        .map(|(name, _)| format!("`{key}` belongs in [{name}]"));
    Problem {
        key: shown(label),
        place,
        found: "a key that is not known".to_owned(),
        expected: format!("in [{section}]: {}", keys.join(", ")),
        hint: gone(section, key)
            .map(str::to_owned)
            .or(elsewhere)
            .or_else(|| {
                nearest(key, keys.iter().copied()).map(|near| format!("did you mean `{near}`?"))
            }),
    }
}

fn unknown_section(section: &str, place: String) -> Problem {
    let names = || SECTIONS.iter().map(|(name, _)| *name).chain(["cluster"]);
    let sections: Vec<_> = SECTIONS
        .iter()
        .map(|(name, _)| format!("[{name}]"))
        .collect();
    let home = SECTIONS.iter().find(|(_, keys)| keys.contains(&section));
    Problem {
        key: shown(section),
        place,
        found: "a section or key that is not known".to_owned(),
        expected: format!("[[cluster]] or one of {}", sections.join(", ")),
        hint: match home {
            Some((name, _)) => Some(format!("`{section}` belongs in [{name}]")),
            None if CLUSTER_KEYS.contains(&section) => {
                Some(format!("`{section}` belongs in [[cluster]]"))
            }
            None => nearest(section, names()).map(|near| match near {
                "cluster" => "did you mean [[cluster]]?".to_owned(),
                near => format!("did you mean [{near}]?"),
            }),
        },
    }
}

/// Turns byte offsets into line numbers.
pub(crate) struct Lines<'a> {
    /// Name of the file.
    pub(crate) file: &'a str,
    /// What it holds.
    pub(crate) text: &'a str,
}

impl Lines<'_> {
    /// `relay.toml line 12`.
    pub(crate) fn place(&self, offset: usize) -> String {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{} line {line}", self.file)
    }
}
