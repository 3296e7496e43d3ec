//! Commands and agents where the only way to the relay is a company's proxy.

use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use ray_relay::app::Running;
use ray_relay_base::config::TlsMode;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufStream, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::support::*;

/// An address that only the proxy can resolve.
const RELAY_URL: &str = "https://relay.example.com";

/// A task that is not there.
const BREAKPOINT_ID: &str = "3kfz0q8m";

/// A proxy that has one way, and keeps what it was asked.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) requests: watch::Receiver<Vec<String>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// One that connects to `relay`, or answers with `refusal`.
    pub(crate) async fn start(relay: SocketAddr, refusal: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let sender = Arc::clone(&sender);
                open.spawn(async move {
                    let mut client = BufStream::new(client);
                    let head = head(&mut client).await;
                    // A command that ends may leave a connection on which it has not yet asked.
                    if head.is_empty() {
                        return;
                    }
                    sender.send_modify(|all: &mut Vec<String>| all.push(head));
                    let answer = match refusal {
                        Some(status) => format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
                        None => "HTTP/1.1 200 Connection established\r\n\r\n".to_owned(),
                    };
                    let _ = client.write_all(answer.as_bytes()).await;
                    let _ = client.flush().await;
                    if refusal.is_none() {
                        let mut relay = TcpStream::connect(relay).await.unwrap();
                        let _ = copy_bidirectional(&mut client, &mut relay).await;
                    }
                });
            }
        });
        Self {
            address,
            requests,
            _tasks: tasks,
        }
    }

    /// The requests that came since this was asked last, each of which wants the relay and shows who asks, to the proxy alone.
    fn request_count(&mut self) -> usize {
        let all = self.requests.borrow_and_update();
        for head in &*all {
            assert!(
                head.starts_with("CONNECT relay.example.com:443 HTTP/1.1\r\n"),
                "{head}"
            );
            // ada:secret
            let shown = "proxy-authorization: Basic YWRhOnNlY3JldA==\r\n";
            assert_eq!(head.to_lowercase().matches("authorization").count(), 1);
            assert!(head.contains(shown), "{head}");
        }
        all.len()
    }
}

pub(crate) async fn head(client: &mut BufStream<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await.unwrap_or(0) == 0 {
            break;
        }
    }
    head
}

/// A relay with TLS and tokens, and a user's files.
struct Behind {
    relay: Running,
    dir: tempfile::TempDir,
}

