//! Puts the sources together: defaults < file < environment < flags.
//!
//! Every value of every source is checked, also one that another source overrides, and every
//! problem is kept: a configuration is corrected in one go, not mistake by mistake.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::address::{Wrong, parse_listen, parse_ray_address, redacted, split_cluster};
use super::model::{Advertise, Cluster, Config, LogFormat};
use super::problem::{Problem, Problems, shown};
use super::raw::{Entry, RawCluster, RawFile, RawValue, parse_file};
use super::setting::{self, Read};
use super::sources::{CLUSTERS_VARIABLE, FILE_VARIABLE, Flags, Sources, parse_environment};
use super::units::{format_duration, format_size};

/// Longest configuration file that is read.
const LONGEST_FILE: u64 = 1 << 20;
/// Shortest duration that is accepted anywhere.
const SHORTEST: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// A configuration and where each of its values came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The configuration.
    pub config: Config,
    /// Every key in the order of `config/example.toml`, clusters last.
    pub settings: Vec<Setting>,
}

/// One effective value, for `check-config` to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Section of the file; `cluster` for those of a cluster.
    pub section: &'static str,
    /// Key in it.
    pub key: &'static str,
    /// As TOML.
    pub value: String,
    /// `default`, or where it was given.
    pub origin: String,
}

/// Resolves `sources`, reading the file that they name.
///
/// # Errors
/// All [`Problems`], of all sources.
pub fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let mut problems = Vec::new();
    let environment = parse_environment(&sources.environment, &mut problems);
    let environment_problems = std::mem::take(&mut problems);
    let named = match (&sources.flags.config, &environment.file) {
        (Some(path), _) => Some(("--config", "the command line", path)),
        (None, Some(path)) => Some((FILE_VARIABLE, "the environment", path)),
        (None, None) => None,
    };
    let file = match named {
        Some((key, place, path)) => read_file(key, place, path, &mut problems),
        None => RawFile::default(),
    };
    problems.extend(environment_problems);

    let mut entries: HashMap<(&str, &str), Vec<Entry>> = HashMap::new();
    for (section, key, entry) in file.entries.into_iter().chain(environment.entries) {
        entries.entry((section, key)).or_default().push(entry);
    }
    for (section, key, entry) in flag_entries(&sources.flags) {
        entries.entry((section, key)).or_default().push(entry);
    }
    let mut resolver = Resolver {
        entries,
        problems,
        settings: Vec::new(),
    };
    let mut config = resolver.scalars();
    config.clusters = resolver.clusters(
        file.clusters,
        environment.clusters.as_deref(),
        &sources.flags.ray_address,
    );
    resolver.cross_checks(&config);
    if resolver.problems.is_empty() {
        Ok(Resolved {
            config,
            settings: resolver.settings,
        })
    } else {
        Err(Problems {
            problems: resolver.problems,
        })
    }
}

fn read_file(key: &str, place: &str, path: &Path, problems: &mut Vec<Problem>) -> RawFile {
    let unreadable = |found: String| Problem {
        key: key.to_owned(),
        place: place.to_owned(),
        found,
        expected: "a TOML file that can be read".to_owned(),
        hint: Some("config/example.toml lists every key with its default".to_owned()),
    };
    let name = shown(&path.display().to_string());
    let read = std::fs::metadata(path).and_then(|metadata| {
        if metadata.len() > LONGEST_FILE {
            return Err(std::io::Error::other("longer than 1 MiB"));
        }
        std::fs::read_to_string(path)
    });
    match read {
        Ok(text) => parse_file(&name, &text, problems),
        Err(error) => {
            problems.push(unreadable(format!("{name}: {error}")));
            RawFile::default()
        }
    }
}

fn flag_entries(flags: &Flags) -> Vec<(&'static str, &'static str, Entry)> {
    let entry = |label: &str, value: RawValue| Entry {
        label: label.to_owned(),
        place: "the command line".to_owned(),
        value,
    };
    let mut entries = Vec::new();
    for (section, key, label, value) in [
        ("listen", "address", "--listen", &flags.listen),
        ("advertise", "mode", "--advertise", &flags.advertise),
        ("log", "level", "--log-level", &flags.log_level),
        ("log", "format", "--log-format", &flags.log_format),
    ] {
        if let Some(value) = value {
            entries.push((section, key, entry(label, RawValue::Word(value.clone()))));
        }
    }
    if flags.insecure_no_auth {
        entries.push((
            "listen",
            "insecure_no_auth",
            entry("--insecure-no-auth", RawValue::Bool(true)),
        ));
    }
    entries
}

