//! Precedence, problems and the example file.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::time::Duration;

use super::*;
use crate::config::raw::SECTIONS;
use crate::config::sources::variable;
use crate::config::{Advertise, LogFormat};

const EXAMPLE: &str = include_str!("../../../config/example.toml");

struct Given {
    _dir: tempfile::TempDir,
    sources: Sources,
}

/// Sources with `file` as the configuration file.
fn given(file: &str, environment: &[(&str, &str)]) -> Given {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.toml");
    std::fs::write(&path, file).unwrap();
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect();
    Given {
        _dir: dir,
        sources: Sources { environment, flags },
    }
}

fn config(file: &str, environment: &[(&str, &str)]) -> Config {
    resolve(&given(file, environment).sources).unwrap().config
}

fn problems(file: &str, environment: &[(&str, &str)]) -> Vec<Problem> {
    resolve(&given(file, environment).sources)
        .unwrap_err()
        .problems
}

/// The only problem.
fn problem(file: &str) -> Problem {
    let mut problems = problems(file, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}

#[test]
fn the_example_equals_the_defaults() {
    assert_eq!(config(EXAMPLE, &[]), Config::default());
    assert_eq!(config("", &[]), Config::default());
}

#[test]
fn the_example_names_every_key_and_each_with_its_default() {
    let table: toml::Table = EXAMPLE.parse().unwrap();
    for (section, keys) in SECTIONS {
        for key in *keys {
            let given = table[*section].get(*key).is_some();
            let commented = EXAMPLE.contains(&format!("\n# {key} = "));
            assert!(given != commented, "{section}.{key}");
        }
    }
    // The values say where they came from: the file, for all but those without a default.
    let given = given(EXAMPLE, &[]);
    for setting in resolve(&given.sources).unwrap().settings {
        assert_ne!(
            setting.origin, "default",
            "{}.{}",
            setting.section, setting.key
        );
    }
}

#[test]
fn commented_values_of_the_example_are_right_too() {
    let uncommented = EXAMPLE
        .replace("\n# token_file", "\ntoken_file")
        .replace("\n# api_server", "\napi_server")
        .replace("\n# ca_file", "\nca_file")
        .replace("\n# namespace", "\nnamespace")
        .replace("\n# url", "\nurl")
        .replace("\n# host = ", "\nhost = ")
        .replace("\n# file = \"/var", "\nfile = \"/var")
        .replace(
            "\n# key_file = \"/etc/ray-relay/audit",
            "\nkey_file = \"/etc/ray-relay/audit",
        )
        .replace("\n# dir = ", "\ndir = ");
    let config = config(&uncommented, &[]);
    assert!(config.clusters[0].token_file.is_some());
    assert!(config.kubernetes.ca_file.is_some() && config.jwks.url.is_some());
    assert!(config.audit.file.is_some() && config.audit.key_file.is_some());
    assert!(config.recording.dir.is_some());
    let host = resolve(
        &given(
            &uncommented.replace("mode = \"single\"", "mode = \"host\""),
            &[],
        )
        .sources,
    );
    assert_eq!(
        host.unwrap().config.advertise,
        Advertise::Host("{id}.debug.example.com".to_owned())
    );
}

#[test]
fn flags_go_over_the_environment_over_the_file_over_defaults() {
    let file = "[listen]\naddress = \"127.0.0.1:1001\"\nsilence = \"1s\"\nkeepalive = \"5s\"\n";
    let mut given = given(
        file,
        &[
            ("RAY_RELAY_LISTEN_ADDRESS", "127.0.0.1:1002"),
            ("RAY_RELAY_LISTEN_SILENCE", "3s"),
        ],
    );
    let config = resolve(&given.sources).unwrap().config;
    assert_eq!(config.listen.address.port(), 1002);
    assert_eq!(config.listen.silence, Duration::from_secs(3));
    assert_eq!(config.listen.keepalive, Duration::from_secs(5));
    assert_eq!(config.listen.drain_timeout, Duration::from_secs(30));
    given.sources.flags.listen = Some("[::1]:1003".to_owned());
    let resolved = resolve(&given.sources).unwrap();
    assert_eq!(resolved.config.listen.address.port(), 1003);
    let origin = |key: &str| {
        resolved
            .settings
            .iter()
            .find(|s| s.key == key)
            .unwrap()
            .origin
            .clone()
    };
    assert_eq!(origin("address"), "--listen");
    assert_eq!(origin("silence"), "RAY_RELAY_LISTEN_SILENCE");
    assert!(
        origin("keepalive").ends_with("relay.toml line 4"),
        "{}",
        origin("keepalive")
    );
    assert_eq!(origin("drain_timeout"), "default");
}

#[test]
fn every_scalar_key_can_be_given_in_the_environment() {
    let other = |key: &str| match key {
        "address" => "127.0.0.1:7000",
        "insecure_no_auth" | "locations" | "allow_terminate" | "metrics_open" | "commands" => {
            "true"
        }
        "enabled" | "defaults" | "email" => "true",
        "names" | "types" => "pin, *_pin",
        "values" => r"\d{3,5}",
        "max_connections" | "max_event_streams" | "throttle_after" => "7",
        "keys" | "issuer" => "/a, /b",
        "audience" | "policy_file" | "revocations_file" | "ticket_key_file" => "/c",
        "max_token" => "9KiB",
        "max_frame" | "max_rewrite" | "max_value" | "max_size" => "2MiB",
        "sink" => "stdout",
        "syslog" => "udp://logs:514",
        "sync" => "always",
        "on_failure" => "allow",
        "key_file" | "dir" => "/var/x",
        "max_handshake_frame" => "8KiB",
        "allowed_hosts" => "a.example.com, b",
        "discovery" => "gcs",
        "mode" => "host",
        "clusters" => "default",
        "ports" => "6000-6001",
        "host" => "{id}.x",
        "level" => "ray_relay=debug,warn",
        "format" => "json",
        "silence" => "1500ms",
        "timeout" => "3s",
        "audiences" => "a, b",
        "cache_entries" => "9",
        "namespace" => "ray",
        "file" | "ca_file" | "token_file" => "/some/file",
        "url" | "api_server" => "https://a.example.com/x",
        _ => "11s",
    };
    let value = |section: &str, key: &str| match (section, key) {
        // The files are looked at where TLS is on.
        ("tls", "mode" | "client_auth") => "off",
        ("tls", "min_version") => "1.3",
        ("tls", _) => "/etc/tls/file.pem",
        ("audit", "keep") => "7",
        ("recording", "keep") => "2MiB",
        (_, key) => other(key),
    };
    let environment: Vec<(String, &str)> = SECTIONS
        .iter()
        .flat_map(|(section, keys)| {
            keys.iter()
                // One or the other.
                .filter(|key| (*section, **key) != ("jwks", "file"))
                .map(|key| (variable(section, key), value(section, key)))
        })
        .collect();
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let resolved = resolve(&given("", &environment).sources).unwrap();
    for setting in resolved
        .settings
        .iter()
        .filter(|setting| setting.section != "cluster")
    {
        assert_eq!(setting.origin, variable(setting.section, setting.key));
    }
    assert_eq!(resolved.config.http.allowed_hosts, ["a.example.com", "b"]);
    assert_eq!(resolved.config.log.format, LogFormat::Json);
    assert_eq!(resolved.config.masking.names, ["pin", "*_pin"]);
    assert_eq!(resolved.config.masking.values, [r"\d{3,5}"]);
}

#[test]
fn rules_for_masking_that_hide_everything_or_nothing_are_refused() {
    for (key, value) in [
        ("names", "['*']"),
        ("types", "['_*']"),
        ("names", "['']"),
        ("values", "['(']"),
        ("values", "['a*']"),
        ("values", "['(?:[a-z]{1000}){1000}']"),
        ("values", "[3]"),
        ("max_value", "'10B'"),
    ] {
        let problem = problem(&format!("[masking]\n{key} = {value}\n"));
        assert_eq!(problem.key, format!("masking.{key}"), "{value}");
    }
}

#[test]
fn clusters_come_whole_from_the_source_that_counts_most() {
    let file = "[[cluster]]\nray_address = \"http://one\"\ntoken_file = \"/t\"\n[[cluster]]\nname = \"b\"\nray_address = \"https://two/x/\"\n";
    let names = |config: &Config| -> Vec<String> {
        config
            .clusters
            .iter()
            .map(|c| format!("{}={}", c.name, c.ray_address))
            .collect()
    };
    assert_eq!(
        names(&config(file, &[])),
        ["default=http://one:8265", "b=https://two/x"]
    );
    let environment = [("RAY_RELAY_RAY_ADDRESS", "http://three:1, gpu=http://four")];
    let from_environment = config(file, &environment);
    assert_eq!(
        names(&from_environment),
        ["default=http://three:1", "gpu=http://four:8265"]
    );
    // The token of the cluster with the same name is kept, of others there is none.
    assert_eq!(from_environment.clusters[0].token_file, Some("/t".into()));
    assert_eq!(from_environment.clusters[1].token_file, None);
    let mut given = given(file, &environment);
    given.sources.flags.ray_address = vec!["x=http://five".to_owned()];
    assert_eq!(
        names(&resolve(&given.sources).unwrap().config),
        ["x=http://five:8265"]
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let file = "\
[listen]
addres = \"127.0.0.1:1\"
max_connections = \"many\"
silence = 5
[registri]
poll_interval = \"1s\"
[registry]
poll_interval = \"1h\"
silence = \"1s\"
locations = \"yes\"
[[cluster]]
name = \"A\"
ray_address = \"http://user:hunter2@head\"
[[cluster]]
name = \"b\"
token = \"hunter2\"
";
    let problems = problems(
        file,
        &[
            ("RAY_RELAY_LISTEN_ADRESS", "x"),
            ("RAY_RELAY_LOG_LEVEL", "inof"),
        ],
    );
    let seen: Vec<(&str, &str, &str)> = problems
        .iter()
        .map(|p| {
            let line = p.place.rsplit_once(' ').unwrap().1;
            (p.key.as_str(), line, p.hint.as_deref().unwrap_or(""))
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("listen.addres", "2", "did you mean `address`?"),
            ("registri", "5", "did you mean [registry]?"),
            ("registry.silence", "9", "`silence` belongs in [listen]"),
            ("cluster.token", "16", "did you mean `token_file`?"),
            (
                "RAY_RELAY_LISTEN_ADRESS",
                "environment",
                "did you mean RAY_RELAY_LISTEN_ADDRESS?"
            ),
            ("listen.max_connections", "3", "without quotation marks"),
            (
                "listen.silence",
                "4",
                "a bare number has no unit: write \"5s\" or \"5ms\""
            ),
            ("registry.poll_interval", "8", ""),
            ("registry.locations", "10", "without quotation marks"),
            ("RAY_RELAY_LOG_LEVEL", "environment", "did you mean info?"),
            ("cluster.name", "12", ""),
            (
                "cluster.ray_address",
                "13",
                "no user name or password in the address: Ray takes a token, which belongs in a file that token_file names"
            ),
            ("cluster.ray_address", "14", ""),
        ]
    );
    let text = Problems { problems }.to_string();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(
        text.contains(
            "found     \"1h\"\n    expected  a duration with its unit, from 100ms to 1m\n"
        ),
        "{text}"
    );
}

#[test]
fn broken_toml_says_where_without_quoting_it() {
    let problem = problem("[listen]\naddress = \"hunter2\nsilence = \"1s\"\n");
    assert!(problem.place.ends_with("line 2"), "{problem:?}");
    assert!(!format!("{problem:?}").contains("hunter2"));
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let flags = Flags {
        config: Some("/nonexistent/relay.toml".into()),
        ..Flags::default()
    };
    let error = resolve(&Sources {
        flags,
        ..Sources::default()
    })
    .unwrap_err();
    assert_eq!(error.problems[0].key, "--config");
    assert!(error.problems[0].found.contains("/nonexistent/relay.toml"));
    let environment = vec![("RAY_RELAY_CONFIG".into(), "/".into())];
    let error = resolve(&Sources {
        environment,
        ..Sources::default()
    })
    .unwrap_err();
    assert_eq!(error.problems[0].key, "RAY_RELAY_CONFIG");
}

#[test]
fn other_machines_are_let_in_only_on_purpose() {
    let problem = problem("[listen]\naddress = \"0.0.0.0:5678\"\n");
    assert_eq!(problem.key, "listen.address");
    let hint = problem.hint.unwrap();
    for word in [
        "run code",
        "nobody is authenticated",
        "--auth-key",
        "kubectl port-forward",
        "--insecure-no-auth",
    ] {
        assert!(hint.contains(word), "{hint}");
    }
    let open = config(
        "[listen]\naddress = \"0.0.0.0:5678\"\ninsecure_no_auth = true\n",
        &[],
    );
    assert!(open.listen.address.ip().is_unspecified());
    let mut given = given("[listen]\naddress = \"0.0.0.0:5678\"\n", &[]);
    given.sources.flags.auth_key = vec!["/a,b.pub".to_owned(), "/c.pub".to_owned()];
    let resolved = resolve(&given.sources).unwrap();
    let keys: [std::path::PathBuf; 2] = ["/a,b.pub".into(), "/c.pub".into()];
    assert_eq!(resolved.config.auth.keys, keys);
    let shown = resolved.settings.iter().find(|s| s.key == "keys").unwrap();
    assert_eq!(
        (&*shown.value, &*shown.origin),
        (r#"["/a,b.pub", "/c.pub"]"#, "--auth-key")
    );
}

#[test]
fn what_stands_in_the_place_of_a_key_file_is_not_shown() {
    for (section, key, value) in [
        ("auth", "keys", "\"hs256:c2VjcmV0c2VjcmV0\""),
        ("auth", "ticket_key_file", "[\"c2VjcmV0\"]"),
        ("audit", "key_file", "[\"c2VjcmV0\"]"),
    ] {
        let problem = problem(&format!("[{section}]\n{key} = {value}\n"));
        assert_eq!(problem.key, format!("{section}.{key}"));
        assert!(!format!("{problem:?}").contains("c2VjcmV0"), "{problem:?}");
    }
}

#[test]
fn values_have_to_fit_together() {
    for (file, key) in [
        ("[listen]\nsilence = \"10s\"\n", "listen.silence"),
        (
            "[registry]\npoll_interval = \"20s\"\n",
            "registry.stale_after",
        ),
        ("[dap]\nmax_frame = \"64KiB\"\n", "dap.max_handshake_frame"),
        (
            "[advertise]\nmode = \"ports\"\nports = \"5670-5690\"\n",
            "advertise.ports",
        ),
        ("[advertise]\nmode = \"host\"\n", "advertise.host"),
        ("[auth]\nleeway = \"6m\"\n", "auth.leeway"),
        ("[auth]\nissuer = \"x\"\n", "auth.issuer"),
        ("[auth]\nthrottle_delay = \"2m\"\n", "auth.throttle_max"),
        ("[auth]\naudience = \"ray-relay-ticket\"\n", "auth.audience"),
        (
            "[advertise]\nhost = \"debug.example.com\"\n",
            "advertise.host",
        ),
        (
            "[[cluster]]\nray_address = \"http://a\"\n[[cluster]]\nray_address = \"http://b\"\n",
            "cluster.name",
        ),
        ("cluster = 1\n", "cluster"),
        ("listen = 1\n", "listen"),
        ("address = \"x\"\n", "address"),
        (
            "[http]\nallowed_hosts = [\"http://x\"]\n",
            "http.allowed_hosts",
        ),
        ("[audit]\nsink = \"file\"\n", "audit.file"),
        ("[audit]\nsyslog = \"logs:514\"\n", "audit.syslog"),
        ("[recording]\nmax_size = \"1B\"\n", "recording.max_size"),
        (
            "[registry]\nrequest_timeout = \"0s\"\n",
            "registry.request_timeout",
        ),
    ] {
        assert_eq!(problem(file).key, key, "{file}");
    }
}

#[test]
fn variables_of_a_kubernetes_service_are_no_configuration() {
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
    for (name, near) in [
        ("RAY_RELAY_PORT", ""),
        ("RAY_RELAY_LISTEN_PORT", ""),
        ("RAY_RELAY_LOGLEVEL", "RAY_RELAY_LOG_LEVEL"),
    ] {
        let problems = problems("", &[(name, "5678")]);
        assert_eq!(problems[0].key, name);
        assert!(problems[0].hint.as_deref().unwrap().contains(near));
    }
}

#[test]
fn a_level_that_is_misspelt_is_not_taken_for_a_module() {
    assert!(resolve(&given("[log]\nlevel = \"ray_relay::dap=debug,info\"\n", &[]).sources).is_ok());
    assert_eq!(
        problem("[log]\nlevel = \"dbug\"\n").hint.unwrap(),
        "did you mean debug?"
    );
    assert!(problem("[log]\nlevel = \"a=b=c=d\"\n").hint.is_none());
}

#[test]
fn identity_providers_are_only_asked_where_nobody_can_answer_for_them() {
    for (file, key) in [
        (
            "[jwks]\nurl = \"http://login.example.com/keys\"",
            "jwks.url",
        ),
        (
            "[jwks]\nurl = \"https://me:secret@login.example.com/keys\"",
            "jwks.url",
        ),
        ("[jwks]\nurl = \"file:///keys\"", "jwks.url"),
        (
            "[jwks]\nfile = \"/k\"\nurl = \"https://login.example.com/keys\"",
            "jwks.file",
        ),
        ("[jwks]\nca_file = \"/ca\"", "jwks.ca_file"),
        ("[jwks]\nmax_stale = \"1m\"", "jwks.max_stale"),
        ("[kubernetes]\naudiences = []", "kubernetes.audiences"),
        ("[kubernetes]\naudiences = [\"\"]", "kubernetes.audiences"),
        ("[kubernetes]\nnamespace = \"Ray_\"", "kubernetes.namespace"),
        (
            "[kubernetes]\napi_server = \"http://10.0.0.1\"\ntoken_file = \"/t\"",
            "kubernetes.api_server",
        ),
        (
            "[kubernetes]\napi_server = \"https://10.0.0.1\"",
            "kubernetes.api_server",
        ),
        ("[kubernetes]\nca_file = \"/ca\"", "kubernetes.ca_file"),
        ("[kubernetes]\ntoken_file = \"/t\"", "kubernetes.token_file"),
    ] {
        // A value that is wrong by itself may leave its companions without it.
        let found = problems(file, &[]);
        assert!(
            found.iter().any(|problem| problem.key == key),
            "{file}: {found:#?}"
        );
        assert!(!format!("{found:?}").contains("secret"), "{found:#?}");
    }
    let config = config(
        "[jwks]\nurl = \"http://[::1]:1/keys\"\n[kubernetes]\nenabled = true\napi_server = \"http://127.0.0.1:2\"\ntoken_file = \"/t\"",
        &[],
    );
    assert!(config.jwks.is_given() && config.kubernetes.enabled);
}

#[test]
fn client_certificates_want_rules_for_those_who_have_them() {
    let file = "[tls]\nmode = \"required\"\ncert_file = \"/c\"\nkey_file = \"/k\"\nclient_auth = \"required\"\nclient_ca_file = \"/a\"\n";
    let problems = resolve(&given(file, &[]).sources).unwrap_err().problems;
    assert!(
        problems
            .iter()
            .any(|p| p.expected.contains("auth.policy_file"))
    );
    let file = format!("{file}[auth]\npolicy_file = \"/p\"\n");
    let problems = resolve(&given(&file, &[]).sources).unwrap_err().problems;
    assert!(
        !problems
            .iter()
            .any(|p| p.expected.contains("auth.policy_file"))
    );
}
