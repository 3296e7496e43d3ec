//! Tests the findings for relays with one problem at a time.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::DATE;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::SanType;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::app::{self, Running};
use crate::cli::{KubeArgs, RelayTlsArgs, RelayTokenArgs};
use ray_relay_access::identity::testing::{KEY, foreign_token, token_of, token_until};
use ray_relay_base::config::{ClientAuth, Config, Gcs};
use ray_relay_base::dial::testing::{Authority, Files, Pair};
use ray_relay_base::wire::human_time::utc;
use ray_relay_base::wire::tcp::free_port;
use ray_relay_ray::ray::registry::FoundCluster;
use ray_relay_view::doctor::Severity;

/// Starts a server that answers each request by its path.
async fn server(
    answer: impl Fn(&str) -> Response<Full<Bytes>> + Send + Sync + 'static,
) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = Arc::clone(&answer);
            open.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = answer(request.uri().path());
                    async move { Ok::<_, Infallible>(answer) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, tasks)
}

fn answer(status: u16, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(status);
    answer.body(Full::new(text.into())).unwrap()
}

/// Answers like a head with one paused task.
fn healthy_head(path: &str) -> Response<Full<Bytes>> {
    let worker = json!({"worker_id": "aa11", "is_alive": true, "worker_type": "WORKER", "node_id": "n1",
        "ip": "10.0.0.7", "pid": 4711, "debugger_port": 30001, "num_paused_threads": 1});
    let node = json!({"node_id": "n1", "node_ip": "10.0.0.7", "state": "ALIVE"});
    let rows = match path {
        "/api/version" => return answer(200, json!({"ray_version": "2.60.0"}).to_string()),
        "/api/jobs/" => return answer(200, "[]"),
        "/api/v0/workers" => json!([worker]),
        "/api/v0/nodes" => json!([node]),
        "/api/v0/tasks" | "/api/v0/actors" => json!([]),
        _ => return answer(404, "404: Not Found"),
    };
    let list = json!({"total": 1, "num_after_truncation": 1, "num_filtered": 1, "result": rows});
    let body = json!({"result": true, "msg": "", "data": {"result": list}});
    answer(200, body.to_string())
}

/// Starts a relay that has polled the head at `head`.
async fn relay(head: &str, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    config.listen.address = ([127, 0, 0, 1], 0).into();
    config.clusters[0].ray_address = format!("http://{head}");
    config.clusters[0].gcs_address = Gcs::Off;
    // A missing file keeps the test independent of the user's environment.
    config.clusters[0].token_file = Some("/nonexistent/token".into());
    change(&mut config);
    let relay = app::start(config).await.unwrap();
    let mut list = relay.registry().watch();
    let polled = list.wait_for(|list| {
        let cluster = &list.clusters[0];
        let named = list
            .live
            .iter()
            .all(|b| b.names.name.is_some() || !b.names.provisional);
        cluster.trouble.is_some()
            || cluster.polled.is_some() && cluster.ray_version.is_some() && named
    });
    let timeout = Duration::from_secs(30);
    tokio::time::timeout(timeout, polled)
        .await
        .unwrap()
        .unwrap();
    drop(list);
    relay
}

fn args(relay: &str) -> RelayArgs {
    RelayArgs {
        relay: relay.parse().unwrap(),
        tls: RelayTlsArgs::default(),
        token: RelayTokenArgs::default(),
        kube: KubeArgs::default(),
        reached: None,
    }
}

fn args_for(relay: &Running) -> RelayArgs {
    args(&format!("http://{}", relay.local_addr()))
}

async fn found(args: &RelayArgs) -> Vec<Finding> {
    let mut report = Report::silent();
    examine(args, &mut report).await.unwrap();
    let found = report.findings().to_vec();
    assert!(!found.is_empty());
    found
}