/// What of a value may be shown: an address can carry a password.
fn found(value: &RawValue, shape: Shape) -> String {
    match (shape, value) {
        (Shape::Open, value) => value.to_string(),
        (Shape::Address, RawValue::Text(text) | RawValue::Word(text)) => {
            format!("\"{}\"", shown(&redacted(text)))
        }
        (Shape::Address, other) => other.to_string(),
        (Shape::Path, RawValue::Text(_) | RawValue::Word(_)) => "a text (not shown)".to_owned(),
        (Shape::Path, _) => "a value of another type (not shown)".to_owned(),
    }
}

/// How freely a found value may be shown.
#[derive(Clone, Copy)]
enum Shape {
    /// As it is.
    Open,
    /// Without credentials.
    Address,
    /// Not at all: people paste the secret where its file is wanted.
    Path,
}

struct Resolver {
    /// Of each key, the one that counts most last.
    entries: HashMap<(&'static str, &'static str), Vec<Entry>>,
    problems: Vec<Problem>,
    settings: Vec<Setting>,
}

/// A cluster that is not checked against the others yet.
struct Candidate {
    cluster: Cluster,
    label: String,
    place: String,
}

impl Resolver {
    fn scalars(&mut self) -> Config {
        let mut config = Config::default();

        let listen = &mut config.listen;
        self.set("listen", "address", &mut listen.address, quoted, |value| {
            parse_listen(&setting::text(
                value,
                "an IP address and a port, such as \"127.0.0.1:5678\"",
            )?)
        });
        self.set(
            "listen",
            "insecure_no_auth",
            &mut listen.insecure_no_auth,
            plain,
            setting::flag,
        );
        self.count(
            "listen",
            "max_connections",
            &mut listen.max_connections,
            1_000_000,
        );
        self.duration(
            "listen",
            "handshake_timeout",
            &mut listen.handshake_timeout,
            10 * MINUTE,
        );
        self.duration("listen", "silence", &mut listen.silence, MINUTE);
        // The kernel counts keepalive in whole seconds.
        self.duration_from(
            "listen",
            "keepalive",
            &mut listen.keepalive,
            Duration::from_secs(1),
            HOUR,
        );
        self.duration("listen", "drain_timeout", &mut listen.drain_timeout, DAY);

        let registry = &mut config.registry;
        let shortest_poll = Duration::from_millis(100);
        self.duration_from(
            "registry",
            "poll_interval",
            &mut registry.poll_interval,
            shortest_poll,
            MINUTE,
        );
        self.duration(
            "registry",
            "request_timeout",
            &mut registry.request_timeout,
            10 * MINUTE,
        );
        self.duration("registry", "backoff_max", &mut registry.backoff_max, HOUR);
        self.duration_from(
            "registry",
            "node_interval",
            &mut registry.node_interval,
            shortest_poll,
            HOUR,
        );
        self.duration("registry", "stale_after", &mut registry.stale_after, HOUR);
        self.set(
            "registry",
            "locations",
            &mut registry.locations,
            plain,
            setting::flag,
        );
        self.duration("registry", "keep_ended", &mut registry.keep_ended, DAY);

        let dap = &mut config.dap;
        self.duration(
            "dap",
            "connect_timeout",
            &mut dap.connect_timeout,
            10 * MINUTE,
        );
        self.size("dap", "max_frame", &mut dap.max_frame, 64 << 10, 1 << 30);
        self.size(
            "dap",
            "max_handshake_frame",
            &mut dap.max_handshake_frame,
            4 << 10,
            64 << 20,
        );
        self.set(
            "dap",
            "allow_terminate",
            &mut dap.allow_terminate,
            plain,
            setting::flag,
        );

        let http = &mut config.http;
        self.duration(
            "http",
            "header_timeout",
            &mut http.header_timeout,
            10 * MINUTE,
        );
        self.size(
            "http",
            "max_rewrite",
            &mut http.max_rewrite,
            64 << 10,
            1 << 30,
        );
        self.count(
            "http",
            "max_event_streams",
            &mut http.max_event_streams,
            100_000,
        );
        self.set(
            "http",
            "allowed_hosts",
            &mut http.allowed_hosts,
            |names| format!("{names:?}"),
            setting::host_names,
        );

        config.advertise = self.advertise();

        let log = &mut config.log;
        self.set("log", "level", &mut log.filter, quoted, setting::log_filter);
        self.set(
            "log",
            "format",
            &mut log.format,
            |format| match format {
                LogFormat::Text => quoted(&"text"),
                LogFormat::Json => quoted(&"json"),
            },
            |value| {
                setting::choice(
                    value,
                    &[("text", LogFormat::Text), ("json", LogFormat::Json)],
                )
            },
        );
        config
    }

