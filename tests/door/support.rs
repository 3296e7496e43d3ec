//! A relay in this process, its head nowhere, and a debugger that talks to it.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};

use ray_relay::app::{self, Running};
use ray_relay_base::config::{self, Config};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::tcp::free_port;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a relay on a port of its own.
pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    config.listen.address = ([127, 0, 0, 1], 0).into();
    config.clusters[0].ray_address = "http://127.0.0.1:1".to_owned();
    config.clusters[0].gcs_address = config::Gcs::Off;
    config.park.r#for = Duration::ZERO;
    change(&mut config);
    app::start(config).await.unwrap()
}

/// A loopback address where nothing listens.
pub(crate) fn closed_address() -> SocketAddr {
    ([127, 0, 0, 1], free_port().unwrap()).into()
}

pub(crate) async fn dial(relay: SocketAddr) -> TcpStream {
    TcpStream::connect(relay).await.unwrap()
}

/// Everything that the relay says until it closes.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut all = Vec::new();
    let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut all)).await;
    read.expect("the relay closes").unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

pub(crate) fn request(seq: u64, command: &str, arguments: &Value) -> Value {
    json!({"seq": seq, "type": "request", "command": command, "arguments": arguments})
}

/// The next message, in time.
pub(crate) async fn read<S: AsyncRead + AsyncWrite + Unpin>(dap: &mut Conversation<S>) -> Value {
    let read = timeout(TEST_TIMEOUT, dap.read()).await;
    read.expect("in time").unwrap()
}

/// `initialize` and `attach` as VS Code sends them, and the relay's first word after them: `initialized` of a cluster
/// session, or a refusal.
pub(crate) async fn attach<S>(stream: S, ray_relay: &Value) -> (Conversation<S>, Value)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut dap = Conversation::new(stream, 1 << 20);
    let client = json!({"clientID": "vscode", "supportsStartDebuggingRequest": true});
    dap.send(&request(1, "initialize", &client)).await.unwrap();
    assert_eq!(read(&mut dap).await["command"], "initialize");
    let arguments = json!({"type": "debugpy", "rayRelay": ray_relay});
    dap.send(&request(2, "attach", &arguments)).await.unwrap();
    let answer = read(&mut dap).await;
    (dap, answer)
}

/// An issuer of tokens.
pub(crate) struct Keys {
    dir: tempfile::TempDir,
    key: EncodingKey,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        std::fs::write(dir.path().join("relay.pub"), pair.public_key_pem()).unwrap();
        let key = EncodingKey::from_ed_der(&pair.serialize_der());
        Self { dir, key }
    }

    pub(crate) fn public(&self) -> std::path::PathBuf {
        self.dir.path().join("relay.pub")
    }

    /// Of Ann, with the claims changed.
    pub(crate) fn token(&self, change: impl FnOnce(&mut Value)) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut claims = json!({"sub": "ann", "jti": "one", "aud": "ray-relay", "exp": now.as_secs() + 600,
            "scope": "list,debug,terminal,dashboard:write"});
        change(&mut claims);
        encode(&Header::new(Algorithm::EdDSA), &claims, &self.key).unwrap()
    }
}