/// Returns the only error, and checks its link and its exit code.
async fn error_at(args: &RelayArgs, link: ChainLink, exit_code: u8) -> Finding {
    let found = found(args).await;
    let errors: Vec<_> = found
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .collect();
    assert_eq!(errors.len(), 1, "{found:#?}");
    let error = errors[0].clone();
    assert_eq!(
        (error.link, error.exit_code),
        (link, exit_code),
        "{error:?}"
    );
    assert_eq!(ray_relay_view::doctor::exit_code(&found), exit_code);
    assert!(error.next.is_some(), "{error:?}");
    error
}

#[tokio::test]
async fn every_healthy_link_is_reported_ok() {
    let (head, _head) = server(healthy_head).await;
    let relay = relay(&head.to_string(), |_| {}).await;
    let found = found(&args_for(&relay)).await;
    assert!(
        found.iter().all(|f| f.severity == Severity::Ok),
        "{found:#?}"
    );
    let links: Vec<ChainLink> = found.iter().map(|found| found.link).collect();
    let expected = [
        ChainLink::Address,
        ChainLink::Connection,
        ChainLink::Tls,
        ChainLink::Clock,
        ChainLink::Token,
        ChainLink::Relay,
        ChainLink::Relay,
        ChainLink::Head,
        ChainLink::List,
        ChainLink::Agents,
        ChainLink::Tasks,
    ];
    assert_eq!(links, expected);
}

#[tokio::test]
async fn missing_relay_or_unknown_host_is_reported() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let no_relay = error_at(&args(&address.to_string()), ChainLink::Connection, 69).await;
    assert!(no_relay.says.contains(&address.to_string()));
    assert!(
        no_relay
            .next
            .unwrap()
            .contains("kubectl port-forward svc/ray-relay 5678")
    );
    // RFC 6761: no host has a name below `invalid`.
    let unknown_host = error_at(&args("http://relay.invalid"), ChainLink::Name, 69).await;
    assert!(unknown_host.says.contains("relay.invalid"));
}

#[tokio::test]
async fn server_that_is_no_relay_is_recognised() {
    let (head, _head) = server(healthy_head).await;
    let dashboard = error_at(&args(&head.to_string()), ChainLink::Relay, 78).await;
    assert!(dashboard.says.ends_with("is a Ray dashboard, not a relay"));
    let (other, _other) = server(|_| answer(200, "hello")).await;
    error_at(&args(&other.to_string()), ChainLink::Relay, 78).await;
}

#[tokio::test]
async fn missing_head_or_refused_ray_token_is_reported() {
    let headless = relay("127.0.0.1:1", |_| {}).await;
    let unreachable_head = error_at(&args_for(&headless), ChainLink::Head, 69).await;
    assert!(
        unreachable_head
            .says
            .contains("cannot reach the Ray head at http://127.0.0.1:1")
    );
    let (head, _head) = server(|_| answer(403, "Forbidden: Invalid authentication token")).await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "wrong").unwrap();
    let file = token.clone();
    let refused_relay = relay(&head.to_string(), |config| {
        config.clusters[0].token_file = Some(file);
    })
    .await;
    let token_error = error_at(&args_for(&refused_relay), ChainLink::Head, 78).await;
    assert!(token_error.says.contains("refuses the token from"));
    assert!(token_error.says.contains(token.to_str().unwrap()));
}