    fn advertise(&mut self) -> Advertise {
        #[derive(Clone, Copy)]
        enum Mode {
            Single,
            Ports,
            Host,
        }
        const WORDS: [(&str, Mode); 3] = [
            ("single", Mode::Single),
            ("ports", Mode::Ports),
            ("host", Mode::Host),
        ];
        let mut mode = Mode::Single;
        let mut ports = 5700..=5731;
        let mut host = String::new();
        self.set(
            "advertise",
            "mode",
            &mut mode,
            |mode| quoted(&WORDS[*mode as usize].0),
            |value| setting::choice(value, &WORDS),
        );
        self.set(
            "advertise",
            "ports",
            &mut ports,
            |range| format!("\"{}-{}\"", range.start(), range.end()),
            setting::ports,
        );
        self.set(
            "advertise",
            "host",
            &mut host,
            quoted,
            setting::host_template,
        );
        if host.is_empty() {
            // It has no default, so there is nothing to show.
            self.settings.pop();
        }
        match mode {
            Mode::Single => Advertise::Single,
            Mode::Ports => Advertise::Ports(ports),
            Mode::Host => {
                if host.is_empty() && !self.entries.contains_key(&("advertise", "host")) {
                    self.problem(
                        "advertise.host",
                        "nothing, although advertise.mode is \"host\"",
                        "a host name with {id} once in it, such as \"{id}.debug.example.com\"",
                        "every name of that form has to lead to this relay (wildcard DNS)",
                    );
                }
                Advertise::Host(host)
            }
        }
    }

    fn clusters(
        &mut self,
        file: Option<Vec<RawCluster>>,
        environment: Option<&[String]>,
        flags: &[String],
    ) -> Vec<Cluster> {
        let mut chosen: Option<Vec<Candidate>> = None;
        if let Some(clusters) = file {
            let candidates: Vec<Candidate> = clusters
                .into_iter()
                .map(|raw| self.file_cluster(raw))
                .collect();
            self.check_names(&candidates);
            if !candidates.is_empty() {
                chosen = Some(candidates);
            }
        }
        let flags = (!flags.is_empty()).then_some(flags);
        for (texts, label, place) in [
            (environment, CLUSTERS_VARIABLE, "the environment"),
            (flags, "--ray-address", "the command line"),
        ] {
            let Some(texts) = texts else { continue };
            let candidates: Vec<Candidate> = texts
                .iter()
                .map(|text| self.named_cluster(text, label, place, chosen.as_deref()))
                .collect();
            self.check_names(&candidates);
            chosen = Some(candidates);
        }
        let candidates = chosen.unwrap_or_else(|| {
            vec![Candidate {
                cluster: Cluster::default(),
                label: String::new(),
                place: "default".to_owned(),
            }]
        });
        for Candidate { cluster, place, .. } in &candidates {
            let token_file = cluster
                .token_file
                .as_ref()
                .map(|path| quoted(&path.display()));
            for (key, value) in [
                ("name", Some(quoted(&cluster.name))),
                ("ray_address", Some(quoted(&cluster.ray_address))),
                ("token_file", token_file),
            ] {
                let Some(value) = value else { continue };
                self.settings.push(Setting {
                    section: "cluster",
                    key,
                    value,
                    origin: place.clone(),
                });
            }
        }
        candidates
            .into_iter()
            .map(|candidate| candidate.cluster)
            .collect()
    }

