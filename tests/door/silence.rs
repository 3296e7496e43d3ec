//! Connections with invalid credentials, over every protocol, send no byte to a worker or a head. The whole relay is tested.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ray_relay::app::{self, Running};
use ray_relay_base::config::{self, Config, TlsMode};
use ray_relay_ray::ray::registry::{Breakpoint, Names};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::paused::worker_at;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Records the first line of each connection, and sends nothing.
struct Silent {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl Silent {
    async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (notes, at) = (Arc::clone(&notes), {
                    let mut notes = notes.lock().unwrap();
                    notes.push("connected".to_owned());
                    notes.len() - 1
                });
                tokio::spawn(async move {
                    let mut lines = BufReader::new(stream).lines();
                    if let Ok(Some(line)) = lines.next_line().await {
                        notes.lock().unwrap()[at] = line;
                    }
                    while let Ok(Some(_)) = lines.next_line().await {}
                });
            }
        });
        Self { address, received }
    }

    /// Returns the requests it received, without the registry's polls.
    fn received(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let others = received
            .iter()
            .filter(|line| !line.contains("num_paused_threads"));
        others.cloned().collect()
    }
}

fn breakpoint(worker: SocketAddr, id: &str, job: &str) -> Breakpoint {
    let names = Names {
        name: Some("secret_task".to_owned()),
        job_id: Some(job.to_owned()),
        ..Names::default()
    };
    worker_at(worker, id, names)
}

/// The key pairs of the issuer, and of another one.
struct Keys {
    dir: tempfile::TempDir,
    trusted: EncodingKey,
    untrusted: EncodingKey,
}

