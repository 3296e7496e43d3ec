//! Tests errors of kubeconfigs, credential plugins, proxies and answers, and the size limit of answers.
#![allow(clippy::unwrap_used)]

use futures_util::StreamExt as _;
use hyper::Request;
use kube::Config;
use kube::client::Body;
use kube::config::{ExecConfig, Kubeconfig};
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use ray_relay_base::dial::Proxies;

const SECRET: &str = "eyJhbGciOi";

#[test]
fn unreadable_kubeconfig_is_not_quoted() {
    let prefix = "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n";
    for broken in [
        format!("    token: [{SECRET}\n"),
        format!("    token: {SECRET}: x\n"),
        format!("    token: {SECRET}\n   indented: wrong\n"),
        format!("    token: {SECRET}\n    exec: {SECRET}\n"),
        format!("    exec: {{command: [], args: [{SECRET}]}}\n"),
    ] {
        let error = Kubeconfig::from_yaml(&format!("{prefix}{broken}")).unwrap_err();
        let outcome = KubeError::of_kubeconfig(&error).cause();
        assert!(!outcome.contains(SECRET), "{outcome}");
        assert!(
            outcome.starts_with("it cannot be read as YAML (line "),
            "{outcome}"
        );
    }
}

#[tokio::test]
async fn credential_plugin_output_is_not_quoted() {
    for (printed, code, expected) in [
        (
            format!(r#"{{"status": {{"token": ["{SECRET}"]}}}}"#),
            0,
            "the kubeconfig's credential plugin sh prints no ExecCredential",
        ),
        (
            format!("{SECRET}: [ {SECRET}"),
            0,
            "the kubeconfig's credential plugin sh prints no ExecCredential",
        ),
        (
            SECRET.to_owned(),
            3,
            "the kubeconfig's credential plugin sh has failed (exit status: 3)",
        ),
    ] {
        let script = format!("printf '%s' '{printed}'; exit {code}");
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.exec = Some(ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script]),
            ..ExecConfig::default()
        });
        let outcome = ApiServer::of(config, Proxies::none()).await.err().unwrap();
        assert!(!format!("{outcome:?}").contains(SECRET), "{outcome:?}");
        assert_eq!(outcome.cause(), expected);
    }
}

/// Returns the answer of a server without TLS at `address`.
async fn get_api(address: &str, proxies: Proxies) -> Result<Value, Unread> {
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let server = ApiServer::of(config, proxies).await.unwrap();
    let request = Request::get("/api").body(Body::empty()).unwrap();
    server.read(request, 1000).await
}

#[tokio::test]
async fn proxy_url_is_not_quoted() {
    for (scheme, expected) in [
        ("http", "cannot reach the proxy 127.0.0.1:1: "),
        ("socks5", "proxy-url names no http proxy but socks5://"),
        ("ftp", "proxy-url names no http proxy but ftp://"),
    ] {
        let proxy = format!("{scheme}://me:{SECRET}@127.0.0.1:1");
        let proxies = Proxies::from_text("proxy-url", &proxy);
        let outcome = get_api("127.0.0.1:2", proxies).await.unwrap_err();
        assert!(!format!("{outcome:?}").contains(SECRET), "{outcome:?}");
        let Unread::Unreachable(outcome) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(outcome.starts_with(expected), "{outcome}");
    }
}

/// Returns the address of a server that sends `answer` to each client, and nothing more.
async fn serving(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        _ = stream.read(&mut head).await.unwrap();
        _ = stream.write_all(answer.as_bytes()).await;
    });
    address
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[tokio::test]
async fn refusal_is_a_status_and_a_plain_word() {
    let quoting = json!({"kind": "Status", "code": 200, "reason": "Forbidden", "message": SECRET});
    for (body, part) in [
        (quoting.to_string(), "Forbidden"),
        (json!({"reason": SECRET.repeat(5)}).to_string(), ""),
        (json!({"reason": "no word"}).to_string(), ""),
        ("{}".to_owned(), ""),
        (format!("<html>{SECRET}"), ""),
        ("x".repeat(100_000), ""),
    ] {
        let address = serving(answer("403 Forbidden", &body)).await;
        let outcome = get_api(&address, Proxies::none()).await.unwrap_err();
        let error = KubeAnswer {
            status: Some(403),
            word: part.to_owned(),
        };
        assert_eq!(outcome, Unread::Refused(error));
    }
}

#[tokio::test]
async fn answer_is_bounded_and_invalid_json_is_not_quoted() {
    let small = json!({"a": "x".repeat(900)});
    let address = serving(answer("200 OK", &small.to_string())).await;
    assert_eq!(get_api(&address, Proxies::none()).await.unwrap(), small);
    let large = json!({"a": "x".repeat(1000)}).to_string();
    let address = serving(answer("200 OK", &large)).await;
    let outcome = get_api(&address, Proxies::none()).await.unwrap_err();
    assert_eq!(outcome, Unread::TooLarge(1000));
    let address = serving(answer("200 OK", &format!("{{{SECRET}"))).await;
    let outcome = get_api(&address, Proxies::none()).await.unwrap_err();
    assert_eq!(outcome, Unread::Strange { line: 1, column: 2 });
}

/// Returns the results of a watch that receives these lines.
async fn watched(lines: &str) -> Vec<Result<String, Unread>> {
    let address = serving(answer("200 OK", lines)).await;
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let server = ApiServer::of(config, Proxies::none()).await.unwrap();
    let request = Request::get("/watch").body(Vec::new()).unwrap();
    let events = server.watch::<Value>(request, 1000).await.unwrap();
    let outcome = events.map(|event| {
        event.map(|event| match event {
            WatchEvent::Added(value) => value.as_str().unwrap().to_owned(),
            WatchEvent::Error(status) => format!("{} {}", status.code, status.reason),
            other => format!("{other:?}"),
        })
    });
    outcome.collect().await
}

#[tokio::test]
async fn watch_bounds_each_line_but_not_the_total() {
    let line = |text: &str| format!("{}\n", json!({"type": "ADDED", "object": text}));
    let text = "x".repeat(500);
    let outcome = watched(&line(&text).repeat(200)).await;
    assert_eq!(outcome, vec![Ok(text.clone()); 200]);
    let outcome = watched(&line(&"x".repeat(100_000))).await;
    assert_eq!(outcome, [Err(Unread::TooLarge(1000))]);
}

#[tokio::test]
async fn invalid_watch_line_is_not_quoted() {
    let expired_version =
        json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
    assert_eq!(
        watched(&format!("{expired_version}\n")).await,
        [Ok("410 Expired".to_owned())]
    );
    for line in [format!("{{\"a\": \"{SECRET}\"}}\n"), format!("{SECRET}\n")] {
        let outcome = watched(&line).await;
        assert!(
            matches!(outcome[..], [Err(Unread::Strange { .. })]),
            "{outcome:?}"
        );
    }
    assert_eq!(watched("{\"type\": \"ADD").await, []);
}
