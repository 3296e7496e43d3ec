//! `ray-relay config check`, and `serve` where the configuration is wrong.

use serde_json::{Value, json};

use super::support::{err, out, ray_relay, run};

#[test]
fn a_wrong_configuration_is_exit_code_78() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.toml");
    std::fs::write(&path, "[listen]\nadress = \"127.0.0.1:1\"\nkeepalive = 2\n").unwrap();
    let path = path.to_str().unwrap();
    for command in [&["serve"][..], &["config", "check"]] {
        let output = run(&[command, &["--config", path, "--log-level", "loud"]].concat());
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        let expected = format!(
            "\
ray-relay: the configuration has 3 problems

  listen.adress   ({path} line 2)
    found     a key that is not known
    expected  in [listen]: address, insecure_no_auth, max_connections, memory, handshake_timeout,
              keepalive, drain_timeout, keeper
    hint      did you mean `address`?

  listen.keepalive   ({path} line 3)
    found     2
    expected  a duration with its unit, from 1s to 1h
    hint      a bare number has no unit: write \"2s\" or \"2ms\"

  --log-level   (the command line)
    found     loud
    expected  a level (off, error, warn, info, debug, trace) or a filter such as
              \"ray_relay_dap=debug,info\"
    hint      for everything of one module write loud=trace
"
        );
        assert!(err(&output).starts_with(&expected), "{}", err(&output));
    }
    let output = run(&["config", "check", "--config", path, "--json"]);
    assert_eq!(output.status.code(), Some(78));
    let problems: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(problems["problems"][1]["key"], "listen.keepalive");
    assert!(err(&output).is_empty());

    let output = run(&["config", "check", "--config", "/nonexistent.toml"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("/nonexistent.toml"));
}

#[test]
fn valid_configuration_is_shown_with_its_sources() {
    let mut command = ray_relay(&["config", "check", "--listen", "127.0.0.1:7000"]);
    let output = command
        .env("RAY_RELAY_LOG_LEVEL", "debug")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = out(&output);
    for (line, origin) in [
        ("address = \"127.0.0.1:7000\"", "# --listen"),
        ("level = \"debug\"", "# RAY_RELAY_LOG_LEVEL"),
        ("keepalive = \"15s\"", ""),
    ] {
        let found = shown.lines().find(|shown| shown.starts_with(line)).unwrap();
        assert!(found.ends_with(origin), "{found}");
    }
    let output = run(&["config", "check", "--json"]);
    let settings: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(settings["settings"][0]["key"], "address");
}

#[test]
fn config_explain_describes_a_key() {
    let output = run(&["config", "explain", "listen.keepalive"]);
    let text = out(&output);
    let first = "listen.keepalive = \"15s\"    (the default)\n  in the environment: RAY_RELAY_LISTEN_KEEPALIVE\n    First probe";
    assert!(text.starts_with(first), "{text}");
    let output = run(&["config", "explain"]);
    assert!(
        out(&output)
            .lines()
            .any(|line| line.starts_with("tls.cert_file ") && line.ends_with("  -"))
    );
    let output = run(&["config", "explain", "tls", "--json"]);
    let keys: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys[0]["key"], "tls.mode");
    let output = run(&["config", "explain", "listen.adress"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("did you mean listen.address?"), "{stderr}");
}

#[test]
fn example_configuration_is_valid() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/example.toml");
    let output = run(&["config", "check", "--config", example]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn config_check_summarises_the_policy() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/policy.example.toml");
    let output = run(&["config", "check", "--policy", example]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = out(&output);
    assert!(text.contains("is right, and has 6 rules:\n#   "), "{text}");
    assert!(
        text.contains(": group \"ml-team\" may view, debug; jobs "),
        "{text}"
    );
    let narrowed = "clusters \"default\"; `admin` of what is there, not of the relay";
    assert!(text.contains(narrowed), "{text}");
    let output = run(&["config", "check", "--json", "--policy", example]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["policy"]["rules"][0]["subjects"], json!(["*"]));
    assert!(report["settings"].is_array());

    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("policy.toml");
    let rule = "[[rule]]\nsubjects = [\"a\"]\nscope = [\"list\"]\nclusters = [\"prod\"]\n";
    std::fs::write(&wrong, rule).unwrap();
    let wrong = wrong.to_str().unwrap();
    let output = run(&["config", "check", "--policy", wrong, "--listen", "nowhere"]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let text = err(&output);
    assert!(
        text.contains("has 3 problems") && text.contains("did you mean `scopes`?"),
        "{text}"
    );
    std::fs::write(wrong, rule.replace("scope ", "scopes ")).unwrap();
    let output = run(&["config", "check", "--policy", wrong]);
    assert!(
        out(&output).contains("no cluster is called \"prod\""),
        "{output:?}"
    );
    std::fs::write(wrong, "").unwrap();
    let output = run(&["config", "check", "--policy", wrong]);
    assert!(out(&output).contains("it permits nothing"), "{output:?}");
}
