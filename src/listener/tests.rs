//! Whole connections to a relay on a port of its own: every protocol with and without TLS.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use rcgen::{SanType, SerialNumber};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::refusal::TLS_ALERT;
use crate::app::{self, Running};
use crate::config::{self, ClientAuth, Config, TlsMode};
use crate::dap::conversation::{Conversation, Over};
use crate::dap::testing::paused;
use crate::registry::Breakpoint;
use crate::tls::testing::{Authority, Client, Files, Pair};

const PATIENCE: Duration = Duration::from_secs(20);

/// A relay with a certificate, its head nowhere.
struct Relay {
    running: Running,
    address: SocketAddr,
    authority: Authority,
    _files: Files,
}

impl Relay {
    async fn start(tls: impl FnOnce(&Files) -> config::Tls) -> Self {
        Self::changed(tls, |_| {}).await
    }

    async fn changed(
        tls: impl FnOnce(&Files) -> config::Tls,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let authority = Authority::new("servers");
        let files = Files::new(&authority.server());
        let mut config = Config {
            tls: tls(&files),
            ..Config::default()
        };
        config.listen.address = ([127, 0, 0, 1], 0).into();
        config.clusters[0].ray_address = "http://127.0.0.1:1".to_owned();
        change(&mut config);
        let running = app::start(config).await.unwrap();
        Self {
            address: running.local_addr(),
            running,
            authority,
            _files: files,
        }
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn tls(&self, client: &Client<'_>) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(client.trusting(&self.authority.pem));
        let name = ServerName::try_from("localhost").unwrap();
        connector.connect(name, self.plain().await).await
    }

    async fn encrypted(&self) -> TlsStream<TcpStream> {
        self.tls(&Client::default()).await.unwrap()
    }

    async fn metrics(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
        let request =
            b"GET /relay/metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        said(&mut stream, request).await
    }
}

/// What the relay says to `bytes` until it closes.
async fn said(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    String::from_utf8_lossy(&rest(stream).await).into_owned()
}

async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut all)).await;
    read.expect("the relay closes").unwrap();
    all
}

const HEALTH: &[u8] =
    b"GET /relay/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn request(seq: u64, command: &str, arguments: &Value) -> Value {
    json!({"seq": seq, "type": "request", "command": command, "arguments": arguments})
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(dap: &mut Conversation<S>) -> Value {
    timeout(PATIENCE, dap.read())
        .await
        .expect("in time")
        .unwrap()
}

async fn initialized<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> (Conversation<S>, Value) {
    let mut dap = Conversation::new(stream, 1 << 20);
    dap.send(&request(7, "initialize", &json!({"clientID": "test"})))
        .await
        .unwrap();
    let answer = read(&mut dap).await;
    (dap, answer)
}