#[tokio::test]
async fn pending_cluster_is_reported_to_every_user() {
    let (head, _head) = server(healthy_head).await;
    let relay = relay(&head.to_string(), |_| {}).await;
    let before = found(&args_for(&relay)).await;
    assert!(before.iter().all(|f| f.severity == Severity::Ok));
    let reason = "the head of RayCluster ml/train is not ready; `kubectl describe` says why";
    relay.registry().set_found([FoundCluster {
        name: "ml.train".into(),
        head: Err(reason.to_owned()),
        ray_job: None,
        is_pending: true,
    }]);
    let mut list = relay.registry().watch();
    let discovered = list.wait_for(|list| list.clusters.len() == 2);
    let timeout = Duration::from_secs(30);
    let discovered = tokio::time::timeout(timeout, discovered).await;
    drop(discovered.unwrap().unwrap());
    // A cluster that starts is no error.
    let found = found(&args_for(&relay)).await;
    assert_eq!(ray_relay_view::doctor::exit_code(&found), 0, "{found:#?}");
    let pending = found
        .iter()
        .find(|f| f.says.starts_with("cluster ml.train"));
    let pending = pending.unwrap();
    let sentence = "cluster ml.train: the head of RayCluster ml/train is not ready";
    assert_eq!((&*pending.says, pending.link), (sentence, ChainLink::Head));
    assert!(pending.next.is_some());
}

/// Answers like [`healthy_head`], with `log` of a worker on another node, and a job with this `RAY_DEBUG`.
fn head_with_log(path: &str, log: &str, mode: &str) -> Response<Full<Bytes>> {
    match path {
        "/api/v0/workers" => {
            let worker = json!({"worker_id": "bb22", "is_alive": true, "worker_type": "WORKER", "node_id": "n2",
                "ip": "10.0.0.9", "pid": 4712, "debugger_port": null, "num_paused_threads": null});
            let list = json!({"total": 1, "num_after_truncation": 1, "num_filtered": 1, "result": [worker]});
            answer(
                200,
                json!({"result": true, "msg": "", "data": {"result": list}}).to_string(),
            )
        }
        "/api/v0/logs/file" => answer(200, log.to_owned()),
        "/api/jobs/" => {
            let environment = json!({"env_vars": {"RAY_DEBUG": mode}});
            let job =
                json!({"job_id": "01000000", "status": "RUNNING", "runtime_env": environment});
            answer(200, json!([job]).to_string())
        }
        path => healthy_head(path),
    }
}

#[tokio::test]
async fn missing_debugpy_and_legacy_mode_are_reported() {
    let log = "Module 'debugpy>=1.8.0' cannot be loaded. Ray Debugpy Debugger will not work";
    let (head, _head) = server(|path| head_with_log(path, log, "legacy")).await;
    let relay = relay(&head.to_string(), |_| {}).await;
    let found = found(&args_for(&relay)).await;
    let debugger_findings: Vec<_> = found
        .iter()
        .filter(|f| f.link == ChainLink::Debugger)
        .collect();
    let [missing, legacy] = debugger_findings.as_slice() else {
        panic!("{found:#?}");
    };
    assert!(missing.says.ends_with("on node 10.0.0.9"), "{missing:?}");
    assert!(
        missing
            .next
            .as_ref()
            .unwrap()
            .contains("pip install debugpy")
    );
    assert!(
        legacy
            .says
            .contains("job 01000000 of cluster default runs with RAY_DEBUG=legacy")
    );
    assert_eq!(ray_relay_view::doctor::exit_code(&found), 1);
}

#[tokio::test]
async fn unrelated_worker_log_is_no_finding() {
    let (head, _head) = server(|path| head_with_log(path, "debugpy is fine", "1")).await;
    let relay = relay(&head.to_string(), |_| {}).await;
    let found = found(&args_for(&relay)).await;
    assert!(
        found.iter().all(|f| f.link != ChainLink::Debugger),
        "{found:#?}"
    );
}

/// Starts a relay at which Ann may list and Bob may do nothing.
async fn relay_with_users(head: SocketAddr, dir: &tempfile::TempDir) -> Running {
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let keys = vec![file("key", KEY)];
    let policy = "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"list\"]\n";
    let policy = file("policy.toml", policy);
    relay(&head.to_string(), |config| {
        config.auth.keys = keys;
        config.auth.policy_file = Some(policy);
    })
    .await
}

