//! Tests whole connections to a relay: every protocol with and without TLS.
#![allow(clippy::unwrap_used)]

mod client_certificates;
mod dashboard;
mod handshake;
mod kept;
mod plain;
mod protocols;
mod pydevd;
mod session;
mod spans;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::app::{self, Running};
use ray_relay_base::config::{self, Config, TlsMode};
use ray_relay_base::dial::testing::{Authority, Client, Files};
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_ray::ray::testing::{listed, paused};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A relay with a certificate and without a head.
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

    async fn metrics(&self) -> String {
        let request =
            b"GET /relay/metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        exchange(&mut self.encrypted().await, request).await
    }
}

/// Sends `bytes`, and returns the answer until the relay closes.
async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    String::from_utf8_lossy(&rest(stream).await).into_owned()
}

async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut all)).await;
    read.expect("the relay closes").unwrap();
    all
}

/// Asserts that `text` contains `expected`.
#[track_caller]
fn assert_has(text: &str, expected: &str) {
    assert!(text.contains(expected), "no {expected:?} in {text}");
}

/// Asserts that the relay answers HTTP.
async fn assert_healthy(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let answer = exchange(stream, HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

/// Sends an HTTP/2 request for `uri`, and returns the results of the request and of the connection.
async fn http2<S>(stream: S, uri: &str) -> (hyper::Result<StatusCode>, hyper::Result<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (io, executor) = (TokioIo::new(stream), TokioExecutor::new());
    let handshake = hyper::client::conn::http2::handshake(executor, io).await;
    let (mut send, connection) = handshake.unwrap();
    let driver = tokio::spawn(connection);
    let request = hyper::Request::get(uri).body(Empty::<Bytes>::new());
    let answer = timeout(TEST_TIMEOUT, send.send_request(request.unwrap())).await;
    drop(send);
    let status = answer.unwrap().map(|answer| answer.status());
    (status, driver.await.unwrap())
}

/// Returns settings for optional TLS.
fn optional(files: &Files) -> config::Tls {
    config::Tls {
        mode: TlsMode::Optional,
        ..files.config()
    }
}

/// Asserts that the connection is closed in order. Inside TLS that includes a close_notify.
async fn closed<S: AsyncRead + AsyncWrite + Unpin>(dap: &mut Conversation<S>) {
    let end = timeout(TEST_TIMEOUT, dap.read()).await.unwrap();
    assert!(matches!(end, Err(Closed::ByPeer)), "{end:?}");
}

const HEALTH: &[u8] =
    b"GET /relay/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn request(seq: u64, command: &str, arguments: &Value) -> Value {
    json!({"seq": seq, "type": "request", "command": command, "arguments": arguments})
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(dap: &mut Conversation<S>) -> Value {
    let message = timeout(TEST_TIMEOUT, dap.read()).await;
    message.expect("in time").unwrap()
}

async fn initialized<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> (Conversation<S>, Value) {
    let mut dap = Conversation::new(stream, 1 << 20);
    let initialize = request(7, "initialize", &json!({"clientID": "test"}));
    dap.send(&initialize).await.unwrap();
    let answer = read(&mut dap).await;
    (dap, answer)
}