    fn file_cluster(&mut self, raw: RawCluster) -> Candidate {
        let mut cluster = Cluster::default();
        if let Some(entry) = &raw.name
            && let Some(name) = self.read(entry, Shape::Open, cluster_name)
        {
            cluster.name = name;
        }
        match &raw.ray_address {
            Some(entry) => {
                let read =
                    |value: &RawValue| parse_ray_address(&setting::text(value, "an address")?);
                if let Some(address) = self.read(entry, Shape::Address, read) {
                    cluster.ray_address = address;
                }
            }
            None => self.problems.push(Problem {
                key: "cluster.ray_address".to_owned(),
                place: raw.place.clone(),
                found: "a [[cluster]] without it".to_owned(),
                expected: "the address of the head's dashboard, such as \"http://127.0.0.1:8265\""
                    .to_owned(),
                hint: None,
            }),
        }
        if let Some(entry) = &raw.token_file {
            let read =
                |value: &RawValue| setting::text(value, "the path of a file with Ray's token");
            cluster.token_file = self.read(entry, Shape::Path, read).map(PathBuf::from);
        }
        Candidate {
            cluster,
            label: "cluster.name".to_owned(),
            place: raw.place,
        }
    }

    /// `NAME=URL`. A cluster that a source below names too keeps the token file given there: the
    /// address is what differs between places, and a token is not to be lost by overriding it.
    fn named_cluster(
        &mut self,
        text: &str,
        label: &str,
        place: &str,
        below: Option<&[Candidate]>,
    ) -> Candidate {
        let (name, url) = split_cluster(text);
        let mut cluster = Cluster::default();
        let entry = |value: &str| Entry {
            label: label.to_owned(),
            place: place.to_owned(),
            value: RawValue::Word(value.to_owned()),
        };
        if let Some(name) = name
            && let Some(name) = self.read(&entry(name), Shape::Open, cluster_name)
        {
            cluster.name = name;
        }
        let read = |value: &RawValue| parse_ray_address(&setting::text(value, "URL or NAME=URL")?);
        if let Some(address) = self.read(&entry(url), Shape::Address, read) {
            cluster.ray_address = address;
        }
        cluster.token_file = below
            .and_then(|below| {
                below
                    .iter()
                    .find(|candidate| candidate.cluster.name == cluster.name)
            })
            .and_then(|candidate| candidate.cluster.token_file.clone());
        Candidate {
            cluster,
            label: label.to_owned(),
            place: place.to_owned(),
        }
    }

    fn check_names(&mut self, candidates: &[Candidate]) {
        for (i, candidate) in candidates.iter().enumerate() {
            let name = &candidate.cluster.name;
            if candidates[..i]
                .iter()
                .any(|earlier| earlier.cluster.name == *name)
            {
                self.problems.push(Problem {
                    key: candidate.label.clone(),
                    place: candidate.place.clone(),
                    found: format!("a second cluster named \"{name}\""),
                    expected: "a name of its own for each cluster".to_owned(),
                    hint: Some(match candidate.label.as_str() {
                        "cluster.name" => "give it a `name`".to_owned(),
                        _ => "write NAME=URL, as in gpu=http://10.0.0.2:8265".to_owned(),
                    }),
                });
            }
        }
    }

