//! Tests the reports of problems: all of them, each with its location, without secrets.

use super::*;

#[test]
fn all_problems_are_reported_at_once() {
    let file = "\
[listen]
addres = \"127.0.0.1:1\"
max_connections = \"many\"
keepalive = 5
[registri]
poll_interval = \"1s\"
[registry]
poll_interval = \"1h\"
keepalive = \"1s\"
locations = \"yes\"
[[cluster]]
name = \"A\"
ray_address = \"http://user:hunter2@head\"
[[cluster]]
name = \"b\"
token = \"hunter2\"
";
    let environment = [
        ("RAY_RELAY_LISTEN_ADRESS", "x"),
        ("RAY_RELAY_LOG_LEVEL", "inof"),
    ];
    let problems = problems(file, &environment);
    let summary: Vec<(&str, &str, &str)> = problems
        .iter()
        .map(|p| {
            let line = p.place.rsplit_once(' ').unwrap().1;
            (p.key.as_str(), line, p.hint.as_deref().unwrap_or(""))
        })
        .collect();
    let no_unit = "a bare number has no unit: write \"5s\" or \"5ms\"";
    let no_credentials = "no user name or password in the address: Ray takes a token, which belongs in a file that token_file names";
    let suggestion = "did you mean RAY_RELAY_LISTEN_ADDRESS?";
    assert_eq!(
        summary,
        [
            ("listen.addres", "2", "did you mean `address`?"),
            ("registri", "5", "did you mean [registry]?"),
            ("registry.keepalive", "9", "`keepalive` belongs in [listen]"),
            ("cluster.token", "16", "did you mean `token_file`?"),
            ("RAY_RELAY_LISTEN_ADRESS", "environment", suggestion),
            ("listen.max_connections", "3", "without quotation marks"),
            ("listen.keepalive", "4", no_unit),
            ("registry.poll_interval", "8", ""),
            ("registry.locations", "10", "without quotation marks"),
            ("RAY_RELAY_LOG_LEVEL", "environment", "did you mean info?"),
            ("cluster.name", "12", ""),
            ("cluster.ray_address", "13", no_credentials),
            ("cluster.ray_address", "14", ""),
        ]
    );
    let text = Problems { problems }.to_string();
    assert!(!text.contains("hunter2"), "{text}");
    let detail = "found     \"1h\"\n    expected  a duration with its unit, from 100ms to 1m\n";
    assert!(text.contains(detail), "{text}");
}

#[test]
fn removed_key_names_its_replacement() {
    let silence = problem("[listen]\nsilence = \"2s\"\n");
    assert_eq!(silence.key, "listen.silence");
    let variable = problems("", &[("RAY_RELAY_LISTEN_SILENCE", "2s")]).remove(0);
    for problem in [silence, variable] {
        let hint = problem.hint.unwrap();
        for word in ["handshake_timeout", "remove"] {
            assert!(hint.contains(word), "{hint}");
        }
    }
    let problem = problem("[http]\nmax_rewrite = \"1GiB\"\n");
    assert_eq!(
        problem.hint.unwrap(),
        "the key is gone: a dashboard answer that is changed may have 64MiB; remove it"
    );
}

#[test]
fn invalid_toml_is_located_without_quotation() {
    let problem = problem("[listen]\naddress = \"hunter2\nkeepalive = \"1s\"\n");
    assert!(problem.place.ends_with("line 2"), "{problem:?}");
    assert!(!format!("{problem:?}").contains("hunter2"));
}

#[test]
fn unreadable_file_is_a_problem() {
    let mut sources = Sources::default();
    sources.flags.config = Some("/nonexistent/relay.toml".into());
    let error = resolve(&sources).unwrap_err();
    assert_eq!(error.problems[0].key, "--config");
    assert!(error.problems[0].found.contains("/nonexistent/relay.toml"));
    sources.flags.config = None;
    sources.environment = vec![("RAY_RELAY_CONFIG".into(), "/".into())];
    let error = resolve(&sources).unwrap_err();
    assert_eq!(error.problems[0].key, "RAY_RELAY_CONFIG");
}

#[test]
fn secret_in_place_of_a_key_file_is_not_shown() {
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