impl Behind {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["relay.example.com".to_owned(), "localhost".to_owned()];
        let params = rcgen::CertificateParams::new(names).unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = file("ca.pem", &params.self_signed(&key).unwrap().pem());
        let key = file("key.pem", &key.serialize_pem());
        file("token", &keys.token(|_| {}));
        let relay = start(|config| {
            config.auth.keys = vec![keys.public()];
            config.http.allowed_hosts = vec!["relay.example.com".to_owned()];
            config.tls.mode = TlsMode::Required;
            config.tls.cert_file = Some(certificate);
            config.tls.key_file = Some(key);
        })
        .await;
        Self { relay, dir }
    }

    /// The command `args`, with the relay at `url`.
    fn command(&self, args: &[&str], url: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let own = args.iter().position(|arg| *arg == "--");
        let (own, rest) = args.split_at(own.unwrap_or(args.len()));
        command.args(own);
        match own[0] {
            "connect" => command.arg(url),
            _ => command.args(["--relay", url]),
        };
        let file = |name: &str| self.dir.path().join(name);
        command.arg("--ca-file").arg(file("ca.pem"));
        command.arg("--token-file").arg(file("token"));
        command.args(rest);
        command
    }

    async fn run(&self, args: &[&str], url: &str, environment: &[(&str, &str)]) -> Output {
        let mut command = self.command(args, url);
        let run = command.envs(environment.iter().copied()).output();
        timeout(TEST_TIMEOUT, run).await.expect("it ends").unwrap()
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Each command that asks a relay, but for those that stay.
const COMMANDS: [&[&str]; 14] = [
    &["list"],
    &["list", "-v"],
    &["list", "--json"],
    &["sessions"],
    &["sessions", "end", "17"],
    &["release", "--all", "--yes"],
    &["release", BREAKPOINT_ID],
    &["snapshot", BREAKPOINT_ID],
    &["park", BREAKPOINT_ID],
    &["doctor", "--alive"],
    &["doctor"],
    &["exec", "--continue", BREAKPOINT_ID, "--", "p 1"],
    &["debug", BREAKPOINT_ID],
    &["connect", "--listen", "127.0.0.1:0", "--", "true"],
];

#[tokio::test]
async fn each_command_works_the_same_through_the_proxy() {
    let behind = Behind::start().await;
    let mut proxy = Proxy::start(behind.relay.local_addr(), None).await;
    let address = format!("http://ada:secret@{}", proxy.address);
    let direct = format!("https://localhost:{}", behind.relay.local_addr().port());
    for (at, args) in COMMANDS.iter().enumerate() {
        let variable = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"][at % 4];
        let before = proxy.request_count();
        let by = behind.run(args, RELAY_URL, &[(variable, &address)]).await;
        assert!(proxy.request_count() > before, "{args:?} {by:?}");
        let before = proxy.request_count();
        // This machine is never reached by a proxy.
        let without = behind.run(args, &direct, &[(variable, &address)]).await;
        assert_eq!(proxy.request_count(), before, "{args:?}");
        assert_eq!(by.status.code(), without.status.code(), "{args:?} {by:?}");
        let (by, without) = (
            stderr_of(&by).replace(&format!("{RELAY_URL}:443"), &direct),
            stderr_of(&without),
        );
        // Each request has an id of its own, and each `connect` a port.
        let words = |text: &str| {
            let text = text.split(" (request ").next().unwrap_or_default();
            text.rsplit(" leads to ")
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(words(&by), words(&without), "{args:?}");
    }
    let list = behind
        .run(&["list"], RELAY_URL, &[("HTTPS_PROXY", &address)])
        .await;
    assert_eq!(list.status.code(), Some(0), "{list:?}");
    // A file that is wrong is found where it matters, behind the proxy.
    std::fs::remove_file(behind.dir.path().join("ca.pem")).unwrap();
    let doctor = behind
        .run(&["doctor"], RELAY_URL, &[("HTTPS_PROXY", &address)])
        .await;
    assert_eq!(doctor.status.code(), Some(78), "{doctor:?}");
    let stdout = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let broken = stdout.lines().find(|line| line.starts_with("error"));
    assert!(broken.unwrap().contains(" tls "), "{stdout}");
    behind.relay.drain().await;
}

#[tokio::test]
async fn no_proxy_hosts_are_reached_directly() {
    let behind = Behind::start().await;
    let mut proxy = Proxy::start(behind.relay.local_addr(), None).await;
    let address = format!("http://ada:secret@{}", proxy.address);
    for (variable, excepted) in [("NO_PROXY", ".example.com"), ("no_proxy", "10.0.0.0/8,*")] {
        let environment = [("HTTPS_PROXY", &*address), (variable, excepted)];
        // Only the proxy resolves the name.
        for args in [&["list"][..], &["debug", BREAKPOINT_ID]] {
            let output = behind.run(args, RELAY_URL, &environment).await;
            assert_eq!(output.status.code(), Some(69), "{output:?}");
            assert!(
                stderr_of(&output).contains("failed to lookup"),
                "{output:?}"
            );
        }
        let doctor = behind.run(&["doctor"], RELAY_URL, &environment).await;
        let stdout = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(
            stdout.contains("no address for the name relay.example.com"),
            "{stdout}"
        );
    }
    assert_eq!(proxy.request_count(), 0);
    behind.relay.drain().await;
}

#[tokio::test]
async fn refusing_or_unreachable_proxy_is_reported() {
    let behind = Behind::start().await;
    let relay = behind.relay.local_addr();
    let refusal = "407 Proxy Authentication Required";
    let refusing = Proxy::start(relay, Some(refusal)).await;
    let unable = Proxy::start(relay, Some("503 Service Unavailable")).await;
    let down = closed_address();
    for (proxy, expected_error, next, link) in [
        (
            refusing.address,
            "answers 407 Proxy Authentication Required when asked for relay.example.com:443",
            "write HTTPS_PROXY as http://USER:PASSWORD@HOST:PORT",
            "proxy",
        ),
        (
            down,
            "cannot reach the proxy",
            "is HTTPS_PROXY right?",
            "proxy",
        ),
        (
            unable.address,
            "answers 503 Service Unavailable when asked for relay.example.com:443",
            "is the address right",
            "connection",
        ),
    ] {
        let named = format!("http://ada:secret@{proxy}");
        let environment = [("HTTPS_PROXY", &*named)];
        for args in COMMANDS {
            // `connect` waits for a proxy that may come.
            if matches!(args[0], "doctor" | "connect") {
                continue;
            }
            let output = behind.run(args, RELAY_URL, &environment).await;
            let stderr = stderr_of(&output);
            assert_eq!(output.status.code(), Some(69), "{args:?} {stderr}");
            assert!(
                stderr.contains(expected_error) && stderr.contains(next),
                "{args:?} {stderr}"
            );
            assert!(stderr.contains(&proxy.to_string()), "{args:?} {stderr}");
            assert!(!stderr.contains("secret"), "{args:?} {stderr}");
        }
        let doctor = behind.run(&["doctor"], RELAY_URL, &environment).await;
        assert_eq!(doctor.status.code(), Some(69), "{doctor:?}");
        let stdout = String::from_utf8_lossy(&doctor.stdout).into_owned();
        let broken = stdout.lines().find(|line| line.starts_with("error"));
        let broken = broken.unwrap();
        assert!(
            broken.contains(&format!(" {link} ")) && broken.contains(expected_error),
            "{stdout}"
        );
        assert!(
            stdout.contains(next) && !stdout.contains("secret"),
            "{stdout}"
        );
    }
    let named = format!("http://ada:secret@{}", refusing.address);
    let connect = behind
        .run(
            &["connect", "--listen", "127.0.0.1:0"],
            RELAY_URL,
            &[("ALL_PROXY", &named)],
        )
        .await;
    assert_eq!(connect.status.code(), Some(69), "{connect:?}");
    assert!(stderr_of(&connect).contains("answers 407"), "{connect:?}");
    let other = behind
        .run(
            &["list"],
            RELAY_URL,
            &[("ALL_PROXY", "socks5://ada:secret@x")],
        )
        .await;
    assert_eq!(other.status.code(), Some(69), "{other:?}");
    let stderr = stderr_of(&other);
    assert!(
        stderr.contains("ALL_PROXY names no http proxy but socks5://"),
        "{stderr}"
    );
    assert!(!stderr.contains("secret"), "{stderr}");
    behind.relay.drain().await;
}

/// Reads the log of an agent until a line contains `expected`.
async fn logged(agent: &mut Command, expected: &str) -> String {
    let mut agent = agent
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let all = Arc::new(Mutex::new(String::new()));
    let read_lines = |stream: Box<dyn tokio::io::AsyncRead + Send + Unpin>| {
        let all = Arc::clone(&all);
        async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let found = line.contains(expected);
                all.lock().unwrap().push_str(&(line + "\n"));
                if found {
                    break;
                }
            }
        }
    };
    let (out, err) = (agent.stdout.take().unwrap(), agent.stderr.take().unwrap());
    let both = async {
        tokio::select! {
            () = read_lines(Box::new(out)) => {}
            () = read_lines(Box::new(err)) => {}
        }
    };
    let came = timeout(TEST_TIMEOUT, both).await;
    let all = all.lock().unwrap().clone();
    assert!(came.is_ok() && all.contains(expected), "{expected}: {all}");
    all
}

