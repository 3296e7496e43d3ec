//! A relay that takes over from another one.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ray_relay::app::{self, Running};
use ray_relay::config::{self, Config};
use ray_relay::ray::registry::{Breakpoint, BreakpointId, Kind, Names, Reason, State};
use ray_relay::timestamp::Timestamp;
use ray_relay::wire::dap::conversation::Conversation;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::support::*;

/// A folder of this user's own, and a path in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let path = folder.path().join("takeover");
    (folder, path)
}

/// A relay at `path`, on any port where it is the first.
pub(crate) async fn relay(
    path: &Path,
    change: impl FnOnce(&mut Config),
) -> Result<Running, app::Error> {
    let mut config = Config::default();
    config.listen.address = ([127, 0, 0, 1], 0).into();
    config.listen.takeover = Some(path.to_owned());
    config.clusters[0].ray_address = "http://127.0.0.1:1".to_owned();
    config.clusters[0].gcs_address = config::Gcs::Off;
    config.park.r#for = Duration::ZERO;
    change(&mut config);
    app::start(config).await
}

/// What a request on a connection of its own is answered.
async fn get(at: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await?;
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

/// The predecessor ends by itself.
pub(crate) async fn ends(mut predecessor: Running) {
    let ended = async {
        predecessor.succeeded().await;
        predecessor.finish().await.unwrap();
    };
    timeout(PATIENCE, ended).await.expect("it ends by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_refuses_nobody_while_relay_after_relay_takes_over() {
    let (_folder, path) = place();
    let first = relay(&path, |_| {}).await.unwrap();
    let at = first.local_addr();
    let over = Arc::new(AtomicBool::new(false));
    let knocking = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let mut asked = tokio::task::JoinSet::new();
            while !over.load(Ordering::Relaxed) {
                asked.spawn(get(at, "/relay/healthz"));
                sleep(Duration::from_millis(5)).await;
            }
            asked.join_all().await
        }
    });
    let mut current = first;
    for _ in 0..3 {
        sleep(Duration::from_millis(300)).await;
        let next = relay(&path, |_| {}).await.unwrap();
        assert_eq!(next.local_addr(), at);
        ends(current).await;
        current = next;
    }
    sleep(Duration::from_millis(300)).await;
    over.store(true, Ordering::Relaxed);
    let answers = knocking.await.unwrap();
    assert!(answers.len() > 100, "{}", answers.len());
    for answer in answers {
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    }
    assert!(path.exists());
    current.drain().await;
    assert!(!path.exists(), "nothing is left at the path");
    assert!(TcpStream::connect(at).await.is_err());
}

/// A paused worker whose debugger's part the test plays.
pub(crate) async fn paused() -> (TcpListener, Breakpoint) {
    let debugger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = debugger.local_addr().unwrap();
    let worker_id = "5f".repeat(28);
    let breakpoint = Breakpoint {
        id: BreakpointId::derive("default", &worker_id),
        kind: Kind::Debugpy,
        cluster: "default".into(),
        node_id: "ab".repeat(28).into(),
        node_ip: address.ip(),
        worker_id: worker_id.into(),
        pid: 4711,
        port: address.port(),
        paused_threads: 1,
        names: Arc::new(Names {
            name: Some("square".to_owned()),
            ..Names::default()
        }),
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: Timestamp::now(),
        stop: 1,
        state: State::Paused,
        task_ended: None,
        registered: None,
    };
    (debugger, breakpoint)
}

