//! `ray-relay connect` through an ingress, nginx or HAProxy, with TLS and below a path. Its idle timeout is shorter than a
//! user's pause at a breakpoint.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ray_relay::app::Running;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connect::{Connect, answers, command};
use super::support::*;

/// After so many seconds without a byte the ingress ends a connection.
const INGRESS_TIMEOUT_SECONDS: u64 = 2;

/// An ingress that has `/team/ray/` of `relay.example.com` lead to a relay. Killed when dropped.
struct Ingress {
    process: Child,
    /// A company's proxy, from which it is reached.
    proxy: SocketAddr,
    dir: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl Ingress {
    /// One that `program` is, with what `config` makes of a folder and the relay's address. It listens on a Unix socket, so that
    /// no port has to be found free for it.
    async fn start(program: &str, args: &[&str], config: impl FnOnce(&Path) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["relay.example.com".into()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        file("ca.pem", &certificate);
        file("both.pem", &(certificate.clone() + &key.serialize_pem()));
        file("config", &config(dir.path()));
        let process = Command::new(program)
            .args(args)
            .arg(dir.path().join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let process = process.unwrap();
        let socket = dir.path().join("socket");
        let there = async {
            while UnixStream::connect(&socket).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, there).await.expect("it listens");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let ingress = UnixStream::connect(&socket).await.unwrap();
                open.spawn(proxied(client, ingress));
            }
        });
        Self {
            process,
            proxy: address,
            dir,
            _tasks: tasks,
        }
    }

    /// In the way that ingress-nginx writes it.
    async fn nginx(relay: SocketAddr) -> Self {
        let config = |dir: &Path| {
            let dir = dir.display();
            format!(
                "daemon off; pid {dir}/pid; error_log stderr crit; events {{}}
                 http {{
                   access_log off; client_body_temp_path {dir}; proxy_temp_path {dir};
                   fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
                   map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
                   server {{
                     listen unix:{dir}/socket ssl; server_name relay.example.com;
                     ssl_certificate {dir}/both.pem; ssl_certificate_key {dir}/both.pem;
                     location /team/ray/ {{
                       proxy_pass http://{relay}/; proxy_http_version 1.1;
                       proxy_set_header Host $host; proxy_set_header Upgrade $http_upgrade;
                       proxy_set_header Connection $connection_upgrade;
                       proxy_set_header X-Forwarded-Proto https; proxy_set_header X-Forwarded-Prefix /team/ray;
                       proxy_buffering off;
                       proxy_read_timeout {INGRESS_TIMEOUT_SECONDS}s; proxy_send_timeout {INGRESS_TIMEOUT_SECONDS}s;
                     }}
                   }}
                 }}"
            )
        };
        Self::start("nginx", &["-e", "stderr", "-c"], config).await
    }

    async fn haproxy(relay: SocketAddr) -> Self {
        let config = |dir: &Path| {
            let dir = dir.display();
            format!(
                "defaults\n mode http\n timeout connect 5s\n timeout client {INGRESS_TIMEOUT_SECONDS}s\n timeout server {INGRESS_TIMEOUT_SECONDS}s\n timeout tunnel {INGRESS_TIMEOUT_SECONDS}s\n\
                 frontend door\n bind unix@{dir}/socket ssl crt {dir}/both.pem alpn h2,http/1.1\n use_backend relay if {{ path_beg /team/ray/ }}\n\
                 backend relay\n http-request replace-path /team/ray(/.*) \\1\n http-request set-header X-Forwarded-Proto https\n server relay {relay}\n"
            )
        };
        Self::start("haproxy", &["-db", "-q", "-f"], config).await
    }
}

/// Connects `client` with `ingress` through a CONNECT request.
async fn proxied(client: TcpStream, mut ingress: UnixStream) {
    let mut client = BufStream::new(client);
    let mut line = String::new();
    client.read_line(&mut line).await.unwrap();
    assert_eq!(line, "CONNECT relay.example.com:443 HTTP/1.1\r\n");
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).await.unwrap();
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    client.flush().await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut ingress).await;
}

impl Drop for Ingress {
    fn drop(&mut self) {
        // nginx leads a process of its own, which it takes along where it is asked to end.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}

async fn relay(keys: &Keys) -> Running {
    start(|config| {
        config.auth.keys = vec![keys.public()];
        config.http.allowed_hosts = vec!["relay.example.com".to_owned()];
    })
    .await
}

/// Whether `program` is there. Where CI runs, it has to be.
fn is_there(program: &str) -> bool {
    let there = Command::new(program)
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let there = there.is_ok();
    assert!(there || std::env::var_os("CI").is_none(), "no {program}");
    if !there {
        eprintln!("SKIPPED: there is no {program}");
    }
    there
}

/// A session behind `ingress` that is idle for longer than the ingress's timeout.
async fn idle_user_keeps_their_session(keys: &Keys, relay: Running, ingress: Ingress) {
    let mut connecting = command("https://relay.example.com/team/ray");
    connecting
        .arg("--ca-file")
        .arg(ingress.dir.path().join("ca.pem"));
    connecting.env("HTTPS_PROXY", format!("http://{}", ingress.proxy));
    let mut connect = Connect::of(connecting, &keys.token(|_| {})).await;
    connect.event("connected").await;
    let list = connect.get("/relay/v1/breakpoints", "").await;
    assert!(list.starts_with("HTTP/1.1 200"), "{list}");
    let (mut dap, answer) = attach(dial(connect.address).await, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized", "{answer}");
    let began = Instant::now();
    let mut at = 3;
    while began.elapsed() < Duration::from_secs(INGRESS_TIMEOUT_SECONDS * 4) {
        sleep(Duration::from_secs(INGRESS_TIMEOUT_SECONDS) + Duration::from_millis(500)).await;
        answers(&mut dap, at).await;
        at += 1;
    }
    drop((dap, connect));
    relay.drain().await;
}

#[tokio::test]
async fn nginx_below_a_path() {
    if !is_there("nginx") {
        return;
    }
    let keys = Keys::new();
    let relay = relay(&keys).await;
    let ingress = Ingress::nginx(relay.local_addr()).await;
    idle_user_keeps_their_session(&keys, relay, ingress).await;
}

#[tokio::test]
async fn haproxy_below_a_path() {
    if !is_there("haproxy") {
        return;
    }
    let keys = Keys::new();
    let relay = relay(&keys).await;
    let ingress = Ingress::haproxy(relay.local_addr()).await;
    idle_user_keeps_their_session(&keys, relay, ingress).await;
}
