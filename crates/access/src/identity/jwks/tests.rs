//! Fetching under a paused clock against a scripted source, sets, and real files and servers.
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
    sets: Mutex<VecDeque<Result<String, &'static str>>>,
    fetches: Mutex<Vec<Instant>>,
    takes: Mutex<Duration>,
}

impl ScriptedSource {
    fn publishing(kids: &[&str]) -> Arc<Self> {
        let script = Self {
            sets: Mutex::default(),
            fetches: Mutex::default(),
            takes: Mutex::default(),
        };
        script.publish(kids);
        Arc::new(script)
    }

    fn publish(&self, kids: &[&str]) {
        let keys: Vec<_> = kids.iter().map(|kid| ed25519(kid)).collect();
        *self.sets.lock() = VecDeque::from([Ok(set_of(&keys))]);
    }

    fn fails(&self) {
        *self.sets.lock() = VecDeque::from([Err("it is out")]);
    }

    fn fetches(&self) -> usize {
        self.fetches.lock().len()
    }
}

impl Fetch for Arc<ScriptedSource> {
    async fn fetch(&self) -> Result<Fetched, String> {
        self.fetches.lock().push(Instant::now());
        let takes = *self.takes.lock();
        sleep(takes).await;
        let text = self.sets.lock()[0].clone();
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
    let own = keys.clone();
    tokio::spawn(async move { own.run(CancellationToken::new()).await });
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
    *script.takes.lock() = 2 * SECOND;
    let keys = running(&script);
    let began = Instant::now();
    assert_eq!(find(&keys, "a").await, Ok(1));
    assert_eq!(began.elapsed(), 2 * SECOND);
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
    *script.takes.lock() = SECOND;
    let many: Vec<_> = (0..20)
        .map(|_| {
            let keys = keys.clone();
            tokio::spawn(async move { find(&keys, "new").await })
        })
        .collect();
    for one in many {
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
    *script.takes.lock() = 3 * SECOND;
    let began = Instant::now();
    let other = keys.clone();
    let waiting = tokio::spawn(async move { find(&other, "made-up").await });
    tokio::task::yield_now().await;
    assert_eq!(find(&keys, "a").await, Ok(1));
    assert_eq!(began.elapsed(), Duration::ZERO);
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
    script.fails();
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
    *script.takes.lock() = 1000 * SECOND;
    let keys = running(&script);
    let began = Instant::now();
    let why = find(&keys, "a").await.unwrap_err();
    assert!(why.to_string().contains("cannot be fetched"), "{why}");
    assert_eq!(began.elapsed(), config::Jwks::default().timeout);
}

#[test]
fn only_known_public_signature_keys_are_loaded() {
    let rsa = |n: &[u8]| json!({"kty": "RSA", "n": b64(n), "e": "AQAB"});
    let with = |mut key: Value, more: Value| {
        let more = more.as_object().unwrap().clone();
        key.as_object_mut().unwrap().extend(more);
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
    let good = [
        with(large.clone(), for_rs256),
        with(p256.clone(), for_es256),
        with(ed25519("3"), for_eddsa),
    ];
    let bad = [
        rsa(&[0xc1; 128]),
        with(large.clone(), json!({"alg": "RS512"})),
        with(large.clone(), json!({"alg": "HS256"})),
        with(large, json!({"use": "enc"})),
        with(p256.clone(), json!({"alg": "RS256"})),
        with(p256.clone(), json!({"key_ops": ["sign"]})),
        with(p256.clone(), json!({"d": b64(&[1; 32])})),
        with(p256, json!({"x": b64(&[1; 32])})),
        json!({"kty": "OKP", "crv": "X25519", "x": b64(&[9; 32])}),
        json!({"kty": "oct", "k": b64(&[7; 64]), "alg": "HS256"}),
        json!({"kty": "new"}),
        json!("text"),
        json!(null),
    ];
    let all: Vec<_> = good.iter().chain(&bad).cloned().collect();
    let kept = set::parse(set_of(&all).as_bytes()).unwrap();
    let kids: Vec<_> = kept.iter().filter_map(VerificationKey::kid).collect();
    assert_eq!(kids, ["1", "2", "3"]);
    for key in bad {
        let text = set_of(std::slice::from_ref(&key));
        assert_eq!(set::parse(text.as_bytes()).unwrap().len(), 0, "{key}");
    }
    let many = set_of(&vec![json!({}); set::MAX_KEYS + 1]);
    let long = set_of(&[json!("x".repeat(set::MAX_KEY_SET_BYTES))]);
    for (text, wrong) in [(many, SetError::TooMany), (long, SetError::TooLong)] {
        assert_eq!(set::parse(text.as_bytes()).unwrap_err(), wrong);
    }
    for text in [
        "",
        "{",
        "[]",
        r#"{"keys": 1}"#,
        r#"{"jwks_uri": "https://x"}"#,
    ] {
        let why = set::parse(text.as_bytes()).unwrap_err();
        assert!(why.to_string().contains("jwks_uri"), "{why}");
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

/// Starts a server that answers every request so, and returns its address.
async fn serve(status: u16, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let body = body.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request: Request<hyper::body::Incoming>| {
                    assert_eq!(request.uri().path(), "/keys");
                    assert!(!request.headers().contains_key("authorization"));
                    let answer = Response::builder().status(status);
                    let answer = answer.header("location", "/other");
                    let answer = answer.body(body.clone()).unwrap();
                    async move { Ok::<_, Infallible>(answer) }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    format!("http://{address}/keys")
}

fn web(url: String) -> Source {
    let config = config::Jwks {
        url: Some(url),
        ..config::Jwks::default()
    };
    Source::new(&config).unwrap().unwrap()
}

#[tokio::test]
async fn key_set_url_accepts_only_a_key_set() {
    let good = serve(200, set_of(&[ed25519("a")])).await;
    let Fetched::Set(keys) = web(good).fetch().await.unwrap() else {
        panic!("unchanged");
    };
    assert_eq!(keys[0].kid(), Some("a"));
    for (status, body, why) in [
        (302, set_of(&[ed25519("a")]), "redirects"),
        (500, set_of(&[ed25519("a")]), "answered 500"),
        (200, "<html>".to_owned(), "not a JSON Web Key Set"),
        (
            200,
            "x".repeat(set::MAX_KEY_SET_BYTES + 1),
            "longer than 256 KiB",
        ),
    ] {
        let failed = web(serve(status, body).await).fetch().await.err().unwrap();
        assert!(failed.contains(why), "{failed}");
    }
    let secret = web("http://127.0.0.1:1/keys?apikey=secret".to_owned());
    assert!(!secret.name().contains("secret"));
    assert!(!secret.fetch().await.err().unwrap().contains("secret"));
}

fn in_file(path: &std::path::Path) -> config::Jwks {
    config::Jwks {
        file: Some(path.to_owned()),
        ..config::Jwks::default()
    }
}

#[tokio::test]
async fn changed_file_is_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    let config = in_file(&path);
    assert!(RemoteKeys::new(&config).is_err());
    std::fs::write(&path, "{}").unwrap();
    let why = RemoteKeys::new(&config).err().unwrap().to_string();
    assert!(why.contains("JSON Web Key Set"), "{why}");
    std::fs::write(&path, set_of(&[ed25519("a")])).unwrap();
    let keys = RemoteKeys::new(&config).unwrap().unwrap();
    assert_eq!(find(&keys, "a").await, Ok(1));
    run(&keys);
    // An atomic replacement, as Kubernetes and careful people do it.
    let next = dir.path().join("next");
    std::fs::write(&next, set_of(&[ed25519("b"), ed25519("c")])).unwrap();
    std::fs::rename(&next, &path).unwrap();
    let mut changes = keys.0.keys.subscribe();
    let read = changes.wait_for(|known| known.has("b"));
    drop(timeout(10 * SECOND, read).await.unwrap().unwrap());
    assert_eq!(find(&keys, "a").await, Ok(0));
    assert!(RemoteKeys::new(&config::Jwks::default()).unwrap().is_none());
}

#[tokio::test]
async fn file_is_reread_only_when_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    std::fs::write(&path, set_of(&[ed25519("a")])).unwrap();
    let source = Source::new(&in_file(&path)).unwrap().unwrap();
    assert!(matches!(source.fetch().await, Ok(Fetched::Set(_))));
    assert!(matches!(source.fetch().await, Ok(Fetched::Unchanged)));
    ray_relay_base::wire::watched_file::testing::swap(&path, &set_of(&[ed25519("b")]));
    assert!(matches!(source.fetch().await, Ok(Fetched::Set(_))));
    // An unreadable file is reported each time.
    std::fs::write(&path, "{}").unwrap();
    assert!(source.fetch().await.is_err() && source.fetch().await.is_err());
}