#[tokio::test]
async fn agent_links_through_the_proxy() {
    let behind = Behind::start().await;
    let mut proxy = Proxy::start(behind.relay.local_addr(), None).await;
    let args = [
        "node",
        "--ray-address",
        "http://127.0.0.1:1",
        "--node-id",
        "aa",
    ];
    let named = format!("http://ada:secret@{}", proxy.address);
    // The relay's own word, inside of the tunnel: Ann's token is for no agent.
    let mut agent = behind.command(&args, RELAY_URL);
    let log_line = logged(agent.env("HTTPS_PROXY", &named), "the relay answers 403").await;
    assert!(proxy.request_count() > 0);
    assert!(
        log_line.contains(&format!("proxy={}", proxy.address)),
        "{log_line}"
    );
    assert!(!log_line.contains("secret"), "{log_line}");

    let before = proxy.request_count();
    let mut agent = behind.command(&args, RELAY_URL);
    agent
        .env("HTTPS_PROXY", &named)
        .env("NO_PROXY", "relay.example.com");
    logged(&mut agent, "the relay's name cannot be looked up").await;
    assert_eq!(proxy.request_count(), before);

    let refusing = Proxy::start(behind.relay.local_addr(), Some("403 Forbidden")).await;
    let mut agent = behind.command(&args, RELAY_URL);
    let named = format!("http://ada:secret@{}", refusing.address);
    let log_line = logged(agent.env("all_proxy", &named), "not linked").await;
    assert!(
        log_line.contains("answers 403 Forbidden when asked for relay.example.com:443"),
        "{log_line}"
    );
    assert!(
        log_line.contains("does the proxy allow that host and port?"),
        "{log_line}"
    );

    let mut agent = behind.command(&args, RELAY_URL);
    let ended = agent.env("HTTPS_PROXY", "socks5://ada:secret@x").output();
    let ended = timeout(TEST_TIMEOUT, ended)
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(ended.status.code(), Some(78), "{ended:?}");
    assert!(
        stderr_of(&ended).contains("HTTPS_PROXY names no http proxy but socks5://"),
        "{ended:?}"
    );
    behind.relay.drain().await;
}

#[tokio::test]
async fn debug_adapter_and_rendezvous_use_the_proxy() {
    let behind = Behind::start().await;
    let mut proxy = Proxy::start(behind.relay.local_addr(), None).await;
    let named = format!("http://ada:secret@{}", proxy.address);
    for args in [&["dap"][..], &["reverse", "mine", "--to", "127.0.0.1:1"]] {
        let before = proxy.request_count();
        let mut command = behind.command(args, RELAY_URL);
        let _running = command.env("HTTPS_PROXY", &named).spawn().unwrap();
        let came = proxy.requests.wait_for(|all| all.len() > before);
        timeout(TEST_TIMEOUT, came).await.expect("in time").unwrap();
    }
    proxy.request_count();
    behind.relay.drain().await;
}
