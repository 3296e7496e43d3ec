//! The TOML file: its value for each key, and the keys in it that are not known.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, nearest, printable};
use super::raw::{ConfigText, RawEntry, raw_value};
use super::resolver::Section;
use super::settings::{Cluster, SECTIONS};

/// Removed keys, each with the fixed behavior that replaced it.
#[rustfmt::skip]
const REMOVED_KEYS: &[(&str, &str, &str)] = &[
    ("listen", "silence", "a connection that says nothing is waited for until listen.handshake_timeout, and a terminal shows itself by Enter"),
    ("auth", "max_token", "a token may have 16KiB"),
    ("auth", "throttle_after", "10 refused credentials of one address cost nothing"),
    ("auth", "throttle_delay", "the first back-off takes 1s"),
    ("auth", "throttle_max", "the longest back-off takes 1m"),
    ("registry", "backoff_max", "a head that does not answer is polled every 30s at least"),
    ("registry", "node_interval", "nodes are checked every 3s"),
    ("registry", "stale_after", "a list is stale after 10s, or after two polls if that is longer"),
    ("registry", "keep_ended", "ended breakpoints are remembered for 10m"),
    ("registry", "discovery", "paused workers come from the dashboard"),
    ("dap", "max_handshake_frame", "a message before attach may have 1MiB"),
    ("http", "header_timeout", "the headers of a request may take 30s"),
    ("http", "max_rewrite", "a dashboard answer that is changed may have 64MiB"),
    ("post_mortem", "max_tasks", "an agent keeps 64 failed tasks"),
    ("post_mortem", "max_bytes", "an agent keeps 16MiB of failed tasks"),
    ("post_mortem", "keep_for", "an agent keeps a failed task for 24h"),
    ("kubernetes", "cache_entries", "1024 tokens are remembered, and as many refused ones"),
    ("kubernetes", "refused_for", "a refused token is not shown again for 10s"),
    ("audit", "sync", "lines that wait at the same time share one fdatasync, before what they record happens"),
    ("audit", "timeout", "a line may take 2s"),
];

/// The hint for a removed key: the first whose section and key `is_meant` accepts.
pub(super) fn gone(is_meant: impl Fn(&str, &str) -> bool) -> Option<String> {
    REMOVED_KEYS
        .iter()
        .find(|(section, key, _)| is_meant(section, key))
        .map(|(_, _, now)| format!("the key is gone: {now}; remove it"))
}

/// Known keys with their values.
pub(super) type FileEntries = Vec<(&'static str, RawEntry)>;

/// One `[[cluster]]` of the file.
#[derive(Debug)]
pub(super) struct RawCluster {
    /// The keys that the table sets, with their values.
    pub(super) entries: FileEntries,
    /// Location of the table's first line, for messages: `relay.toml line 12`.
    pub(super) place: String,
}

/// The contents of a TOML file.
#[derive(Debug, Default)]
pub(super) struct RawFile {
    /// The entries of each of [`SECTIONS`] that the file has.
    pub(super) sections: Vec<(&'static str, FileEntries)>,
    /// `None`: the file has no `[[cluster]]`.
    pub(super) clusters: Option<Vec<RawCluster>>,
}

/// Reads the text of a file that is called `file` in problems.
///
/// Problems never quote a line of the file: it may hold a token in the wrong place.
pub(super) fn parse_file(file: &str, text: &str, problems: &mut Vec<Problem>) -> RawFile {
    let lines = ConfigText { file, text };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        problems.extend(errors.iter().map(|error| Problem {
            key: "TOML".to_owned(),
            place: lines.place(error.span().map_or(0, |span| span.start)),
            found: error.message().lines().collect::<Vec<_>>().join(", "),
            expected: "a TOML document".to_owned(),
            hint: None,
        }));
        // A broken document would only produce misleading further problems.
        return RawFile::default();
    }
    let mut raw = RawFile::default();
    for (section, value) in document.into_inner() {
        let place = lines.place(section.span().start);
        let section = section.into_inner();
        if section == Cluster::NAME {
            raw.clusters = Some(clusters(&lines, value, problems));
        } else if let Some((section, keys)) = SECTIONS.iter().find(|(name, _)| *name == section) {
            if let Some(table) = table(section, &place, value, problems) {
                let entries = entries(&lines, section, keys, table, problems);
                raw.sections.push((section, entries));
            }
        } else {
            problems.push(unknown_section(&section, place));
        }
    }
    raw
}

fn clusters(
    lines: &ConfigText<'_>,
    value: Spanned<DeValue<'_>>,
    problems: &mut Vec<Problem>,
) -> Vec<RawCluster> {
    let place = lines.place(value.span().start);
    let tables = match value.into_inner() {
        DeValue::Array(tables) => tables,
        other => {
            problems.push(Problem {
                key: Cluster::NAME.to_owned(),
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
        if let Some(table) = table(Cluster::NAME, &place, value, problems) {
            let entries = entries(lines, Cluster::NAME, Cluster::KEYS, table, problems);
            clusters.push(RawCluster { entries, place });
        }
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

/// Collects the entries of `table` for the `keys` of `section`; every other key is a problem.
fn entries(
    lines: &ConfigText<'_>,
    section: &str,
    keys: &[&'static str],
    table: DeTable<'_>,
    problems: &mut Vec<Problem>,
) -> FileEntries {
    let mut entries = Vec::new();
    for (key, value) in table {
        let label = format!("{section}.{}", key.get_ref());
        let place = lines.place(key.span().start);
        let Some(known) = keys.iter().find(|known| **known == key.get_ref()) else {
            problems.push(unknown_key(&label, place, key.get_ref(), section, keys));
            continue;
        };
        let value = raw_value(value.into_inner());
        entries.push((
            *known,
            RawEntry {
                label,
                place,
                value,
            },
        ));
    }
    entries
}

fn unknown_key(label: &str, place: String, key: &str, section: &str, keys: &[&str]) -> Problem {
    // The key may be right and in the wrong section.
    let elsewhere = SECTIONS
        .iter()
        .filter(|(name, _)| *name != section)
        .find(|(_, keys)| keys.contains(&key))
        .map(|(name, _)| format!("`{key}` belongs in [{name}]"));
    Problem {
        key: printable(label),
        place,
        found: "a key that is not known".to_owned(),
        expected: format!("in [{section}]: {}", keys.join(", ")),
        hint: gone(|of, name| (of, name) == (section, key))
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
        key: printable(section),
        place,
        found: "a section or key that is not known".to_owned(),
        expected: format!("[[cluster]] or one of {}", sections.join(", ")),
        hint: match home {
            Some((name, _)) => Some(format!("`{section}` belongs in [{name}]")),
            None if Cluster::KEYS.contains(&section) => {
                Some(format!("`{section}` belongs in [[cluster]]"))
            }
            None => nearest(section, names()).map(|near| match near {
                "cluster" => "did you mean [[cluster]]?".to_owned(),
                near => format!("did you mean [{near}]?"),
            }),
        },
    }
}