fn with_token(relay: &Running, dir: &tempfile::TempDir, token: &str) -> RelayArgs {
    let file = dir.path().join("token");
    std::fs::write(&file, token).unwrap();
    let mut args = args_for(relay);
    args.token.token_file = Some(file);
    args
}

#[tokio::test]
async fn accepted_and_refused_tokens_are_reported() {
    let (head, _head) = server(healthy_head).await;
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_with_users(head, &dir).await;
    let found = found(&with_token(&relay, &dir, &token_of("ann"))).await;
    let token = found
        .iter()
        .find(|found| found.link == ChainLink::Token)
        .unwrap();
    assert_eq!(token.severity, Severity::Ok, "{token:?}");
    assert!(token.says.contains("ann, who may do"), "{token:?}");
    // Users without `admin` get the visible findings and a note about the permission.
    let heads: Vec<_> = found
        .iter()
        .filter(|found| found.link == ChainLink::Head)
        .collect();
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert!(heads[0].says.ends_with("Ray 2.60.0") && heads[1].says.contains("`admin`"));

    let token_error = async |args: &RelayArgs| error_at(args, ChainLink::Token, 77).await;
    let no_token_given = token_error(&args_for(&relay)).await;
    assert_eq!(
        no_token_given.says,
        "the relay wants a token, and none is given"
    );
    let hour = Duration::from_secs(3600);
    let expired = token_until("ann", SystemTime::now() - hour);
    let expired = token_error(&with_token(&relay, &dir, &expired)).await;
    assert!(expired.says.contains(" expired "), "{expired:?}");
    assert!(expired.says.ends_with("59m ago") || expired.says.ends_with("59s ago"));
    let claims = json!({"aud": "ray-relay", "sub": "ann", "jti": "x", "exp": 4_000_000_000_u64});
    let other =
        ray_relay_access::identity::SigningKey::from_file(&KEY.replace("c2l4", "c2l5")).unwrap();
    let unknown = other.sign("JWT", &claims).unwrap();
    let unknown = token_error(&with_token(&relay, &dir, unknown.expose())).await;
    assert!(unknown.says.contains("a key that the relay does not know"));
    for no_token in [&foreign_token(), "a-token-of-rays-own"] {
        let found = token_error(&with_token(&relay, &dir, no_token)).await;
        assert!(found.says.contains("no token of ray-relay's"), "{found:?}");
        assert!(!found.says.contains(no_token));
    }
    let denied = token_error(&with_token(&relay, &dir, &token_of("bob"))).await;
    assert!(denied.says.contains("`list`"), "{denied:?}");
    let mut missing = args_for(&relay);
    missing.token.token_file = Some(PathBuf::from("/nonexistent/token"));
    let finding = found_first_error(&missing).await;
    assert_eq!((finding.link, finding.exit_code), (ChainLink::Token, 78));
}

async fn found_first_error(args: &RelayArgs) -> Finding {
    let found = found(args).await;
    let error = found.into_iter().find(|f| f.severity == Severity::Error);
    error.unwrap()
}

/// Starts a relay with the certificate `pair`, and returns the arguments of a client that trusts `authority`.
async fn tls_relay(
    pair: &Pair,
    authority: &str,
    mutual: Option<&Authority>,
) -> (Running, RelayArgs, Files) {
    let files = Files::new(pair);
    let tls = match mutual {
        Some(authority) => files.mutual(authority, ClientAuth::Required),
        None => files.config(),
    };
    let relay = relay("127.0.0.1:1", |config| config.tls = tls).await;
    let mut args = args(&format!("https://{}", relay.local_addr()));
    args.tls.ca_file = Some(files.write("trusted.crt", authority));
    (relay, args, files)
}