    /// What no single value can be blamed for.
    fn cross_checks(&mut self, config: &Config) {
        let listen = &config.listen;
        if !listen.address.ip().is_loopback() && !listen.insecure_no_auth {
            self.problem(
                "listen.address",
                &format!("{}, which other machines can reach", listen.address),
                "a loopback address, such as 127.0.0.1:5678",
                "whoever reaches this port can run code in every paused task, and the relay does not authenticate anybody yet; \
                 keep 127.0.0.1 and use `kubectl port-forward svc/ray-relay 5678`, or give --insecure-no-auth on a network that is closed to others",
            );
        }
        if listen.silence >= listen.handshake_timeout {
            self.problem(
                "listen.silence",
                &format_duration(listen.silence),
                &format!(
                    "less than listen.handshake_timeout ({})",
                    format_duration(listen.handshake_timeout)
                ),
                "a connection that says nothing would be closed before it is taken for a terminal",
            );
        }
        let registry = &config.registry;
        for (key, value) in [
            ("registry.backoff_max", registry.backoff_max),
            ("registry.stale_after", registry.stale_after),
        ] {
            if value < registry.poll_interval {
                self.problem(
                    key,
                    &format_duration(value),
                    &format!(
                        "at least registry.poll_interval ({})",
                        format_duration(registry.poll_interval)
                    ),
                    "lengthen it, or poll more often",
                );
            }
        }
        if config.dap.max_handshake_frame > config.dap.max_frame {
            self.problem(
                "dap.max_handshake_frame",
                &format_size(config.dap.max_handshake_frame),
                &format!(
                    "at most dap.max_frame ({})",
                    format_size(config.dap.max_frame)
                ),
                "the messages before attach are the small ones",
            );
        }
        if let Advertise::Ports(ports) = &config.advertise
            && ports.contains(&listen.address.port())
        {
            self.problem(
                "advertise.ports",
                &format!("{}-{}", ports.start(), ports.end()),
                &format!(
                    "a range without the port of listen.address ({})",
                    listen.address.port()
                ),
                "choose another range",
            );
        }
    }

    fn problem(&mut self, key: &str, found: &str, expected: &str, hint: &str) {
        // Shown where the value was given, or as a default that does not fit.
        let place = key
            .split_once('.')
            .and_then(|(section, key)| {
                self.settings
                    .iter()
                    .find(|s| s.section == section && s.key == key)
            })
            .map_or("default", |setting| setting.origin.as_str());
        self.problems.push(Problem {
            key: key.to_owned(),
            place: place.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
            hint: Some(hint.to_owned()),
        });
    }

    fn read<T>(
        &mut self,
        entry: &Entry,
        shape: Shape,
        read: impl Fn(&RawValue) -> Read<T>,
    ) -> Option<T> {
        match read(&entry.value) {
            Ok(value) => Some(value),
            Err(Wrong { expected, hint }) => {
                self.problems.push(Problem {
                    key: entry.label.clone(),
                    place: entry.place.clone(),
                    found: found(&entry.value, shape),
                    expected,
                    hint,
                });
                None
            }
        }
    }

    /// Reads `section.key` from every source that gives it, the last one counts.
    fn set<T>(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut T,
        show: impl Fn(&T) -> String,
        read: impl Fn(&RawValue) -> Read<T>,
    ) {
        let entries = self
            .entries
            .get(&(section, key))
            .cloned()
            .unwrap_or_default();
        let mut origin = "default".to_owned();
        for entry in &entries {
            if let Some(value) = self.read(entry, Shape::Open, &read) {
                *slot = value;
                origin = match entry.label.contains('.') {
                    true => entry.place.clone(),
                    false => entry.label.clone(),
                };
            }
        }
        self.settings.push(Setting {
            section,
            key,
            value: show(slot),
            origin,
        });
    }

    fn count(&mut self, section: &'static str, key: &'static str, slot: &mut usize, most: usize) {
        self.set(section, key, slot, plain, |value| {
            setting::count(value, 1..=most)
        });
    }

    fn duration(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut Duration,
        longest: Duration,
    ) {
        self.duration_from(section, key, slot, SHORTEST, longest);
    }

    fn duration_from(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut Duration,
        shortest: Duration,
        longest: Duration,
    ) {
        self.set(
            section,
            key,
            slot,
            |d| quoted(&format_duration(*d)),
            |value| setting::duration(value, shortest..=longest),
        );
    }

    fn size(
        &mut self,
        section: &'static str,
        key: &'static str,
        slot: &mut usize,
        least: usize,
        most: usize,
    ) {
        self.set(
            section,
            key,
            slot,
            |s| quoted(&format_size(*s)),
            |value| setting::size(value, least..=most),
        );
    }
}

fn cluster_name(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "a name of lower-case letters, digits and -, at most 63 characters";
    let name = setting::text(value, EXPECTED)?;
    let fits = name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        Ok(name)
    } else {
        Err(Wrong {
            expected: EXPECTED.to_owned(),
            hint: None,
        })
    }
}

fn quoted(value: &impl std::fmt::Display) -> String {
    format!("{:?}", value.to_string())
}

fn plain(value: &impl std::fmt::Display) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests;
