//! The command line: help, mistakes, and what is printed for other programs to read.

use ray_relay_base::wire::tcp::free_port;

use super::support::{err, http, out, ray_relay, run, serve};

#[test]
fn without_arguments_there_is_help() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("Usage: ray-relay"), "{output:?}");
}

#[test]
fn help_prints_a_page_or_what_a_command_takes() {
    let contents = run(&["help"]);
    assert_eq!(contents.status.code(), Some(0));
    for words in ["security-model", "\n  operate", "\n  list", "\n  help"] {
        assert!(out(&contents).contains(words), "{words}: {contents:?}");
    }
    assert!(!out(&contents).contains("\n  man "), "{contents:?}");
    let page = run(&["help", "operate"]);
    assert!(out(&page).starts_with("# Operate a relay\n"), "{page:?}");
    assert!(out(&page).contains("## Tokens\n"), "{page:?}");
    for words in [&["list"][..], &["token", "mint"]] {
        let help = run(&[&["help"], words].concat());
        let own = run(&[words, &["--help"]].concat());
        assert_eq!(help.status.code(), Some(0));
        assert_eq!(out(&help), out(&own), "{words:?}");
    }
    let wrong = run(&["help", "operat"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(out(&wrong).is_empty(), "{wrong:?}");
    let stderr = err(&wrong);
    for words in [
        "no page and no command \"operat\"",
        "operate",
        "`ray-relay help`",
    ] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}

#[test]
fn every_command_explains_itself() {
    for (command, words) in [
        (
            &["--help"][..],
            &[
                "RAY_RELAY_URL",
                "RAY_RELAY_CONFIG",
                "69",
                "78",
                "ray-relay debug",
                "kubectl port-forward",
            ][..],
        ),
        (
            &["serve", "--help"],
            &[
                "--ray-address",
                "RAY_RELAY_RAY_ADDRESS",
                "--insecure-no-auth",
                "Next:",
            ],
        ),
        (&["config", "check", "--help"], &["--config", "78"]),
        (
            &["list", "--help"],
            &[
                "--watch",
                "--json",
                "RAY_RELAY_URL",
                "69",
                "77",
                "--token-file",
                "RAY_RELAY_TOKEN",
            ],
        ),
        (
            &["launch-config", "--help"],
            &["pycharm", "--breakpoint", "rayRelay"],
        ),
        (&["audit", "--help"], &["verify", "show", "replay"]),
        (&["completions", "--help"], &["bash", "zsh", "fish"]),
        (
            &["token", "--help"],
            &[
                "token keygen",
                "--auth-key",
                "token mint",
                "token revoke",
                "dashboard:read",
            ],
        ),
        (
            &["token", "mint", "--help"],
            &["--sub", "--scope", "--ttl", "--job", "--by-policy"],
        ),
        (
            &["token", "inspect", "--help"],
            &["Exit code", "standard input"],
        ),
        (
            &["token", "revoke", "--help"],
            &["auth.revocations_file", "--jti"],
        ),
    ] {
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for word in words {
            assert!(
                out(&output).contains(word),
                "{command:?} without {word}:\n{}",
                out(&output)
            );
        }
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["serve", "--lisen", "x"][..],
        &["list", "--relay", "ftp://x"],
        &["launch-config", "ed"],
        &["what"],
        // The checks come before any attach.
        &["exec", "x", "--relay", "http://127.0.0.1:9"],
        &["exec", "x", "--all", "--next", "--", "where"],
        &["exec", "x", "--json", "--", "where"],
        &["exec", "--ranks", "3-", "--", "where"],
        &["debug", "--all", "--take-over", "x"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(err(&output).starts_with("ray-relay: "), "{output:?}");
        assert!(out(&output).is_empty());
    }
    assert!(err(&run(&["serve", "--lisen", "x"])).contains("--listen"));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(out(&output).contains("RAY_RELAY_COMPLETE"), "{shell}");
    }
}

#[test]
fn launch_configurations_follow_the_relay() {
    let output = ray_relay(&["launch-config", "nvim"])
        .env("RAY_RELAY_URL", "http://10.1.2.3:7001")
        .output()
        .unwrap();
    assert!(
        out(&output).contains("host = '10.1.2.3'") && out(&output).contains("port = 7001"),
        "{output:?}"
    );
    let output = run(&["launch-config", "vscode", "--breakpoint", "3k9x7a2q"]);
    assert!(
        out(&output).contains("\"breakpoint\": \"3k9x7a2q\""),
        "{output:?}"
    );
    assert_eq!(
        run(&["launch-config", "--breakpoint", "no id"])
            .status
            .code(),
        Some(2)
    );
}

/// For a container's health check: TLS and a token are no illness, silence is.
#[test]
fn a_relay_that_answers_is_healthy() {
    let ok = http("200 OK", "application/json", "{\"status\":\"ok\"}");
    let tls_wanted = http(
        "400 Bad Request",
        "application/json",
        "{\"error\":\"this port speaks TLS\"}",
    );
    for answer in [ok, tls_wanted] {
        let (url, served) = serve(vec![answer]);
        let output = run(&["doctor", "--alive", "--relay", &url]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(served.join().unwrap(), ["GET /relay/healthz HTTP/1.1"]);
    }
    let url = format!("http://127.0.0.1:{}", free_port().unwrap());
    let output = run(&["doctor", "--alive", "--relay", &url]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(err(&output).contains("cannot reach a relay"), "{output:?}");
}
