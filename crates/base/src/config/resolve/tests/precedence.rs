//! Tests the precedence of flags, environment, file and defaults.

use std::time::Duration;

use super::*;
use crate::config::LogFormat;
use crate::config::sources::{keys, variable};
use crate::config::units::parse_duration;

#[test]
fn flags_override_environment_file_and_defaults() {
    let file =
        "[listen]\naddress = \"127.0.0.1:1001\"\nhandshake_timeout = \"1s\"\nkeepalive = \"5s\"\n";
    let timeout = "RAY_RELAY_LISTEN_HANDSHAKE_TIMEOUT";
    let environment = [
        ("RAY_RELAY_LISTEN_ADDRESS", "127.0.0.1:1002"),
        (timeout, "3s"),
    ];
    let mut test_sources = test_sources(file, &environment);
    let config = resolve(&test_sources.sources).unwrap().config;
    assert_eq!(config.listen.address.port(), 1002);
    assert_eq!(config.listen.handshake_timeout, Duration::from_secs(3));
    assert_eq!(config.listen.keepalive, Duration::from_secs(5));
    assert_eq!(config.listen.drain_timeout, Duration::from_secs(30));
    test_sources.sources.flags.listen = Some("[::1]:1003".to_owned());
    let resolved = resolve(&test_sources.sources).unwrap();
    assert_eq!(resolved.config.listen.address.port(), 1003);
    let origin = |key: &str| {
        let mut settings = resolved.settings.iter();
        &*settings.find(|s| s.key == key).unwrap().origin
    };
    assert_eq!(origin("address"), "--listen");
    assert_eq!(origin("handshake_timeout"), timeout);
    let file_origin = origin("keepalive");
    assert!(file_origin.ends_with("relay.toml line 4"), "{file_origin}");
    assert_eq!(origin("drain_timeout"), "default");
}

#[test]
fn every_scalar_key_is_read_from_the_environment() {
    let other = |key: &str| match key {
        "address" => "127.0.0.1:7000",
        "insecure_no_auth" | "locations" | "allow_terminate" | "allow_attach" | "metrics_open" => {
            "true"
        }
        "commands" | "enabled" | "defaults" | "email" => "true",
        "names" | "types" => "pin, *_pin",
        "values" => r"\d{3,5}",
        "max_connections" | "max_event_streams" | "max_links" => "7",
        "keys" | "issuer" => "/a, /b",
        "audience" | "policy_file" | "revocations_file" | "ticket_key_file" => "/c",
        "memory" => "1GiB",
        "max_frame" | "max_value" | "max_size" => "2MiB",
        "sink" => "stdout",
        "syslog" => "udp://logs:514",
        "on_failure" => "allow",
        "key_file" | "dir" => "/var/x",
        "allowed_hosts" => "a.example.com, b",
        "mode" => "host",
        "clusters" => "default",
        "ports" => "6000-6001",
        "host" => "{id}.x",
        "level" => "ray_relay=debug,warn",
        "format" => "json",
        "timeout" => "3s",
        "audiences" => "a, b",
        "namespace" => "ray",
        "namespaces" => "ml, serve",
        "file" | "ca_file" | "token_file" => "/some/file",
        "url" | "api_server" | "link" | "otlp" => "https://a.example.com/x",
        "on" => "paused, died",
        _ => "",
    };
    let value = |section: &str, key: &str| match (section, key) {
        // With TLS on, the files would be read.
        ("tls", "mode" | "client_auth") => "off",
        ("tls", "min_version") => "1.3",
        ("tls", _) => "/etc/tls/file.pem",
        ("audit", "keep") => "7",
        ("recording", "keep") => "2MiB",
        ("http", "dashboard_hosts") => "{cluster}.ray.example.com",
        (_, key) => other(key),
    };
    // A new key needs no line above if its default can be set.
    let defaults = resolve(&Sources::default()).unwrap().settings;
    let by_default = |section: &str, key: &str| {
        let mut settings = defaults.iter();
        let setting = settings.find(|s| (s.section, s.key) == (section, key));
        let value = setting.map_or("", |setting| setting.value.trim_matches('"'));
        match value.is_empty() || parse_duration(value).is_ok() {
            true => "11s".to_owned(),
            false => value.to_owned(),
        }
    };
    let environment = keys()
        // `jwks.file` excludes `jwks.url`.
        .filter(|key| *key != ("jwks", "file"))
        .map(|(section, key)| match value(section, key) {
            "" => (
                variable(section, key).into(),
                by_default(section, key).into(),
            ),
            value => (variable(section, key).into(), value.into()),
        });
    let sources = Sources {
        environment: environment.collect(),
        ..Sources::default()
    };
    let resolved = resolve(&sources).unwrap();
    let settings = resolved.settings.iter();
    for setting in settings.filter(|setting| setting.section != "cluster") {
        assert_eq!(setting.origin, variable(setting.section, setting.key));
    }
    assert_eq!(resolved.config.http.allowed_hosts, ["a.example.com", "b"]);
    assert_eq!(resolved.config.log.format, LogFormat::Json);
}

