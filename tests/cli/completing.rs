//! Tab, as a shell asks about it.

use std::process::Output;

use ray_relay_base::wire::tcp::free_port;

use super::support::{http, list, out, ray_relay, serve};

/// Returns the completions that bash offers for the last of `words`.
fn tab(words: &[&str]) -> Output {
    let last = (words.len() - 1).to_string();
    let request: Vec<&str> = ["--"].into_iter().chain(words.iter().copied()).collect();
    let mut command = ray_relay(&request);
    command
        .env("RAY_RELAY_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", last);
    command.output().unwrap()
}

#[test]
fn paused_tasks_are_completed() {
    for line in [
        &["debug"][..],
        &["exec"],
        &["snapshot"],
        &["park", "--for", "12h"],
        &["release", "--yes"],
        &["launch-config", "--breakpoint"],
        &["dap", "--breakpoint"],
    ] {
        let answer = http("200 OK", "application/json", &list().to_string());
        let (url, served) = serve(vec![answer]);
        let (command, more) = line.split_first().unwrap();
        let mut words = vec!["ray-relay", command, "--relay", &url];
        words.extend(more);
        words.push("3k");
        let output = tab(&words);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(out(&output).trim(), "3k9x7a2q", "{line:?}");
        let request = served.join().unwrap();
        assert_eq!(request, ["GET /relay/v1/breakpoints HTTP/1.1"]);
    }
}

/// A shell has no use for an error message in the middle of a line.
#[test]
fn completion_is_silent_without_a_relay() {
    let url = format!("http://127.0.0.1:{}", free_port().unwrap());
    let refused = http(
        "401 Unauthorized",
        "application/json",
        "{\"error\":\"a token\"}",
    );
    let (closed, _served) = serve(vec![refused]);
    for url in [&*url, &closed] {
        let output = tab(&["ray-relay", "debug", "--relay", url, "3"]);
        assert_eq!(
            (out(&output), &*output.stderr),
            ("", &b""[..]),
            "{output:?}"
        );
        assert!(output.status.success());
    }
}

#[test]
fn bash_completes_commands() {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_ray-relay"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let script = "source <(ray-relay completions bash)
        COMP_WORDS=(ray-relay lau) COMP_CWORD=1
        _clap_complete_ray_relay ray-relay lau ray-relay && echo \"${COMPREPLY[@]}\"";
    let bash = std::process::Command::new("bash")
        .args(["-c", script])
        .env_clear()
        .env("PATH", path)
        .output();
    let Ok(output) = bash else {
        return eprintln!("skipped: no bash");
    };
    assert_eq!(out(&output).trim(), "launch-config", "{output:?}");
}
