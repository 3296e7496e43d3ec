//! A webhook that receives notices of paused tasks.

use std::time::Duration;

use ray_relay_base::config::NoticeEvent;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::paused::paused;
use super::support::*;

#[tokio::test]
async fn webhook_reports_an_unattended_breakpoint() {
    let webhook = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url_file = folder.path().join("notice.url");
    let address = format!("http://{}/hook\n", webhook.local_addr().unwrap());
    std::fs::write(&url_file, address).unwrap();
    let relay = start(|config| {
        config.notice.url_file = Some(url_file);
        config.notice.on = vec![NoticeEvent::Paused];
        config.notice.paused_for = Duration::from_millis(300);
        config.notice.link = Some("https://relay.example.com".to_owned());
    })
    .await;
    let (_debugger, breakpoint) = paused().await;
    let id = breakpoint.id;
    relay.registry().insert(breakpoint);
    let accepted = timeout(TEST_TIMEOUT, webhook.accept()).await;
    let (mut stream, _) = accepted.expect("a notice comes").unwrap();
    let mut read = Vec::new();
    let body: Value = loop {
        let some = timeout(TEST_TIMEOUT, stream.read_buf(&mut read)).await;
        assert_ne!(some.expect("the whole notice comes").unwrap(), 0);
        let text = String::from_utf8_lossy(&read);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
        if let Some(body) = body.and_then(|body| serde_json::from_str(body).ok()) {
            assert!(text.starts_with("POST /hook HTTP/1.1\r\n"), "{text}");
            break body;
        }
    };
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(body["event"], "paused", "{body}");
    assert_eq!(body["breakpoint"]["name"], "square", "{body}");
    assert_eq!(
        body["link"],
        format!("https://relay.example.com/relay/#{id}")
    );
    relay.abort().await;
}