#[tokio::test]
async fn every_protocol_is_found_inside_tls() {
    let relay = Relay::start(Files::config).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for alpn in [&[][..], &["http/1.1"], &["x", "http/1.1"]] {
            let client = Client {
                alpn,
                version: Some(version),
                ..Client::default()
            };
            let mut stream = relay.tls(&client).await.unwrap();
            let answer = said(&mut stream, HEALTH).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
    }
    let h2 = Client {
        alpn: &["h2", "http/1.1"],
        ..Client::default()
    };
    let stream = relay.tls(&h2).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(http2(stream).await, 200);
    // By its preface, without ALPN.
    assert_eq!(http2(relay.encrypted().await).await, 200);

    let (_, answer) = initialized(relay.encrypted().await).await;
    assert_eq!(
        (&answer["success"], &answer["request_seq"]),
        (&json!(true), &json!(7))
    );

    let answer = said(&mut relay.encrypted().await, b"q\r\n").await;
    assert!(
        answer.contains("tasks that wait at a breakpoint"),
        "{answer}"
    );
    let answer = said(&mut relay.encrypted().await, b"\0\0").await;
    assert!(answer.contains("neither"), "{answer}");
    let mut stream = relay.encrypted().await;
    stream.write_all(b"\x16\x03\x01").await.unwrap();
    assert_eq!(rest(&mut stream).await, TLS_ALERT, "TLS inside TLS");

    let metrics = relay.metrics(relay.encrypted().await).await;
    assert!(
        metrics.contains(r#"ray_relay_tls_handshakes_total{outcome="ok"} 13"#),
        "{metrics}"
    );
    assert!(
        metrics.contains(r#"ray_relay_connections_total{protocol="dap"} 1"#),
        "{metrics}"
    );
    assert!(
        metrics.contains("ray_relay_tls_certificate_not_after_seconds "),
        "{metrics}"
    );
}

async fn http2(stream: TlsStream<TcpStream>) -> u16 {
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let request = hyper::Request::get("https://localhost/relay/healthz")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = timeout(PATIENCE, send.send_request(request))
        .await
        .unwrap()
        .unwrap();
    drop(send);
    driver.abort();
    answer.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn who_has_agreed_on_http_may_take_its_time() {
    let relay = Relay::start(Files::config).await;
    let client = Client {
        alpn: &["http/1.1"],
        ..Client::default()
    };
    let mut stream = relay.tls(&client).await.unwrap();
    let mut byte = [0];
    // A browser that connects before it knows what for; then `http.header_timeout` counts.
    assert!(
        timeout(Duration::from_secs(20), stream.read(&mut byte))
            .await
            .is_err()
    );
    let answer = said(&mut stream, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn plain_text_is_refused_in_its_own_words_where_tls_is_required() {
    let relay = Relay::start(Files::config).await;
    let worker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    relay.running.registry().insert(breakpoint(&worker));
    let head = b"POST /api/jobs/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n";
    let answer = said(&mut relay.plain().await, head).await;
    assert!(
        answer.starts_with("HTTP/1.1 426 Upgrade Required\r\n"),
        "{answer}"
    );
    assert!(answer.contains("\r\nupgrade: TLS/1.2\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert!(
        body["error"].as_str().unwrap().contains("https://"),
        "{body}"
    );

    let stream = hyper_util::rt::TokioIo::new(relay.plain().await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, stream)
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let get = hyper::Request::get("http://localhost/")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let failed = timeout(PATIENCE, send.send_request(get))
        .await
        .unwrap()
        .unwrap_err();
    let reason = format!("{failed:?} {:?}", driver.await.unwrap());
    assert!(
        reason.contains("INADEQUATE_SECURITY") && reason.contains("https://"),
        "{reason}"
    );

    let (mut dap, answer) = initialized(relay.plain().await).await;
    assert_eq!(
        (&answer["success"], &answer["request_seq"]),
        (&json!(false), &json!(7))
    );
    assert_eq!(answer["body"]["error"]["showUser"], true);
    assert!(
        answer["message"].as_str().unwrap().contains("TLS"),
        "{answer}"
    );
    let end = timeout(PATIENCE, dap.read()).await.unwrap();
    assert!(matches!(end, Err(Over::Closed)), "{end:?}");

    for text in ["\r\n", "list\n", "\u{0}"] {
        let answer = said(&mut relay.plain().await, text.as_bytes()).await;
        assert!(
            answer.starts_with("ray-relay: ") && answer.contains("s_client"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n"));
    }
    let mut dialled = pin!(worker.accept());
    assert!(
        futures_util::poll!(dialled.as_mut()).is_pending(),
        "no worker was reached"
    );
    let metrics = relay.metrics(relay.encrypted().await).await;
    assert!(
        metrics.contains(r#"ray_relay_refusals_total{kind="forbidden"} 6"#),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_where_tls_is_required_has_the_whole_deadline() {
    let relay = Relay::start(Files::config).await;
    let mut stream = relay.plain().await;
    let started = Instant::now();
    assert!(rest(&mut stream).await.starts_with(b"ray-relay: "));
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn both_are_served_where_tls_is_optional() {
    let optional = |files: &Files| config::Tls {
        mode: TlsMode::Optional,
        ..files.config()
    };
    let relay = Relay::start(optional).await;
    let answer = said(&mut relay.plain().await, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let answer = said(&mut relay.encrypted().await, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let (_, answer) = initialized(relay.plain().await).await;
    assert_eq!(answer["success"], true);
}

#[tokio::test]
async fn what_cannot_be_agreed_on_is_an_alert() {
    let off = Relay::start(|_| config::Tls::default()).await;
    let error = off.tls(&Client::default()).await.unwrap_err();
    assert!(error.to_string().contains("HandshakeFailure"), "{error}");

    let relay = Relay::start(Files::config).await;
    // TLS 1.0, RSA key exchange with AES-CBC: a ClientHello of another century.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let mut stream = relay.plain().await;
    stream.write_all(&hello).await.unwrap();
    let alert = rest(&mut stream).await;
    // A fatal handshake_failure or protocol_version.
    assert_eq!((alert[0], alert[5]), (0x15, 2), "{alert:?}");
    assert!(matches!(alert[6], 40 | 70), "{alert:?}");
    // Only protocols that are not spoken here.
    let client = Client {
        alpn: &["smtp"],
        ..Client::default()
    };
    let error = relay.tls(&client).await.unwrap_err();
    assert!(
        error.to_string().contains("NoApplicationProtocol"),
        "{error}"
    );
    // Nonsense after the first bytes.
    let mut stream = relay.plain().await;
    stream
        .write_all(b"\x16\x03\x01\x00\x05\x02\0\0\x01\0")
        .await
        .unwrap();
    assert_eq!(rest(&mut stream).await[0], 0x15);
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut() {
    let patience = Duration::from_millis(300);
    let relay = Relay::changed(Files::config, |config| {
        config.listen.handshake_timeout = patience;
        config.listen.silence = patience / 2;
    })
    .await;
    // Cut after each part: record header, within the ClientHello, and after it all.
    for bytes in [
        &b"\x16\x03"[..],
        b"\x16\x03\x01\x02\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let started = std::time::Instant::now();
        let mut stream = relay.plain().await;
        stream.write_all(bytes).await.unwrap();
        assert_eq!(rest(&mut stream).await, b"");
        assert!(started.elapsed() >= patience - Duration::from_millis(20));
        assert!(started.elapsed() < PATIENCE / 2);
        // And one that closes in the middle.
        let mut stream = relay.plain().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream).await;
    }
    // Whoever says nothing inside TLS is a person after no more time than is left.
    let mut stream = relay.encrypted().await;
    let mut said = [0; 64];
    let read = timeout(PATIENCE, stream.read(&mut said)).await;
    assert!(read.unwrap().unwrap() > 0);
    drop(stream);
    let metrics = relay.metrics(relay.encrypted().await).await;
    assert!(
        metrics.contains(r#"ray_relay_tls_handshakes_total{outcome="timeout"} 3"#),
        "{metrics}"
    );
}

/// How a client with `pair` fares: its answer, or that TLS refused it.
async fn with_certificate(relay: &Relay, pair: Option<&Pair>) -> String {
    let client = Client {
        identity: pair,
        ..Client::default()
    };
    match relay.tls(&client).await {
        Err(error) => format!("alert: {error}"),
        Ok(mut stream) => {
            // In TLS 1.3 the client is done before the server has seen its certificate.
            let _ = stream.write_all(HEALTH).await;
            let mut all = Vec::new();
            match timeout(PATIENCE, stream.read_to_end(&mut all))
                .await
                .unwrap()
            {
                Err(error) => format!("alert: {error}"),
                Ok(_) => String::from_utf8(all).unwrap(),
            }
        }
    }
}

#[tokio::test]
async fn client_certificates_are_held_to_their_authority_time_and_list() {
    let clients = Authority::new("clients");
    let uri = [SanType::URI("spiffe://test/alice".try_into().unwrap())];
    let good = clients.client("spiffe://test/alice");
    let stranger = Authority::new("clients").client("spiffe://test/alice");
    let day = Duration::from_secs(86_400);
    let expired = clients.issue(&uri, |params| {
        params.not_after = (std::time::SystemTime::now() - day / 2).into();
    });
    let early = clients.issue(&uri, |params| {
        params.not_before = (std::time::SystemTime::now() + day / 2).into();
    });
    let revoked = clients.issue(&uri, |params| {
        params.serial_number = Some(SerialNumber::from(4711));
    });
    let nobody = clients.issue(&[], |_| {});
    let ok = "HTTP/1.1 200 OK";
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let list = clients.crl(&[4711], 1);
        let relay = Relay::start(|files| config::Tls {
            client_crl_file: Some(files.write("crl.pem", &list)),
            ..files.mutual(&clients, client_auth)
        })
        .await;
        let without = match client_auth {
            ClientAuth::Optional => ok,
            _ => "alert: received fatal alert: CertificateRequired",
        };
        for (pair, expected) in [
            (Some(&good), ok),
            (None, without),
            // The same name of the same name is another key.
            (Some(&stranger), "alert: received fatal alert: DecryptError"),
            (
                Some(&expired),
                "alert: received fatal alert: CertificateExpired",
            ),
            (
                Some(&early),
                "alert: received fatal alert: CertificateExpired",
            ),
            (
                Some(&revoked),
                "alert: received fatal alert: CertificateRevoked",
            ),
            (Some(&nobody), "HTTP/1.1 403 Forbidden"),
        ] {
            let answer = with_certificate(&relay, pair).await;
            assert!(
                answer.starts_with(expected),
                "{answer} instead of {expected}"
            );
        }
        let client = Client {
            identity: Some(&nobody),
            ..Client::default()
        };
        let (_, answer) = initialized(relay.tls(&client).await.unwrap()).await;
        assert_eq!(answer["success"], false);
        let sentence = answer["message"].as_str().unwrap();
        assert!(sentence.contains("subject alternative name"), "{sentence}");
    }
    // A list that is too old says nothing about anybody.
    let list = clients.crl(&[], -1);
    let relay = Relay::start(|files| config::Tls {
        client_crl_file: Some(files.write("crl.pem", &list)),
        ..files.mutual(&clients, ClientAuth::Required)
    })
    .await;
    let answer = with_certificate(&relay, Some(&good)).await;
    assert!(answer.starts_with("alert: "), "{answer}");
}

/// A paused worker whose debugger is `listener`.
fn breakpoint(listener: &TcpListener) -> Breakpoint {
    let address = listener.local_addr().unwrap();
    Breakpoint {
        node_ip: address.ip(),
        port: address.port(),
        ..paused("square", 1)
    }
}

/// A session over TLS with a worker whose part the test plays.
async fn attached(relay: &Relay) -> (Conversation<TlsStream<TcpStream>>, Conversation<TcpStream>) {
    let worker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    relay.running.registry().insert(breakpoint(&worker));
    let (mut client, answer) = initialized(relay.encrypted().await).await;
    assert_eq!(answer["success"], true);
    client
        .send(&request(8, "attach", &json!({})))
        .await
        .unwrap();
    let (stream, _) = timeout(PATIENCE, worker.accept()).await.unwrap().unwrap();
    let mut debugpy = Conversation::new(stream, 1 << 26);
    let greeting = json!({"seq": 1, "type": "event", "event": "output", "body": {"category": "telemetry", "output": "ptvsd"}});
    debugpy.send(&greeting).await.unwrap();
    for command in ["initialize", "attach"] {
        let asked = read(&mut debugpy).await;
        assert_eq!(asked["command"], command);
        let answer = json!({"seq": 2, "type": "response", "request_seq": asked["seq"], "success": true, "command": command, "body": {}});
        debugpy.send(&answer).await.unwrap();
    }
    let answer = read(&mut client).await;
    assert_eq!(
        (&answer["command"], &answer["success"]),
        (&json!("attach"), &json!(true))
    );
    (client, debugpy)
}

#[tokio::test]
async fn a_session_inside_tls_passes_large_messages_and_half_closes() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    // Through the TLS buffers many times over, both ways at once.
    let text = "x".repeat(8 << 20);
    let big = json!({"seq": 9, "type": "event", "event": "output", "body": {"output": text}});
    let up = request(9, "evaluate", &json!({"expression": text}));
    let (mut client, _) = client.into_parts();
    let frame = crate::dap::codec::frame(&up);
    let (mut reading, mut writing) = tokio::io::split(&mut client);
    let mut seen = Conversation::new(tokio::io::join(&mut reading, tokio::io::sink()), 1 << 26);
    let (sent, asked, event) = tokio::join!(
        async {
            writing.write_all(&frame).await?;
            writing.flush().await
        },
        async {
            debugpy.send(&big).await.unwrap();
            read(&mut debugpy).await
        },
        async {
            loop {
                let message = read(&mut seen).await;
                if message["seq"] == 9 {
                    return message;
                }
            }
        },
    );
    sent.unwrap();
    assert_eq!(asked["arguments"], up["arguments"]);
    assert_eq!(event, big);

    // The client closes its half; what the worker still says arrives.
    client.shutdown().await.unwrap();
    let end = timeout(PATIENCE, debugpy.read()).await.unwrap();
    assert!(
        matches!(end, Err(Over::Closed)),
        "the half-close is passed on: {end:?}"
    );
    let last = json!({"seq": 11, "type": "event", "event": "terminated"});
    debugpy.send(&last).await.unwrap();
    drop(debugpy);
    let mut client = Conversation::new(client, 1 << 26);
    while read(&mut client).await != last {}
    closed(&mut client).await;
    let ended = r#"ray_relay_sessions_total{outcome="client",protocol="dap"} 1"#;
    let counted = async { while !relay.metrics(relay.encrypted().await).await.contains(ended) {} };
    timeout(PATIENCE, counted).await.unwrap();
}

/// In order, by the goodbye of TLS: a bare end would be an error.
async fn closed(client: &mut Conversation<TlsStream<TcpStream>>) {
    let end = timeout(PATIENCE, client.read()).await.unwrap();
    assert!(matches!(end, Err(Over::Closed)), "{end:?}");
}

#[tokio::test]
async fn every_session_ends_with_the_goodbye_of_tls() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    let (mut stream, _) = client.into_parts();
    let goodbye = crate::dap::codec::frame(&request(9, "disconnect", &json!({})));
    stream.write_all(&goodbye).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read(&mut debugpy).await["command"], "disconnect");
    closed(&mut Conversation::new(stream, 1 << 20)).await;
    drop(debugpy);

    let (mut client, _debugpy) = attached(&relay).await;
    relay.running.abort().await;
    while read(&mut client).await["event"] != "terminated" {}
    closed(&mut client).await;
}

#[tokio::test]
async fn a_client_that_leaves_without_a_goodbye_ends_its_session() {
    let relay = Relay::start(Files::config).await;
    let (client, mut debugpy) = attached(&relay).await;
    let (stream, _) = client.into_parts();
    let (mut tcp, _) = stream.into_inner();
    tcp.shutdown().await.unwrap();
    let end = timeout(PATIENCE, debugpy.read()).await.unwrap();
    assert!(matches!(end, Err(Over::Closed)), "{end:?}");
}

#[tokio::test]
async fn the_dashboard_is_served_inside_tls_with_addresses_of_the_relay() {
    let head = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = head.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        loop {
            let (mut stream, _) = head.accept().await.unwrap();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while stream.read_buf(&mut seen).await.unwrap_or(0) > 0 {
                    if !seen.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let text = String::from_utf8(std::mem::take(&mut seen)).unwrap();
                    let (extra, body) = match text.contains("/api/v0/workers") {
                        true => (
                            "content-type: application/json\r\n".to_owned(),
                            r#"{"data": {"result": {"result": [{"worker_id": "aa", "ip": "10.88.0.10", "debugger_port": 38645, "num_paused_threads": 0}]}}}"#,
                        ),
                        false => (
                            format!(
                                "location: http://{at}/there\r\nx-origin: {}\r\n",
                                text.contains("origin")
                            ),
                            "",
                        ),
                    };
                    let status = if body.is_empty() {
                        "302 Found"
                    } else {
                        "200 OK"
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\n{extra}content-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let relay = Relay::changed(Files::config, |config| {
        config.clusters[0].ray_address = format!("http://{at}");
    })
    .await;
    let get = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: localhost:15678\r\n{more}connection: close\r\n\r\n")
    };
    let mut stream = relay.encrypted().await;
    let answer = said(&mut stream, get("/api/v0/workers?detail=1", "").as_bytes()).await;
    assert!(
        answer.contains(r#""ip": "localhost""#) && answer.contains("15678"),
        "{answer}"
    );
    assert!(
        !answer.contains("10.88.0.10") && !answer.contains("38645"),
        "{answer}"
    );
    // A redirect within the head is one within the relay, whatever the scheme.
    let origin = "origin: https://localhost:15678\r\nsec-fetch-site: same-origin\r\n";
    let answer = said(
        &mut relay.encrypted().await,
        get("/here", origin).as_bytes(),
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 302") && answer.contains("location: /there\r\n"),
        "{answer}"
    );
    let foreign = "origin: https://elsewhere\r\n";
    let answer = said(
        &mut relay.encrypted().await,
        get("/here", foreign).as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    answering.abort();
}