#[tokio::test]
async fn each_certificate_problem_is_reported() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let (_relay, args, _files) = tls_relay(&authority.server(), &authority.pem, None).await;
    let found = found(&args).await;
    let tls = found
        .iter()
        .find(|found| found.link == ChainLink::Tls)
        .unwrap();
    // The certificate is valid for one more day.
    assert_eq!(tls.severity, Severity::Warning, "{tls:?}");
    assert!(tls.says.contains("CN=ours") && tls.says.contains("expires"));

    let (_relay, args, _files) = tls_relay(&authority.server(), &other.pem, None).await;
    let untrusted = error_at(&args, ChainLink::Tls, 78).await;
    assert!(untrusted.says.contains("no authority in --ca-file"));
    assert!(untrusted.next.unwrap().contains("--ca-file FILE"));

    let other_name = [SanType::DnsName("relay.example.com".try_into().unwrap())];
    let (_relay, args, _files) =
        tls_relay(&authority.issue(&other_name, |_| {}), &authority.pem, None).await;
    let name = error_at(&args, ChainLink::Tls, 78).await;
    assert!(name.says.contains("not for 127.0.0.1, but for"), "{name:?}");
    assert!(name.says.contains("relay.example.com"), "{name:?}");

    let own_address = [SanType::IpAddress([127, 0, 0, 1].into())];
    let expired_pair = authority.issue(&own_address, |params| {
        params.not_after = (SystemTime::now() - Duration::from_secs(60)).into();
    });
    let (_relay, args, _files) = tls_relay(&expired_pair, &authority.pem, None).await;
    let expired = error_at(&args, ChainLink::Tls, 78).await;
    assert!(expired.says.contains("has expired"), "{expired:?}");

    let (_relay, args, _files) = tls_relay(&authority.server(), &authority.pem, Some(&other)).await;
    let unknown = error_at(&args, ChainLink::Tls, 77).await;
    assert!(unknown.next.unwrap().contains("--client-cert FILE"));
}

#[tokio::test]
async fn https_to_a_plain_relay_is_reported() {
    let plain = relay("127.0.0.1:1", |_| {}).await;
    let address = plain.local_addr();
    let found = error_at(&args(&format!("https://{address}")), ChainLink::Tls, 78).await;
    assert!(found.says.ends_with("does not speak TLS"), "{found:?}");
    assert!(found.next.unwrap().contains(&format!("http://{address}")));
    let (other, _other) = server(healthy_head).await;
    error_at(&args(&format!("https://{other}")), ChainLink::Tls, 78).await;
    let authority = Authority::new("ours");
    let (relay, _, _files) = tls_relay(&authority.server(), &authority.pem, None).await;
    let found = error_at(&args_for(&relay), ChainLink::Relay, 78).await;
    assert!(found.next.unwrap().contains("https://"));
}

#[tokio::test]
async fn skewed_clock_and_other_version_are_reported() {
    let skewed = utc(SystemTime::now() + Duration::from_secs(3600)).to_rfc2822();
    let skewed = skewed.replace("+0000", "GMT");
    let (relay, _relay) = server(move |path| {
        let body = match path {
            "/relay/healthz" => json!({"status": "ok"}),
            "/relay/v1/breakpoints" => json!({"breakpoints": [], "clusters": []}),
            "/relay/v1/nodes" => json!({"nodes": [], "version": "9.9.9"}),
            _ => return answer(404, "{\"error\": \"there is no such path here\"}"),
        };
        let mut answer = answer(200, body.to_string());
        answer.headers_mut().insert(DATE, skewed.parse().unwrap());
        answer
    })
    .await;
    let found = found(&args(&relay.to_string())).await;
    let clock = found
        .iter()
        .find(|found| found.link == ChainLink::Clock)
        .unwrap();
    assert_eq!(clock.severity, Severity::Warning);
    assert!(clock.says.contains("ahead of this machine's"), "{clock:?}");
    let version = found
        .iter()
        .find(|found| found.link == ChainLink::Relay)
        .unwrap();
    assert!(version.says.contains("9.9.9"), "{version:?}");
    assert_eq!(ray_relay_view::doctor::exit_code(&found), 1);
}