#[test]
fn clusters_come_from_the_highest_source_only() {
    let file = "[[cluster]]\nray_address = \"http://one\"\ntoken_file = \"/t\"\n[[cluster]]\nname = \"b\"\nray_address = \"https://two/x/\"\n";
    let names = |config: &Config| {
        let clusters = config.clusters.iter();
        let names = clusters.map(|c| format!("{}={}", c.name, c.ray_address));
        names.collect::<Vec<_>>().join(" ")
    };
    let of_file = names(&config(file, &[]));
    assert_eq!(of_file, "default=http://one:8265 b=https://two/x");
    let environment = [("RAY_RELAY_RAY_ADDRESS", "http://three:1, gpu=http://four")];
    let from_environment = config(file, &environment);
    let expected = "default=http://three:1 gpu=http://four:8265";
    assert_eq!(names(&from_environment), expected);
    // A cluster keeps the token file of the cluster with its name.
    assert_eq!(from_environment.clusters[0].token_file, Some("/t".into()));
    assert_eq!(from_environment.clusters[1].token_file, None);
    let mut test_sources = test_sources(file, &environment);
    test_sources.sources.flags.ray_address = vec!["x=http://five".to_owned()];
    let by_flags = resolve(&test_sources.sources).unwrap().config;
    assert_eq!(names(&by_flags), "x=http://five:8265");
}

#[test]
fn kubernetes_service_variables_are_ignored() {
    let injected = [
        ("RAY_RELAY_SERVICE_HOST", "10.0.0.1"),
        ("RAY_RELAY_SERVICE_PORT", "5678"),
        ("RAY_RELAY_SERVICE_PORT_DAP", "5678"),
        ("RAY_RELAY_PORT", "tcp://10.0.0.1:5678"),
        ("RAY_RELAY_PORT_5678_TCP", "tcp://10.0.0.1:5678"),
        ("RAY_RELAY_PORT_5678_TCP_PROTO", "tcp"),
        ("RAY_RELAY_PORT_5678_TCP_PORT", "5678"),
        ("RAY_RELAY_PORT_5678_TCP_ADDR", "10.0.0.1"),
        ("RAY_RELAY_METRICS_SERVICE_HOST", "10.0.0.1"),
        ("RAY_RELAY_METRICS_PORT", "tcp://10.0.0.1:9090"),
        ("RAY_RELAY_METRICS_PORT_9090_TCP_ADDR", "10.0.0.1"),
        ("RAY_RELAY_URL", "http://relay"),
        ("RAY_RELAY_TOKEN", "eyJ"),
        ("RAY_RELAY_DEMO_CLUSTER", "1"),
        ("RAY_RELAY_LOG_FORMAT", ""),
    ];
    assert_eq!(config("", &injected), Config::default());
    for (name, suggestion) in [
        ("RAY_RELAY_PORT", ""),
        ("RAY_RELAY_LISTEN_PORT", ""),
        ("RAY_RELAY_LOGLEVEL", "RAY_RELAY_LOG_LEVEL"),
    ] {
        let problems = problems("", &[(name, "5678")]);
        assert_eq!(problems[0].key, name);
        assert!(problems[0].hint.as_deref().unwrap().contains(suggestion));
    }
}
