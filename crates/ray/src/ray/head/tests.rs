//! Tests the client against a small server on a real socket: paths, token, deadlines, refusals.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::ray::head::*;
use ray_relay_base::memory::{Memory, MemoryUse};

type RequestLog = Arc<Mutex<Vec<(String, Option<String>, Option<String>)>>>;

/// Starts a head that requires `token`, if any, and logs path, `Host` and `Authorization`.
async fn head(token: Option<&'static str>) -> (SocketAddr, RequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = RequestLog::default();
    let log = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let answer = service_fn(|request: Request<Incoming>| {
                    let text = |name| {
                        let value = request.headers().get(name)?;
                        Some(value.to_str().unwrap().to_owned())
                    };
                    let path = request.uri().path_and_query().unwrap().to_string();
                    let sent = text("authorization");
                    log.lock()
                        .unwrap()
                        .push((path.clone(), text("host"), sent.clone()));
                    async move {
                        Ok::<_, hyper::Error>(answer(&path, token, sent.as_deref(), request).await)
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .with_upgrades();
                let _ = connection.await;
            });
        }
    });
    (address, requests)
}

async fn answer(
    path: &str,
    token: Option<&str>,
    sent: Option<&str>,
    request: Request<Incoming>,
) -> Response<String> {
    let respond = |status: u16, text: &str| {
        Response::builder()
            .status(status)
            .body(text.to_owned())
            .unwrap()
    };
    if !request.headers().contains_key("user-agent") {
        return respond(500, "KeyError: 'User-Agent'");
    }
    match (token, sent) {
        (Some(_), None) => return respond(401, "Unauthorized: Missing authentication token"),
        (Some(token), Some(sent)) if sent != format!("Bearer {token}") => {
            return respond(403, "Forbidden: Invalid authentication token");
        }
        _ => {}
    }
    if path.ends_with("/upgrade") {
        tokio::spawn(async move {
            let mut io = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            io.write_all(b"hello").await.unwrap();
        });
        let mut answer = respond(101, "");
        answer
            .headers_mut()
            .insert("connection", "upgrade".parse().unwrap());
        answer
            .headers_mut()
            .insert("upgrade", "test".parse().unwrap());
        return answer;
    }
    match path {
        "/bad" => respond(500, r#"{"result": false, "msg": "no\u001b[31m\nway"}"#),
        "/traceback" => respond(
            500,
            r#"{"result": false, "msg": "Traceback (most recent call last):\n  File \"x.py\", line 1: x\nValueError: too many\n"}"#,
        ),
        "/text" => respond(200, "<html>"),
        "/gated" => respond(403, "Profiling is disabled"),
        "/slow" => std::future::pending().await,
        _ => respond(200, "[1]"),
    }
}

fn client_of(address: &str, token: TokenSource) -> HeadClient {
    let cluster = config::Cluster {
        name: "default".to_owned(),
        ray_address: address.to_owned(),
        token_file: None,
        gcs_address: config::Gcs::Off,
        ..config::Cluster::default()
    };
    HeadClient::with_token(&cluster, Duration::from_secs(5), token).unwrap()
}

fn no_token() -> TokenSource {
    TokenSource::new(None, None)
}

fn file_token(file: &tempfile::NamedTempFile) -> TokenSource {
    TokenSource::new(Some(file.path().to_owned()), None)
}

fn token_file(token: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{token}").unwrap();
    file
}

async fn error(client: &HeadClient, path: &str) -> HeadError {
    client.get_json::<Vec<u32>>(path).await.unwrap_err()
}

#[tokio::test]
async fn path_prefix_of_the_head_address_is_kept() {
    let (address, requests) = head(None).await;
    let client = client_of(&format!("http://{address}/c/one/"), no_token());
    assert_eq!(
        client.get_json::<Vec<u32>>("/api/x?a=1").await.unwrap(),
        [1]
    );
    let (path, host, sent) = requests.lock().unwrap()[0].clone();
    assert_eq!(
        (path.as_str(), host, sent),
        ("/c/one/api/x?a=1", Some(address.to_string()), None)
    );
    assert_eq!(client.address(), format!("http://{address}/c/one"));
}

#[tokio::test]
async fn each_refusal_names_the_next_step() {
    let (address, _) = head(None).await;
    let client = client_of(&format!("http://{address}"), no_token());
    let message = error(&client, "/bad").await.to_string();
    assert!(message.contains("answered 500: no [31m way;"), "{message}");
    let message = error(&client, "/traceback").await.to_string();
    assert!(
        message.contains("answered 500: ValueError: too many; see dashboard.log"),
        "{message}"
    );
    assert!(matches!(
        error(&client, "/text").await,
        HeadError::NotJson { .. }
    ));
    assert!(matches!(
        error(&client, "/gated").await,
        HeadError::Status { status: 403, .. }
    ));

    let (address, _) = head(Some("secret")).await;
    let client = client_of(&format!("http://{address}"), no_token());
    let missing = error(&client, "/").await.to_string();
    assert!(
        missing.contains("RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or `token_file`"),
        "{missing}"
    );

    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let client = client_of(&format!("http://{closed}"), no_token());
    let refused = error(&client, "/").await.to_string();
    assert!(
        refused.contains("Connection refused") && refused.contains("is Ray up"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn silent_head_times_out() {
    let (address, _) = head(None).await;
    let client = client_of(&format!("http://{address}"), no_token());
    assert!(matches!(
        error(&client, "/slow").await,
        HeadError::TimedOut { .. }
    ));
    let body = || Empty::new().map_err(|never| match never {}).boxed();
    let started = tokio::time::Instant::now();
    let request = Request::get("/slow").body(body()).unwrap();
    assert!(matches!(
        client.send(request).await,
        Err(HeadError::TimedOut { .. })
    ));
    assert_eq!(started.elapsed().as_secs(), PROXY_TIMEOUT.as_secs());
}

#[tokio::test]
async fn changed_token_file_is_reread_after_a_refusal() {
    let (address, requests) = head(Some("second")).await;
    let file = token_file("first");
    let client = client_of(&format!("http://{address}"), file_token(&file));
    let refused = error(&client, "/").await;
    assert!(
        refused
            .to_string()
            .contains(&file.path().display().to_string())
    );
    assert!(!format!("{refused} {refused:?} {client:?}").contains("first"));
    // The file has the same length and time, so only the refusal makes the relay read it again.
    std::fs::write(file.path(), "second\n").unwrap();
    assert_eq!(client.get_json::<Vec<u32>>("/").await.unwrap(), [1]);
    assert_eq!(
        requests.lock().unwrap().last().unwrap().2.as_deref(),
        Some("Bearer second")
    );
}

#[tokio::test(start_paused = true)]
async fn changed_token_file_is_reread_within_a_second() {
    let file = token_file("first");
    let source = file_token(&file);
    let header = async || source.header().await.unwrap();
    assert_eq!(header().await, "Bearer first");
    ray_relay_base::wire::watched_file::testing::swap(file.path(), "other\n");
    assert_eq!(header().await, "Bearer first");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(header().await, "Bearer other");
    std::fs::remove_file(file.path()).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(source.header().await.is_none());
}

#[tokio::test]
async fn configured_token_replaces_the_one_in_the_request() {
    let (address, requests) = head(Some("secret")).await;
    let file = token_file("secret");
    let client = client_of(&format!("http://{address}"), file_token(&file));
    let body = Empty::new().map_err(|never| match never {}).boxed();
    let request = Request::get("/x")
        .header("authorization", "Bearer users")
        .header("host", "relay:5678");
    let answer = client.send(request.body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let (_, host, sent) = requests.lock().unwrap()[0].clone();
    assert_eq!(
        (host, sent.as_deref()),
        (Some(address.to_string()), Some("Bearer secret"))
    );
}

#[tokio::test]
async fn upgraded_connection_passes_bytes() {
    let (address, _) = head(None).await;
    let client = client_of(&format!("http://{address}"), no_token());
    let body = Empty::new().map_err(|never| match never {}).boxed();
    let request = Request::get("/upgrade")
        .header("connection", "upgrade")
        .header("upgrade", "test");
    let answer = client.send(request.body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 101);
    let mut io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let mut text = [0; 5];
    io.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"hello");
}

#[tokio::test]
async fn tokens_are_found_where_ray_looks() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".ray")).unwrap();
    std::fs::write(home.path().join(".ray/auth_token"), "at-home\n").unwrap();
    let named = token_file("named");
    let source = |token: Option<&str>, path: bool| {
        let environment = Environment {
            token: token.map(Into::into),
            token_path: path.then(|| named.path().into()),
            home: Some(home.path().into()),
        };
        TokenSource::new(None, Some(environment))
    };
    for (source, expected) in [
        (source(Some(" direct "), true), "Bearer direct"),
        (source(None, true), "Bearer named"),
        (source(None, false), "Bearer at-home"),
    ] {
        let header = source.header().await.unwrap();
        assert!(header.is_sensitive());
        assert_eq!(header.to_str().unwrap(), expected);
    }
    // Other clusters ignore the environment.
    assert_eq!(no_token().header().await, None);
}

#[tokio::test]
async fn unusable_token_file_gives_no_token() {
    let missing = TokenSource::new(Some("/nonexistent/token".into()), None);
    assert_eq!(missing.header().await, None);
    for text in ["", " \n", "two\nlines"] {
        let file = token_file(text);
        assert_eq!(file_token(&file).header().await, None, "{text:?}");
    }
}

#[tokio::test]
async fn invalid_head_address_is_refused_without_its_secret() {
    for address in [
        "",
        "127.0.0.1:8265",
        "ftp://host",
        "http://user:secret@host:8265",
        "http://",
    ] {
        let cluster = config::Cluster {
            name: "default".to_owned(),
            ray_address: address.to_owned(),
            token_file: None,
            gcs_address: config::Gcs::Off,
            ..config::Cluster::default()
        };
        let error = HeadClient::new(&cluster, Duration::from_secs(1), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("http://127.0.0.1:8265") && !error.contains("secret"),
            "{error}"
        );
    }
}

/// One cluster gets at most a quarter of the memory; small answers do not need it.
#[tokio::test(start_paused = true)]
async fn head_answers_count_against_their_clusters_memory() {
    let memory = Memory::new(64 << 20);
    let turns = large::Turns::new();
    turns.count(memory.cluster("bad"));
    let body = |size: usize| Full::new(Bytes::from(vec![b'x'; size]));
    let (limit_per_owner, limit) = (memory.owner_limit(), 32 << 20);
    let answer = turns.read(body(limit_per_owner / 4), limit).await.unwrap();
    assert_eq!(answer.bytes.len(), limit_per_owner / 4);
    let used = memory.used(MemoryUse::Answers);
    assert!(used >= limit_per_owner / 4, "{used}");
    drop(answer);
    assert_eq!(memory.used(MemoryUse::Answers), 0);
    let _others = memory
        .cluster("bad")
        .take(MemoryUse::Answers, limit_per_owner)
        .unwrap();
    assert!(turns.read(body(1000), limit).await.is_ok());
    let refused = turns.read(body(limit_per_owner / 4), limit).await;
    assert!(matches!(refused, Err(NotRead::Crowded)));
    let other_cluster = large::Turns::new();
    other_cluster.count(memory.cluster("good"));
    assert!(
        other_cluster
            .read(body(limit_per_owner / 4), limit)
            .await
            .is_ok()
    );
}
