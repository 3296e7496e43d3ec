//! Snapshots of the refusals of the port (see `tests/cli/texts.rs`).

use regex::Regex;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::support::*;

/// Sends `sent` and returns the response, with run-dependent parts removed.
async fn exchange(relay: std::net::SocketAddr, sent: &str) -> String {
    let mut stream = dial(relay).await;
    stream.write_all(sent.as_bytes()).await.unwrap();
    let all = rest(&mut stream).await;
    let lines = all.lines().filter(|line| !line.starts_with("date: "));
    same(&lines.map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// `text` with the id of its request, which is another each time, as ID. Its length is always the same.
fn same(text: &str) -> String {
    let id = Regex::new(r#"(request(?:-id:|":")? ?)[0-9a-z]{10}(\.\d+)?"#).unwrap();
    id.replace_all(text, "${1}ID${2}").into_owned()
}

#[tokio::test]
async fn refused_port_forward_reports_the_reason() {
    let keys = Keys::new();
    let relay = start(|config| config.auth.keys = vec![keys.public()]).await;
    let at = relay.local_addr();
    let lists = keys.token(|claims| claims["scope"] = "list".into());
    let expired = keys.token(|claims| claims["exp"] = 1.into());
    let mut texts = String::new();
    for (path, shown, token) in [
        ("/relay/v1/breakpoints", "no token", ""),
        ("/relay/v1/breakpoints", "garbage", "x.y.z"),
        ("/relay/v1/breakpoints", "an expired token", &expired),
        ("/relay/v1/nothing", "scope list", &lists),
        ("/relay/metrics", "scope list", &lists),
        ("/api/jobs/", "scope list", &lists),
    ] {
        let credential = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{credential}Connection: close\r\n\r\n"
        );
        texts += &format!("GET {path}, {shown}\n{}\n\n", exchange(at, &request).await);
    }
    for (shown, ray_relay) in [
        ("no token", json!({})),
        ("garbage", json!({"token": "x.y.z"})),
        ("scope list", json!({"token": lists})),
        (
            "an unknown id",
            json!({"token": keys.token(|_| {}), "breakpoint": "7k2m9qxd"}),
        ),
        (
            "an unknown name",
            json!({"token": keys.token(|_| {}), "task": "square"}),
        ),
        (
            "an unknown key",
            json!({"token": keys.token(|_| {}), "taks": "square"}),
        ),
    ] {
        let (_dap, answer) = attach(dial(at).await, &ray_relay).await;
        let message = answer["message"].as_str().map_or(answer.to_string(), same);
        texts += &format!("attach, {shown}\n{message}\n\n");
    }
    relay.abort().await;
    insta::assert_snapshot!(texts);
}

#[tokio::test]
async fn unknown_protocol_is_answered_with_the_supported_ones() {
    let relay = start(|_| {}).await;
    let at = relay.local_addr();
    let mut texts = String::new();
    for (shown, sent) in [
        ("pydevd's settrace", "501\t1\t0.1\tUNIX\n"),
        ("a frame that is none", "Content-Length: x\r\n\r\n"),
        (
            "a request for another host",
            "GET /relay/healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        ),
    ] {
        texts += &format!("{shown}\n{}\n\n", exchange(at, sent).await);
    }
    relay.abort().await;
    insta::assert_snapshot!(texts);
}
