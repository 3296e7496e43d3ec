//! The relay as it is started in earnest, and the clients of these tests.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::{Condvar, Mutex};
use ray_relay_base::wire::dap::conversation::Conversation;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// What the relay may hold under any of these attacks.
pub(crate) const MAX_MEMORY_BYTES: u64 = 128 << 20;

/// How long anything may take that is not an attack.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How long somebody with a token may have to wait. A crowd that kept them out would do so for the minute of
/// `listen.handshake_timeout`; the relay is not optimised here, and beside a compiler it took 2.4 s once.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(6);

/// A relay in a process of its own, ended when dropped.
pub(crate) struct Relay {
    child: Child,
    pub(crate) address: SocketAddr,
    key: EncodingKey,
    _dir: tempfile::TempDir,
    _turn: Turn,
}

/// One of the attacks that run at a time: how long people wait is looked at, and so there are no more than there are cores.
struct Turn;

static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Turn {
    fn take() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut taken = TURNS.0.lock();
        TURNS.1.wait_while(&mut taken, |taken| *taken >= cores);
        *taken += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock() -= 1;
        TURNS.1.notify_one();
    }
}

impl Relay {
    /// In front of `head`; with tokens, where `with_tokens`.
    pub(crate) fn start(head: SocketAddr, with_tokens: bool) -> Self {
        Self::start_after("", &[("default", head)], with_tokens, None)
    }

    /// The same in front of the heads of these clusters, as a shell starts it `before` which that does something to itself, with one more `setting`.
    pub(crate) fn start_after(
        before: &str,
        heads: &[(&str, SocketAddr)],
        with_tokens: bool,
        setting: Option<(&str, &str)>,
    ) -> Self {
        let turn = Turn::take();
        // The clients of these tests need thousands of descriptors.
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let public = dir.path().join("relay.pub");
        std::fs::write(&public, pair.public_key_pem()).unwrap();
        let config = dir.path().join("relay.toml");
        let clusters: String = heads
            .iter()
            .map(|(name, head)| {
                format!("[[cluster]]\nname = \"{name}\"\nray_address = \"http://{head}\"\n")
            })
            .collect();
        std::fs::write(&config, clusters).unwrap();
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{before}exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_ray-relay"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .env_clear()
            .env("HOME", dir.path())
            .env("RAY_RELAY_LOG_FORMAT", "json")
            .envs(setting)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if with_tokens {
            command.arg("--auth-key").arg(&public);
        }
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line: Value = serde_json::from_str(&log.next().unwrap().unwrap()).unwrap();
            if let Some(address) = line["address"].as_str() {
                break address.parse().unwrap();
            }
        };
        // The log goes on and must not fill its pipe.
        std::thread::spawn(move || for _line in log.map_while(Result::ok) {});
        Self {
            child,
            address,
            key: EncodingKey::from_ed_der(&pair.serialize_der()),
            _dir: dir,
            _turn: turn,
        }
    }

    pub(crate) fn token(&self, subject: &str) -> String {
        self.token_with(&json!({"sub": subject, "scope": "list,debug,dashboard:read"}))
    }

    /// A token with these claims, and those that all have.
    pub(crate) fn token_with(&self, claims: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut claims = claims.clone();
        claims["aud"] = "ray-relay".into();
        claims["exp"] = (now.as_secs() + 3600).into();
        encode(&Header::new(Algorithm::EdDSA), &claims, &self.key).unwrap()
    }

    /// A figure of the process in bytes: `VmRSS` now, `VmHWM` at most so far.
    pub(crate) fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with(figure))
            .unwrap();
        let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kibibytes * 1024
    }

    /// Dials from an address of this machine.
    pub(crate) async fn dial(&self, from: IpAddr) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(from, 0))?;
        timeout(TEST_TIMEOUT, socket.connect(self.address))
            .await
            .unwrap()
    }

    /// `count` connections that say `bytes` and nothing more, from the addresses of `from` in turn. Those that the relay
    /// has given up stay in the crowd, closed.
    pub(crate) async fn crowd(
        &self,
        count: usize,
        from: &[IpAddr],
        bytes: &[u8],
    ) -> Vec<TcpStream> {
        let mut crowd = Vec::with_capacity(count);
        for address in from.iter().cycle().take(count) {
            let Ok(mut stream) = self.dial(*address).await else {
                continue;
            };
            // What it does not read it does not take.
            let _ = timeout(Duration::from_millis(200), stream.write_all(bytes)).await;
            crowd.push(stream);
        }
        assert!(crowd.len() > count / 2, "{}", crowd.len());
        crowd
    }

    /// Attaches with `token` for a cluster session: its first word, and how long that took.
    pub(crate) async fn attach(&self, token: &str) -> (Conversation<TcpStream>, Value, Duration) {
        let began = Instant::now();
        let stream = self.dial(HERE).await.unwrap();
        let mut dap = Conversation::new(stream, 1 << 20);
        let client = json!({"clientID": "vscode", "supportsStartDebuggingRequest": true});
        let selector = json!({"all": true, "token": token});
        for (seq, command, arguments) in [
            (1, "initialize", client),
            (2, "attach", json!({"rayRelay": selector})),
        ] {
            let request =
                json!({"seq": seq, "type": "request", "command": command, "arguments": arguments});
            dap.send(&request).await.unwrap();
        }
        let answers = async {
            assert_eq!(dap.read().await.unwrap()["command"], "initialize");
            dap.read().await.unwrap()
        };
        let answer = timeout(TEST_TIMEOUT, answers).await.unwrap();
        (dap, answer, began.elapsed())
    }

    /// The answer to a GET, as JSON.
    pub(crate) async fn json(&self, path: &str, token: &str) -> Value {
        let mut stream = self.dial(HERE).await.unwrap();
        let asked = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let whole = timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await;
        whole.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {head}"))
    }

    /// The head of the answer to a GET; the stream goes on.
    pub(crate) async fn get(&self, path: &str, token: &str) -> (TcpStream, String) {
        let mut stream = self.dial(HERE).await.unwrap();
        let asked = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let head = async {
            while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
            }
        };
        timeout(TEST_TIMEOUT, head).await.unwrap();
        (stream, String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Many addresses of this machine.
pub(crate) fn everywhere() -> Vec<IpAddr> {
    (1..=250)
        .map(|n| Ipv4Addr::new(127, 0, 7, n).into())
        .collect()
}
