//! Tests fetches from a scripted source under a paused clock, the parsing of key sets, and real files and servers.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::convert::Infallible;

use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{advance, sleep};

use super::set::SetError;
use super::*;

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn ed25519(kid: &str) -> Value {
    let pair = Ed25519KeyPair::generate().unwrap();
    json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(pair.public_key().as_ref())})
}

fn set_of(keys: &[Value]) -> String {
    json!({"keys": keys}).to_string()
}

/// A source with scripted answers, which counts its fetches.
struct ScriptedSource {
    responses: Mutex<VecDeque<Result<String, &'static str>>>,
    fetches: Mutex<Vec<Instant>>,
    latency: Mutex<Duration>,
}

impl ScriptedSource {
    fn publishing(kids: &[&str]) -> Arc<Self> {
        let script = Self {
            responses: Mutex::default(),
            fetches: Mutex::default(),
            latency: Mutex::default(),
        };
        script.publish(kids);
        Arc::new(script)
    }

    fn publish(&self, kids: &[&str]) {
        let keys: Vec<_> = kids.iter().map(|kid| ed25519(kid)).collect();
        *self.responses.lock() = VecDeque::from([Ok(set_of(&keys))]);
    }

    fn fail_next(&self) {
        *self.responses.lock() = VecDeque::from([Err("it is out")]);
    }

    fn fetches(&self) -> usize {
        self.fetches.lock().len()
    }
}

impl Fetch for Arc<ScriptedSource> {
    async fn fetch(&self) -> Result<Fetched, String> {
        self.fetches.lock().push(Instant::now());
        let latency = *self.latency.lock();
        sleep(latency).await;
        let text = self.responses.lock()[0].clone();
        Ok(Fetched::Set(set::parse(text?.as_bytes()).unwrap()))
    }

    fn name(&self) -> &str {
        "script"
    }
}

type Keys = RemoteKeys<Arc<ScriptedSource>>;

fn running(script: &Arc<ScriptedSource>) -> Keys {
    let keys = RemoteKeys::with(Arc::clone(script), &config::Jwks::default(), false);
    run(&keys);
    keys
}

fn run<S: Fetch>(keys: &RemoteKeys<S>) {
    let background = keys.clone();
    tokio::spawn(async move { background.run(CancellationToken::new()).await });
}