impl Keys {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pair = |name: &str| {
            let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            let public = pair.public_key_pem();
            std::fs::write(dir.path().join(name), public).unwrap();
            EncodingKey::from_ed_der(&pair.serialize_der())
        };
        let (trusted, untrusted) = (pair("ours.pem"), pair("theirs.pem"));
        Self {
            dir,
            trusted,
            untrusted,
        }
    }

    fn public(&self) -> std::path::PathBuf {
        self.dir.path().join("ours.pem")
    }

    fn token(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = claims();
        change(&mut claims);
        encode(&Header::new(Algorithm::EdDSA), &claims, &self.trusted).unwrap()
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn claims() -> Value {
    json!({"sub": "ann", "jti": "one", "aud": "ray-relay", "iss": "us", "iat": now(), "exp": now() + 600,
        "scope": "list,debug,terminal,dashboard:write"})
}

/// Everything that must not open anything, by what is wrong with it.
fn wrong(keys: &Keys) -> Vec<(&'static str, Option<String>)> {
    let valid = keys.token(|_| {});
    let parts: Vec<_> = valid.split('.').collect();
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let public = std::fs::read(keys.public()).unwrap();
    let confused = encode(
        &Header::new(Algorithm::HS256),
        &claims(),
        &EncodingKey::from_secret(&public),
    )
    .unwrap();
    vec![
        ("none at all", None),
        (
            "expired",
            Some(keys.token(|c| c["exp"] = (now() - 3600).into())),
        ),
        (
            "not yet valid",
            Some(keys.token(|c| c["nbf"] = (now() + 3600).into())),
        ),
        (
            "wrong audience",
            Some(keys.token(|c| c["aud"] = "another-service".into())),
        ),
        ("no audience", Some(keys.token(|c| c["aud"] = Value::Null))),
        (
            "wrong issuer",
            Some(keys.token(|c| c["iss"] = "them".into())),
        ),
        ("no end", Some(keys.token(|c| c["exp"] = Value::Null))),
        (
            "wrong key",
            Some(encode(&Header::new(Algorithm::EdDSA), &claims(), &keys.untrusted).unwrap()),
        ),
        (
            "algorithm none",
            Some(format!("{}.{}.", part(json!({"alg": "none"})), parts[1])),
        ),
        ("the public key as a secret", Some(confused)),
        (
            "another's claims",
            Some(format!(
                "{}.{}.{}",
                parts[0],
                part(
                    json!({"sub": "eve", "aud": "ray-relay", "iss": "us", "exp": now() + 600, "scope": "debug"})
                ),
                parts[2]
            )),
        ),
        ("truncated", Some(valid[..valid.len() - 4].to_owned())),
        ("oversized", Some(format!("{valid}{}", "A".repeat(20_000)))),
        ("revoked", Some(keys.token(|c| c["jti"] = "revoked".into()))),
        (
            "right, but for another job",
            Some(keys.token(|c| c["ray_relay"] = json!({"jobs": ["02000000"]}))),
        ),
        (
            "right, but it may only list",
            Some(keys.token(|c| c["scope"] = "list".into())),
        ),
        (
            "right, but it may do nothing",
            Some(keys.token(|c| c["scope"] = "".into())),
        ),
    ]
}

async fn start(keys: &Keys, head: &Silent, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    config.listen.address = ([127, 0, 0, 1], 0).into();
    config.clusters[0].ray_address = format!("http://{}", head.address);
    config.clusters[0].gcs_address = config::Gcs::Off;
    // The head leaves the first poll unanswered, so no more arrive.
    config.registry.request_timeout = Duration::from_secs(600);
    config.auth.keys = vec![keys.public()];
    config.auth.issuer = vec!["us".to_owned()];
    let revoked = keys.dir.path().join("revoked");
    std::fs::write(&revoked, "{\"jti\":\"revoked\"}\n").unwrap();
    config.auth.revocations_file = Some(revoked);
    // The tests are many clients behind one address.
    config.auth.throttle_after = 10_000;
    change(&mut config);
    app::start(config).await.unwrap()
}

fn frame(is_allowed: &Value) -> Vec<u8> {
    let body = is_allowed.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends `bytes`, and reads until the relay closes.
async fn exchange(relay: SocketAddr, bytes: &[u8]) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(relay).await.unwrap();
        // The relay may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    timeout(TEST_TIMEOUT, exchange)
        .await
        .expect("the relay did not close")
}

/// The first line of the answer to `bytes`, whatever becomes of the connection.
async fn first_line(relay: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(relay).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let line = BufReader::new(stream).lines().next_line().await;
    line.unwrap().unwrap_or_default()
}

/// `attach` with these arguments, straight behind `initialize`.
async fn attach(relay: SocketAddr, arguments: Value) -> String {
    let mut bytes = frame(
        &json!({"seq": 1, "type": "request", "command": "initialize",
        "arguments": {"adapterID": "x", "supportsStartDebuggingRequest": true}}),
    );
    bytes.extend(frame(
        &json!({"seq": 2, "type": "request", "command": "attach", "arguments": arguments}),
    ));
    exchange(relay, &bytes).await
}

async fn request(relay: SocketAddr, head: &str) -> String {
    exchange(
        relay,
        format!("{head}Host: 127.0.0.1\r\nConnection: close\r\n\r\n").as_bytes(),
    )
    .await
}

#[tokio::test]
async fn invalid_credentials_reach_no_worker_or_head() {
    let (keys, worker, head) = (Keys::new(), Silent::listen().await, Silent::listen().await);
    let relay = start(&keys, &head, |_| {}).await;
    let target = breakpoint(worker.address, "w1", "01000000");
    relay.registry().insert(target.clone());
    let address = relay.local_addr();
    for (what, token) in wrong(&keys) {
        let mut selector = json!({"breakpoint": target.id});
        if let Some(token) = &token {
            selector["token"] = token.as_str().into();
        }
        let by_name = json!({"rayRelayToken": token, "rayRelay": "secret_task"});
        for arguments in [json!({"rayRelay": selector}), by_name] {
            let answer = attach(address, arguments).await;
            // One that is too long is not read to its end.
            let refused = match what {
                "oversized" => "this connection is closed",
                _ => "\"success\":false",
            };
            assert!(answer.contains(refused), "{what}: {answer}");
            let is_allowed = what.starts_with("right, but it may only list");
            assert!(
                is_allowed || !answer.contains("pid 4711"),
                "{what}: {answer}"
            );
        }
        let bearer = |name: &str| {
            let line = |token: &String| format!("{name}{token}\r\n");
            token.as_ref().map_or_else(String::new, line)
        };
        for place in [
            "Authorization: Bearer ",
            "X-Ray-Authorization: Bearer ",
            "Cookie: ray-authentication-token=",
        ] {
            let credential = bearer(place);
            for path in [
                "/nodes",
                "/api/jobs/",
                "/api/actors/kill?actor_id=ab",
                "/api/v0/actors",
            ] {
                let answer =
                    request(address, &format!("GET {path} HTTP/1.1\r\n{credential}")).await;
                let refused = ["401", "403", "400", "431"].map(|code| format!("HTTP/1.1 {code}"));
                assert!(
                    refused.iter().any(|r| answer.starts_with(r)),
                    "{what} {path}: {answer}"
                );
            }
            let request = format!(
                "GET /api/jobs/x/logs/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n{credential}Connection: Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            );
            let answer = first_line(address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
        }
        assert_eq!(
            head.received(),
            Vec::<String>::new(),
            "{what}: the head was asked"
        );
        assert_eq!(
            worker.received(),
            Vec::<String>::new(),
            "{what}: the worker was dialled"
        );
    }
    // The control: the right one gets there.
    let valid = keys.token(|_| {});
    let session = tokio::spawn(attach(
        address,
        json!({"rayRelay": {"breakpoint": target.id, "token": valid}}),
    ));
    timeout(TEST_TIMEOUT, async {
        while worker.received().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the right token opens the session");
    session.abort();
    relay.abort().await;
}

#[tokio::test]
async fn plain_text_where_tls_is_required_and_smuggled_requests_reach_nobody() {
    let (keys, worker, head) = (Keys::new(), Silent::listen().await, Silent::listen().await);
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path: &Path = keys.dir.path();
        std::fs::write(path.join(name), text).unwrap();
        Some(path.join(name))
    };
    let cert = write("cert.pem", certificate.cert.pem());
    let key = write("key.pem", certificate.signing_key.serialize_pem());
    let valid = keys.token(|_| {});
    let target = breakpoint(worker.address, "w1", "01000000");
    let encrypted = start(&keys, &head, |config| {
        config.tls.mode = TlsMode::Required;
        (config.tls.cert_file, config.tls.key_file) = (cert, key);
    })
    .await;
    encrypted.registry().insert(target.clone());
    let answer = attach(
        encrypted.local_addr(),
        json!({"rayRelay": {"breakpoint": target.id, "token": valid}}),
    )
    .await;
    assert!(
        answer.contains("\"success\":false") && answer.contains("TLS"),
        "{answer}"
    );
    let plain_text = format!("GET /nodes HTTP/1.1\r\nAuthorization: Bearer {valid}\r\n");
    let answer = request(encrypted.local_addr(), &plain_text).await;
    assert!(answer.starts_with("HTTP/1.1 426"), "{answer}");

    let relay = start(&keys, &head, |_| {}).await;
    relay.registry().insert(target);
    let hidden = "GET /api/actors/kill?actor_id=ab HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let ways = [
        format!(
            "POST /api/authenticate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}",
            hidden.len()
        ),
        format!(
            "GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n Authorization: Bearer {valid}\r\n\r\n"
        ),
        format!(
            "GET /nodes HTTP/1.1\r\nHost: 127.0.0.1\r\nX: y\r\n Authorization: Bearer {valid}\r\n\r\n"
        ),
        format!(
            "GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n{hidden}"
        ),
        format!("GET http://127.0.0.1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n{hidden}"),
    ];
    for way in ways {
        let mut stream = TcpStream::connect(relay.local_addr()).await.unwrap();
        stream.write_all(way.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer))
            .await
            .expect("the relay did not close");
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("secret_task"), "{way}\n{answer}");
    }
    assert_eq!(head.received(), Vec::<String>::new());
    assert_eq!(worker.received(), Vec::<String>::new());
    encrypted.abort().await;
    relay.abort().await;
}