/// The next message that is `wanted`.
async fn until(dap: &mut Conversation<TcpStream>, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = read(dap).await;
        if wanted(&message) {
            return message;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_session_goes_on_and_its_children_find_it() {
    let (_folder, path) = place();
    let keys = Keys::new();
    let with_keys = |config: &mut Config| {
        config.auth.keys = vec![keys.public()];
        config.listen.drain_timeout = Duration::from_secs(600);
    };
    let first = relay(&path, with_keys).await.unwrap();
    let at = first.local_addr();
    let ann = keys.token(|_| {});
    let (mut parent, answer) = attach(dial(at).await, &json!({"all": true, "token": ann})).await;
    assert_eq!(answer["event"], "initialized");
    let second = relay(&path, with_keys).await.unwrap();
    let (debugger, breakpoint) = paused().await;
    let id = breakpoint.id.to_string();
    first.registry().insert(breakpoint.clone());
    second.registry().insert(breakpoint);
    let ending = tokio::spawn(ends(first));

    // The session of the first relay has its editor dial the port, which the second one has.
    let child = until(&mut parent, |m| m["command"] == "startDebugging").await;
    let block = &child["arguments"]["configuration"]["rayRelay"];
    assert!(block["ticket"].is_string() && block["family"].is_string());
    let session = tokio::spawn({
        let block = block.clone();
        async move {
            let client = json!({"clientID": "vscode", "supportsStartDebuggingRequest": true});
            let mut dap = Conversation::new(dial(at).await, 1 << 20);
            dap.send(&request(1, "initialize", &client)).await.unwrap();
            let answer = read(&mut dap).await;
            assert_eq!(answer["request_seq"], 1);
            let arguments = json!({"type": "debugpy", "rayRelay": block});
            dap.send(&request(2, "attach", &arguments)).await.unwrap();
            // The other answer to `initialize` is left out.
            let told = read(&mut dap).await;
            (dap, told)
        }
    });
    let (accepted, _) = timeout(PATIENCE, debugger.accept()).await.unwrap().unwrap();
    let mut worker = Conversation::new(accepted, 1 << 20);
    // debugpy says something first.
    let output = json!({"category": "telemetry", "output": "ptvsd"});
    let greeting = json!({"seq": 1, "type": "event", "event": "output", "body": output});
    worker.send(&greeting).await.unwrap();
    let mut seq = 1;
    loop {
        let asked = timeout(PATIENCE, worker.read()).await.unwrap().unwrap();
        seq += 1;
        let answer = json!({
            "seq": seq, "type": "response", "request_seq": asked["seq"], "success": true,
            "command": asked["command"], "body": {},
        });
        if asked["command"] == "attach" {
            let text = asked.to_string();
            assert!(!text.contains("ticket"), "no credential goes further");
            let initialized = json!({"seq": 90, "type": "event", "event": "initialized"});
            worker.send(&initialized).await.unwrap();
            worker.send(&answer).await.unwrap();
            break;
        }
        worker.send(&answer).await.unwrap();
    }
    let (mut dap, told) = session.await.unwrap();
    assert_eq!(told["event"], "initialized", "{told}");
    let answer = until(&mut dap, |m| m["command"] == "attach").await;
    assert_eq!(answer["success"], true, "{answer}");

    // Somebody else is told by the second relay who has it, and since when.
    let bob = keys.token(|claims| {
        claims["sub"] = "bob".into();
        claims["jti"] = "two".into();
    });
    let (_dap, refused) = attach(dial(at).await, &json!({"breakpoint": id, "token": bob})).await;
    let sentence = refused["message"].as_str().unwrap_or_default();
    assert!(sentence.contains("ann"), "{refused}");

    // As soon as nothing is left, the first one ends.
    assert!(!ending.is_finished());
    drop((dap, parent, worker, debugger));
    ending.await.unwrap();
    second.drain().await;
}

/// What an admin revokes at the relay at `at`.
async fn revoke(at: SocketAddr, token: &str, what: &Value) {
    let body = what.to_string();
    let asked = format!(
        "POST /relay/v1/revocations HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = dial(at).await;
    stream.write_all(asked.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generations_know_each_other_and_the_oldest_goes_when_there_are_too_many() {
    let (_folder, path) = place();
    let keys = Keys::new();
    let (mut parents, mut ending) = (Vec::new(), Vec::new());
    let mut current: Option<Running> = None;
    let token = |n: usize| keys.token(|claims| claims["jti"] = format!("number-{n}").into());
    for n in 0..6 {
        let next = relay(&path, |config| {
            config.auth.keys = vec![keys.public()];
            config.listen.drain_timeout = Duration::from_secs(600);
        });
        let next = next.await.unwrap();
        let block = json!({"all": true, "token": token(n)});
        let (parent, answer) = attach(dial(next.local_addr()).await, &block).await;
        assert_eq!(answer["event"], "initialized");
        parents.push(parent);
        if let Some(older) = current.replace(next) {
            ending.push(tokio::spawn(ends(older)));
        }
    }
    let ended = |message: &Value| message["event"] == "terminated";
    until(&mut parents[0], ended).await;
    ending.remove(0).await.unwrap();
    assert!(ending.iter().all(|one| !one.is_finished()));
    // What is revoked at the newest ends a session of another.
    let current = current.unwrap();
    let admin = keys.token(|claims| {
        claims["scope"] = "admin".into();
        claims["jti"] = "of-an-admin".into();
    });
    revoke(current.local_addr(), &admin, &json!({"jti": "number-2"})).await;
    until(&mut parents[2], ended).await;
    ending.remove(1).await.unwrap();
    assert!(ending.iter().all(|one| !one.is_finished()));
    drop(parents);
    for one in ending {
        one.await.unwrap();
    }
    current.drain().await;
}

/// What `attempt` gives once whoever tried before has been given up; until then it gives `None`, as it is refused.
async fn in_turn<T>(attempt: impl AsyncFn() -> Option<T>) -> T {
    let tried = async {
        loop {
            match attempt().await {
                Some(given) => break given,
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(PATIENCE, tried).await.expect("its turn comes")
}

async fn successor(path: &Path, change: impl Fn(&mut Config)) -> Result<Running, app::Error> {
    in_turn(async || match relay(path, &change).await {
        Err(app::Error::Takeover(_)) => None,
        tried => Some(tried),
    })
    .await
}

/// A connection to which the relay has said `hello`.
async fn greeted(path: &Path) -> UnixStream {
    in_turn(async || {
        let mut other = UnixStream::connect(path).await.unwrap();
        let length = other.read_u32().await.unwrap();
        let mut said = vec![0; length as usize];
        other.read_exact(&mut said).await.unwrap();
        let said = String::from_utf8(said).unwrap();
        said.contains(r#""type":"hello""#).then_some(other)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_get_ready_changes_nothing() {
    let (folder, path) = place();
    let log = folder.path().join("audit.log");
    let records = |config: &mut Config| {
        config.audit.sink = config::AuditSink::File;
        config.audit.file = Some(log.clone());
    };
    let first = relay(&path, records).await.unwrap();
    let at = first.local_addr();
    // One that dies, one that says nonsense.
    for said in [&b""[..], b"\0\0\0\x02{}"] {
        let mut other = greeted(&path).await;
        other.write_all(said).await.unwrap();
        drop(other);
    }
    // One that gets everything, and then cannot go on.
    let broken = successor(&path, |config| {
        records(config);
        config.recording.dir = Some("/nowhere/at/all".into());
    })
    .await;
    assert!(matches!(broken, Err(app::Error::Setup(_))));
    // One that listens elsewhere has its own port.
    for _ in 0..20 {
        assert!(get(at, "/relay/healthz").await.unwrap().contains("200"));
    }
    let second = successor(&path, records).await.unwrap();
    assert_eq!(second.local_addr(), at);
    ends(first).await;
    assert!(get(at, "/relay/healthz").await.unwrap().contains("200"));
    second.drain().await;
    // Whoever wrote, the configured file is one chain, and what the first one wrote later is another.
    let text = std::fs::read_to_string(&log).unwrap();
    let events: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["details"]["event"].clone())
        .collect();
    assert_eq!(events.first().unwrap(), "started");
    assert_eq!(events.last().unwrap(), "stopped");
    assert!(events.contains(&"handed_over".into()), "{events:?}");
    let aside = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path());
    let aside: Vec<_> = aside
        .filter(|path| path.to_string_lossy().contains("handed-over"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    let other = std::fs::read_to_string(&aside[0]).unwrap();
    assert!(other.contains(r#""continues":{"file":"#), "{other}");
    assert!(other.lines().last().unwrap().contains("stopped"), "{other}");
}

#[tokio::test]
async fn a_process_that_does_not_answer_or_a_path_of_others_is_told() {
    let (folder, path) = place();
    std::fs::write(&path, "").unwrap();
    let told = |started: Result<Running, app::Error>| started.err().unwrap().to_string();
    assert!(told(relay(&path, |_| {}).await).contains("no socket"));
    std::fs::remove_file(&path).unwrap();
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    assert!(told(relay(&path, |_| {}).await).contains("0700"));
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let somebody = tokio::net::UnixListener::bind(&path).unwrap();
    let closes = async { drop(somebody.accept().await.unwrap()) };
    let (started, ()) = tokio::join!(relay(&path, |_| {}), closes);
    let sentence = told(started);
    assert!(
        sentence.contains("does not answer as a relay does"),
        "{sentence}"
    );
    // Nobody answers any more: it is cleared away.
    drop(somebody);
    let relay = relay(&path, |_| {}).await.unwrap();
    relay.drain().await;
}