async fn find<S: Fetch>(keys: &RemoteKeys<S>, kid: &str) -> Result<usize, KeysUnavailable> {
    let found = keys.candidates(Some(kid), Algorithm::EdDsa).await?;
    assert!(found.iter().all(|key| key.kid() == Some(kid)));
    Ok(found.len())
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn early_tokens_wait_for_the_first_key_set() {
    let script = ScriptedSource::publishing(&["a"]);
    *script.latency.lock() = 2 * SECOND;
    let keys = running(&script);
    let started = Instant::now();
    assert_eq!(find(&keys, "a").await, Ok(1));
    assert_eq!(started.elapsed(), 2 * SECOND);
    assert_eq!(script.fetches(), 1);
    for other in [Algorithm::Hs256, Algorithm::Rs256] {
        let found = keys.candidates(Some("a"), other).await.unwrap();
        assert_eq!(found.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_key_triggers_one_shared_fetch() {
    let script = ScriptedSource::publishing(&["old"]);
    let keys = running(&script);
    assert_eq!(find(&keys, "old").await, Ok(1));
    script.publish(&["old", "new"]);
    *script.latency.lock() = SECOND;
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let keys = keys.clone();
            tokio::spawn(async move { find(&keys, "new").await })
        })
        .collect();
    for one in waiting {
        assert_eq!(one.await.unwrap(), Ok(1));
    }
    assert_eq!(script.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn made_up_key_ids_cost_one_fetch_per_30_s() {
    let script = ScriptedSource::publishing(&["a"]);
    let keys = running(&script);
    assert_eq!(find(&keys, "a").await, Ok(1));
    for n in 0..1000 {
        assert_eq!(find(&keys, &format!("made-up-{n}")).await, Ok(0));
    }
    assert_eq!(script.fetches(), 2);
    // Clients whose key is known do not wait for the fetch of others.
    advance(40 * SECOND).await;
    *script.latency.lock() = 3 * SECOND;
    let started = Instant::now();
    let other = keys.clone();
    let waiting = tokio::spawn(async move { find(&other, "made-up").await });
    tokio::task::yield_now().await;
    assert_eq!(find(&keys, "a").await, Ok(1));
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(waiting.await.unwrap(), Ok(0));
    assert_eq!(script.fetches(), 3);
    sleep(100 * SECOND).await;
    for n in 0..1000 {
        assert_eq!(find(&keys, &format!("made-up-{n}")).await, Ok(0));
    }
    assert_eq!(script.fetches(), 4);
}

#[tokio::test(start_paused = true)]
async fn key_set_is_refreshed_and_withdrawn_keys_expire() {
    let script = ScriptedSource::publishing(&["a"]);
    let keys = running(&script);
    assert_eq!(find(&keys, "a").await, Ok(1));
    script.publish(&["b"]);
    assert_eq!(find(&keys, "a").await, Ok(1));
    sleep(301 * SECOND).await;
    assert_eq!(script.fetches(), 2);
    assert_eq!(find(&keys, "b").await, Ok(1));
    assert_eq!(find(&keys, "a").await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn cached_keys_outlive_failures_for_a_limited_time() {
    let script = ScriptedSource::publishing(&["a"]);
    let keys = running(&script);
    assert_eq!(find(&keys, "a").await, Ok(1));
    script.fail_next();
    sleep(3500 * SECOND).await;
    assert_eq!(find(&keys, "a").await, Ok(1));
    sleep(101 * SECOND).await;
    assert!(find(&keys, "a").await.is_err());
    // The source was fetched throughout with growing pauses, up to one minute.
    let fetches = script.fetches();
    assert!((60..150).contains(&fetches), "{fetches}");
    script.publish(&["a"]);
    sleep(61 * SECOND).await;
    assert_eq!(find(&keys, "a").await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn unresponsive_source_times_out() {
    let script = ScriptedSource::publishing(&["a"]);
    *script.latency.lock() = 1000 * SECOND;
    let keys = running(&script);
    let started = Instant::now();
    let error = find(&keys, "a").await.unwrap_err();
    assert!(error.to_string().contains("cannot be fetched"), "{error}");
    assert_eq!(started.elapsed(), config::Jwks::default().timeout);
}

#[test]
fn only_known_public_signature_keys_are_loaded() {
    let rsa = |n: &[u8]| json!({"kty": "RSA", "n": b64(n), "e": "AQAB"});
    let with_members = |mut key: Value, members: Value| {
        let members = members.as_object().unwrap().clone();
        key.as_object_mut().unwrap().extend(members);
        key
    };
    let pair = EcdsaKeyPair::generate(&aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING);
    let point = pair.unwrap().public_key().as_ref().to_vec();
    let p256 =
        json!({"kty": "EC", "crv": "P-256", "x": b64(&point[1..33]), "y": b64(&point[33..])});
    let large = rsa(&[0xc1; 256]);
    let for_rs256 = json!({"kid": "1", "alg": "RS256", "use": "sig"});
    let for_es256 = json!({"kid": "2", "alg": "ES256", "key_ops": ["verify"]});
    let for_eddsa = json!({"alg": "EdDSA", "x5c": ["ignored"], "unknown": {}});
    let valid = [
        with_members(large.clone(), for_rs256),
        with_members(p256.clone(), for_es256),
        with_members(ed25519("3"), for_eddsa),
    ];
    let invalid = [
        rsa(&[0xc1; 128]),
        with_members(large.clone(), json!({"alg": "RS512"})),
        with_members(large.clone(), json!({"alg": "HS256"})),
        with_members(large, json!({"use": "enc"})),
        with_members(p256.clone(), json!({"alg": "RS256"})),
        with_members(p256.clone(), json!({"key_ops": ["sign"]})),
        with_members(p256.clone(), json!({"d": b64(&[1; 32])})),
        with_members(p256, json!({"x": b64(&[1; 32])})),
        json!({"kty": "OKP", "crv": "X25519", "x": b64(&[9; 32])}),
        json!({"kty": "oct", "k": b64(&[7; 64]), "alg": "HS256"}),
        json!({"kty": "new"}),
        json!("text"),
        json!(null),
    ];
    let all: Vec<_> = valid.iter().chain(&invalid).cloned().collect();
    let parsed = set::parse(set_of(&all).as_bytes()).unwrap();
    let kids: Vec<_> = parsed.iter().filter_map(VerificationKey::kid).collect();
    assert_eq!(kids, ["1", "2", "3"]);
    for key in invalid {
        let text = set_of(std::slice::from_ref(&key));
        assert_eq!(set::parse(text.as_bytes()).unwrap().len(), 0, "{key}");
    }
    let too_many = set_of(&vec![json!({}); set::MAX_KEYS + 1]);
    let too_long = set_of(&[json!("x".repeat(set::MAX_KEY_SET_BYTES))]);
    for (text, expected) in [(too_many, SetError::TooMany), (too_long, SetError::TooLong)] {
        assert_eq!(set::parse(text.as_bytes()).unwrap_err(), expected);
    }
    for text in [
        "",
        "{",
        "[]",
        r#"{"keys": 1}"#,
        r#"{"jwks_uri": "https://x"}"#,
    ] {
        let error = set::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("jwks_uri"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_key_set_is_parsed_without_panic(text in "\\PC{0,200}", kty in "(RSA|EC|OKP|oct)", x in "[A-Za-z0-9_=-]{0,90}") {
        let _ = set::parse(text.as_bytes());
        let key = json!({"kty": kty, "crv": "P-256", "x": x, "y": x, "n": x, "e": x});
        let _ = set::parse(set_of(&[key]).as_bytes());
    }
}

/// Starts a server that answers every request with this status and body, and returns its address.
async fn serve(status: u16, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let body = body.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<hyper::body::Incoming>| {
                    assert_eq!(request.uri().path(), "/keys");
                    assert!(!request.headers().contains_key("authorization"));
                    let response = Response::builder().status(status);
                    let response = response.header("location", "/other");
                    let response = response.body(body.clone()).unwrap();
                    async move { Ok::<_, Infallible>(response) }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    format!("http://{address}/keys")
}

fn remote_source(url: String) -> Source {
    let config = config::Jwks {
        url: Some(url),
        ..config::Jwks::default()
    };
    Source::new(&config).unwrap().unwrap()
}

#[tokio::test]
async fn key_set_url_accepts_only_a_key_set() {
    let valid = serve(200, set_of(&[ed25519("a")])).await;
    let Fetched::Set(keys) = remote_source(valid).fetch().await.unwrap() else {
        panic!("unchanged");
    };
    assert_eq!(keys[0].kid(), Some("a"));
    for (status, body, error) in [
        (302, set_of(&[ed25519("a")]), "redirects"),
        (500, set_of(&[ed25519("a")]), "answered 500"),
        (200, "<html>".to_owned(), "not a JSON Web Key Set"),
        (
            200,
            "x".repeat(set::MAX_KEY_SET_BYTES + 1),
            "longer than 256 KiB",
        ),
    ] {
        let failed = remote_source(serve(status, body).await)
            .fetch()
            .await
            .err()
            .unwrap();
        assert!(failed.contains(error), "{failed}");
    }
    let secret = remote_source("http://127.0.0.1:1/keys?apikey=secret".to_owned());
    assert!(!secret.name().contains("secret"));
    assert!(!secret.fetch().await.err().unwrap().contains("secret"));
}

fn file_source(path: &std::path::Path) -> config::Jwks {
    config::Jwks {
        file: Some(path.to_owned()),
        ..config::Jwks::default()
    }
}

#[tokio::test]
async fn changed_file_is_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    let config = file_source(&path);
    assert!(RemoteKeys::new(&config).is_err());
    std::fs::write(&path, "{}").unwrap();
    let error = RemoteKeys::new(&config).err().unwrap().to_string();
    assert!(error.contains("JSON Web Key Set"), "{error}");
    std::fs::write(&path, set_of(&[ed25519("a")])).unwrap();
    let keys = RemoteKeys::new(&config).unwrap().unwrap();
    assert_eq!(find(&keys, "a").await, Ok(1));
    run(&keys);
    // Replace the file atomically, like Kubernetes does.
    let next = dir.path().join("next");
    std::fs::write(&next, set_of(&[ed25519("b"), ed25519("c")])).unwrap();
    std::fs::rename(&next, &path).unwrap();
    let mut changes = keys.0.keys.subscribe();
    let read = changes.wait_for(|keys| keys.has("b"));
    drop(timeout(10 * SECOND, read).await.unwrap().unwrap());
    assert_eq!(find(&keys, "a").await, Ok(0));
    assert!(RemoteKeys::new(&config::Jwks::default()).unwrap().is_none());
}

#[tokio::test]
async fn file_is_reread_only_when_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    std::fs::write(&path, set_of(&[ed25519("a")])).unwrap();
    let source = Source::new(&file_source(&path)).unwrap().unwrap();
    assert!(matches!(source.fetch().await, Ok(Fetched::Set(_))));
    assert!(matches!(source.fetch().await, Ok(Fetched::Unchanged)));
    ray_relay_base::wire::watched_file::testing::swap(&path, &set_of(&[ed25519("b")]));
    assert!(matches!(source.fetch().await, Ok(Fetched::Set(_))));
    // An unreadable file is reported each time.
    std::fs::write(&path, "{}").unwrap();
    assert!(source.fetch().await.is_err() && source.fetch().await.is_err());
}
