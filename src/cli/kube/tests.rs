#![allow(clippy::unwrap_used)]

use chrono::{DateTime, Utc};
use parking_lot::Mutex as Locked;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::cli::{Cli, Command};

/// A stand-in for an API server with one relay. A real one issues no tokens for less than 10 minutes.
struct FakeApiServer {
    state: Arc<Locked<State>>,
    dir: tempfile::TempDir,
}

#[derive(Default)]
struct State {
    issued: usize,
    lifetime: Option<i64>,
    token_requests: Vec<Value>,
}

impl FakeApiServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Locked::new(State::default()));
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let served = Arc::clone(&served);
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !is_complete(&request) {
                        if stream.read_buf(&mut request).await.unwrap() == 0 {
                            return;
                        }
                    }
                    let (status, body) = answer(&String::from_utf8(request).unwrap(), &served);
                    let body = body.to_string();
                    let head = format!(
                        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        body.len()
                    );
                    stream.write_all((head + &body).as_bytes()).await.unwrap();
                });
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "work",
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "users": [{"name": "them", "user": {"token": "their-own"}}],
            "contexts": [{"name": "work", "context": {"cluster": "test", "user": "them", "namespace": "ml"}}]});
        std::fs::write(dir.path().join("config"), config.to_string()).unwrap();
        Self { state, dir }
    }

    /// Connects to the relay as the ServiceAccount `account`.
    async fn connect(&self, account: Option<&str>) -> KubeRelay {
        let args = KubeArgs {
            kube: true,
            kubeconfig: Some(self.dir.path().join("config")),
            as_service_account: account.map(str::to_owned),
            ..KubeArgs::default()
        };
        let (relay, kube_relay) = KubeRelay::of(&args).await.unwrap();
        let description = "Service ray-relay in namespace ml (context work)";
        assert_eq!(relay.to_string(), description);
        assert_eq!(relay.uri("/x").unwrap(), "http://localhost:5678/x");
        kube_relay
    }

    /// Sets the lifetime of the next tokens; `None` refuses them.
    fn lifetime(&self, seconds: Option<i64>) {
        self.state.lock().lifetime = seconds;
    }

    fn issued(&self) -> usize {
        self.state.lock().issued
    }
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() == length.parse::<usize>().unwrap())
}

fn answer(request: &str, state: &Locked<State>) -> (u16, Value) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("authorization: Bearer their-own"), "{head}");
    let path = head.split(' ').nth(1).unwrap();
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let path = path.strip_prefix("/api/v1/namespaces/ml/").unwrap();
    let label = json!({"app": "ray-relay"});
    let service = json!({"metadata": {"name": "ray-relay"},
        "spec": {"selector": label, "ports": [{"port": 5678}]}});
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let list = |kind: &str, item: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": [item]});
    match path {
        "services" => (200, list("ServiceList", service)),
        "services/ray-relay" => (200, service),
        "pods" => (200, list("PodList", pod)),
        "serviceaccounts/debugger/token" => {
            let mut state = state.lock();
            state
                .token_requests
                .push(serde_json::from_str(body).unwrap());
            let Some(lifetime) = state.lifetime else {
                return (
                    503,
                    json!({"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": ""}),
                );
            };
            state.issued += 1;
            let expires: DateTime<Utc> = SystemTime::now().into();
            let expires = expires + chrono::TimeDelta::seconds(lifetime);
            let expires = expires.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            let status =
                json!({"token": format!("t{}", state.issued), "expirationTimestamp": expires});
            (
                201,
                json!({"metadata": {}, "spec": {"audiences": []}, "status": status}),
            )
        }
        path => panic!("{path}"),
    }
}

async fn current_token(kube_relay: &KubeRelay) -> String {
    kube_relay.token().await.unwrap().unwrap().token.to_string()
}

#[tokio::test]
async fn service_account_token_is_renewed_before_expiry() {
    let api = FakeApiServer::start().await;
    let kube_relay = api.connect(Some("debugger")).await;
    api.lifetime(Some(3600));
    assert_eq!(
        [
            current_token(&kube_relay).await,
            current_token(&kube_relay).await
        ],
        ["t1", "t1"]
    );
    let spec = api.state.lock().token_requests[0]["spec"].clone();
    assert_eq!(
        spec,
        json!({"audiences": ["ray-relay"], "expirationSeconds": 3600})
    );
    // A token is renewed after a refusal or shortly before its expiry.
    assert!(kube_relay.renew().await);
    api.lifetime(Some(20));
    assert_eq!(current_token(&kube_relay).await, "t2");
    // A token with less than half a minute left is renewed.
    assert_eq!(current_token(&kube_relay).await, "t3");
    // Without a new token the old one is used until it expires.
    api.lifetime(None);
    assert_eq!(current_token(&kube_relay).await, "t3");
    assert_eq!(api.issued(), 3);
    api.lifetime(Some(-1));
    assert_eq!(current_token(&kube_relay).await, "t4");
    api.lifetime(None);
    let error = kube_relay.token().await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    let expected = "no token for ServiceAccount debugger in namespace ml: 503 ServiceUnavailable";
    assert_eq!(error.to_string(), expected);
    assert!(!format!("{kube_relay:?} {error:?}").contains("t4"));
}

#[tokio::test]
async fn kubeconfig_token_is_used_and_reread_on_renewal() {
    let api = FakeApiServer::start().await;
    let kube_relay = api.connect(None).await;
    assert_eq!(current_token(&kube_relay).await, "their-own");
    let path = api.dir.path().join("config");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("their-own", "another")).unwrap();
    assert_eq!(current_token(&kube_relay).await, "their-own");
    assert!(kube_relay.renew().await);
    assert_eq!(current_token(&kube_relay).await, "another");
    assert_eq!(api.issued(), 0);
}

#[test]
fn kubectl_plugin_implies_kube_unless_a_relay_is_named() {
    use clap::Parser as _;
    let requests_kube = |line: &str, plugin: bool, named: bool| {
        let mut cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let requests_kube = cli.settle(plugin, named);
        let Command::List(args) = cli.command else {
            panic!("{line}");
        };
        requests_kube.ok().map(|()| args.relay.kube.is_requested())
    };
    for (line, plugin, named, expected) in [
        ("x list", false, false, Some(false)),
        ("x list", true, false, Some(true)),
        ("x list --relay http://x", true, true, Some(false)),
        ("x list -n ml", false, false, Some(true)),
        ("x list --kube-context prod", false, false, Some(true)),
        ("x list --kube --relay http://x", false, true, None),
    ] {
        assert_eq!(requests_kube(line, plugin, named), expected, "{line}");
    }
    for line in [
        "x list --audience a",
        "x list --as-service-account a --token-file b",
        "x list --kube --tls-server-name .",
    ] {
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}
