//! A hostile head in a real browser: what its page can do to the relay, and to other clusters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ray_relay_base::config::{Cluster, Gcs};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::browser::{Browser, chromium};
use super::support::*;

const HOSTILE_PAGE: &str = include_str!("hostile.html");

/// One request that a head was asked: its first line, its headers, its body.
pub(crate) type Asked = (String, String, String);

/// The page of a head, which may change.
pub(crate) type Page = Arc<Mutex<String>>;

/// A head that reports its requests, and answers with the hostile page.
async fn head() -> (SocketAddr, mpsc::UnboundedReceiver<Asked>) {
    let (page, address, requests) = head_with("127.0.0.1:0").await;
    HOSTILE_PAGE.clone_into(&mut page.lock().unwrap());
    (address, requests)
}

/// A head at `bind` that reports its requests, and answers with its page.
pub(crate) async fn head_with(bind: &str) -> (Page, SocketAddr, mpsc::UnboundedReceiver<Asked>) {
    let listener = TcpListener::bind(bind).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    let page = Page::default();
    let shown = Arc::clone(&page);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answers(stream, Arc::clone(&shown), sender.clone()));
        }
    });
    (page, address, requests)
}

async fn answers(
    mut stream: TcpStream,
    page: Page,
    sender: mpsc::UnboundedSender<Asked>,
) -> Option<()> {
    let mut read = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
            break (head.to_owned(), length);
        }
    };
    while read.len() < head.len() + 4 + length {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&read[head.len() + 4..]).into_owned();
    let (first, headers) = head.split_once("\r\n").unwrap_or((&head, ""));
    let page = page.lock().unwrap().clone();
    let (kind, text) = match first.split(' ').nth(1).unwrap_or_default() {
        "/" => ("text/html", &*page),
        "/worker.js" => ("text/javascript", "self.onfetch = () => {};"),
        _ => ("application/json", "\"own\""),
    };
    let _ = sender.send((first.to_owned(), headers.to_ascii_lowercase(), body));
    // With everything that would let it out of its origin.
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nService-Worker-Allowed: /\r\n\
         Access-Control-Allow-Origin: *\r\nSet-Cookie: tossed=1; Domain=localhost; Path=/relay\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await.ok()
}

/// A proxy port that adds `token` to requests to the relay's own origin. One request per connection.
async fn presenting(relay: SocketAddr, token: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(presents(stream, relay, token.clone()));
        }
    });
    address
}

async fn presents(mut browser: TcpStream, relay: SocketAddr, token: String) -> Option<()> {
    let mut read = Vec::new();
    let (head, rest) = loop {
        if browser.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let rest = read.split_off(head.len());
            break (head.to_owned(), rest);
        }
    };
    let mut head = head.replace("Connection: keep-alive", "Connection: close");
    if head.contains("Host: localhost:") {
        head += &format!("\r\nAuthorization: Bearer {token}");
    }
    let mut relay = TcpStream::connect(relay).await.ok()?;
    relay.write_all(head.as_bytes()).await.ok()?;
    relay.write_all(&rest).await.ok()?;
    let _ = copy_bidirectional(&mut browser, &mut relay).await;
    Some(())
}

pub(crate) fn cluster(name: &str, head: SocketAddr) -> Cluster {
    Cluster {
        name: name.to_owned(),
        ray_address: format!("http://{head}"),
        gcs_address: Gcs::Off,
        ..Cluster::default()
    }
}

/// Opens `url` in a browser, and returns what the page reported to its head `evil`, and the headers of that request.
async fn visit(
    program: &PathBuf,
    url: &str,
    requests: &mut mpsc::UnboundedReceiver<Asked>,
) -> (Value, String) {
    let _browser = Browser::open(program, url);
    let report = async {
        loop {
            let (first, headers, body) = requests.recv().await.unwrap();
            assert!(!first.contains("/worker.js"), "a service worker was let in");
            if first.starts_with("POST /told") {
                return (serde_json::from_str(&body).unwrap(), headers);
            }
        }
    };
    timeout(3 * TEST_TIMEOUT, report)
        .await
        .expect("the page tells")
}

/// Checks the outcome of all attempts.
fn check(came: &Value, port: u16) {
    assert_eq!(came["origin"], format!("http://evil.localhost:{port}"));
    assert_eq!(came["own"], "\"own\"", "{came:#}");
    assert_eq!(came["read"], "", "{came:#}");
    for nothing in ["api", "page", "cluster"] {
        assert_eq!(came[nothing], 404, "{nothing}: {came:#}");
    }
    assert_eq!(came["worker"], "failed: TypeError", "{came:#}");
    for host in ["localhost", "127.0.0.1", "other.localhost"] {
        let of = |what: &str| &came[format!("http://{host}:{port} {what}")];
        for refused in ["api", "release", "job", "first job"] {
            assert_eq!(*of(refused), "failed: TypeError", "{refused}: {came:#}");
        }
        assert_eq!(*of("terminal"), "refused", "{came:#}");
        assert_ne!(*of("frame"), "reached", "{came:#}");
    }
}

#[tokio::test]
async fn hostile_dashboard_reaches_only_its_own_head() {
    let Some(program) = chromium() else {
        return;
    };
    let (evil, mut requests) = head().await;
    let (other, mut others) = head().await;
    let keys = Keys::new();
    let both = || vec![cluster("other", other), cluster("evil", evil)];

    // Without authentication, a user follows a link.
    let relay = start(|config| config.clusters = both()).await;
    let port = relay.local_addr().port();
    let link = format!("http://127.0.0.1:{port}/relay/clusters/evil/");
    let (came, _) = visit(&program, &link, &mut requests).await;
    check(&came, port);
    relay.abort().await;

    // A user with a token comes from the relay's page.
    let relay = start(|config| {
        config.clusters = both();
        config.auth.keys = vec![keys.public()];
    })
    .await;
    let browsers = presenting(relay.local_addr(), keys.token(|_| {})).await;
    let port = browsers.port();
    // The address to which the relay redirects an anonymous browser.
    let page = format!("http://localhost:{port}/relay/?dashboard=evil&at=%2F");
    let (came, headers) = visit(&program, &page, &mut requests).await;
    check(&came, port);
    assert!(!headers.contains("ray-authentication-token"), "{headers}");
    relay.abort().await;

    // Of the other cluster's head only the relay has asked anything, by itself.
    others.close();
    while let Some((first, headers, _)) = others.recv().await {
        assert!(
            first.starts_with("GET /api/") && !headers.contains("sec-fetch"),
            "{first}"
        );
    }
}
