#![allow(clippy::unwrap_used)]

use chrono::{DateTime, Utc};
use parking_lot::Mutex as Held;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::cli::{Cli, Command};

/// An API server with one relay, which gives tokens that last as long as a test wants. A real one gives none below 10 minutes.
struct FakeApiServer {
    state: Arc<Held<State>>,
    dir: tempfile::TempDir,
}

#[derive(Default)]
struct State {
    given: usize,
    lasts: Option<i64>,
    asked: Vec<Value>,
}

impl FakeApiServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Held::new(State::default()));
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let served = Arc::clone(&served);
                tokio::spawn(async move {
                    let mut asked = Vec::new();
                    while !is_whole(&asked) {
                        if stream.read_buf(&mut asked).await.unwrap() == 0 {
                            return;
                        }
                    }
                    let (status, body) = answer(&String::from_utf8(asked).unwrap(), &served);
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

    /// The relay, as who shows `account` reaches it.
    async fn reached(&self, account: Option<&str>) -> KubeRelay {
        let args = KubeArgs {
            kube: true,
            kubeconfig: Some(self.dir.path().join("config")),
            as_service_account: account.map(str::to_owned),
            ..KubeArgs::default()
        };
        let (relay, reached) = KubeRelay::of(&args).await.unwrap();
        let called = "Service ray-relay in namespace ml (context work)";
        assert_eq!(relay.to_string(), called);
        assert_eq!(relay.uri("/x").unwrap(), "http://localhost:5678/x");
        reached
    }

    /// How long the next tokens last; `None`: there are none.
    fn lasts(&self, seconds: Option<i64>) {
        self.state.lock().lasts = seconds;
    }

    fn given(&self) -> usize {
        self.state.lock().given
    }
}

fn is_whole(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() == length.parse::<usize>().unwrap())
}

fn answer(asked: &str, state: &Held<State>) -> (u16, Value) {
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
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
            state.asked.push(serde_json::from_str(body).unwrap());
            let Some(lasts) = state.lasts else {
                return (
                    503,
                    json!({"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": ""}),
                );
            };
            state.given += 1;
            let until: DateTime<Utc> = SystemTime::now().into();
            let until = until + chrono::TimeDelta::seconds(lasts);
            let until = until.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            let status =
                json!({"token": format!("t{}", state.given), "expirationTimestamp": until});
            (
                201,
                json!({"metadata": {}, "spec": {"audiences": []}, "status": status}),
            )
        }
        path => panic!("{path}"),
    }
}

async fn shown(reached: &KubeRelay) -> String {
    reached.token().await.unwrap().unwrap().token.to_string()
}

#[tokio::test]
async fn service_account_token_is_renewed_before_expiry() {
    let api = FakeApiServer::start().await;
    let reached = api.reached(Some("debugger")).await;
    api.lasts(Some(3600));
    assert_eq!([shown(&reached).await, shown(&reached).await], ["t1", "t1"]);
    let spec = api.state.lock().asked[0]["spec"].clone();
    assert_eq!(
        spec,
        json!({"audiences": ["ray-relay"], "expirationSeconds": 3600})
    );
    // The relay refuses it, or its end is near to who keeps lines alive by it.
    assert!(reached.renew().await);
    api.lasts(Some(20));
    assert_eq!(shown(&reached).await, "t2");
    // Half a minute is not enough.
    assert_eq!(shown(&reached).await, "t3");
    // It holds until it ends, where there is no other.
    api.lasts(None);
    assert_eq!(shown(&reached).await, "t3");
    assert_eq!(api.given(), 3);
    api.lasts(Some(-1));
    assert_eq!(shown(&reached).await, "t4");
    api.lasts(None);
    let error = reached.token().await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    let said = "no token for ServiceAccount debugger in namespace ml: 503 ServiceUnavailable";
    assert_eq!(error.to_string(), said);
    assert!(!format!("{reached:?} {error:?}").contains("t4"));
}

#[tokio::test]
async fn kubeconfig_token_is_used_and_reread_on_renewal() {
    let api = FakeApiServer::start().await;
    let reached = api.reached(None).await;
    assert_eq!(shown(&reached).await, "their-own");
    let path = api.dir.path().join("config");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("their-own", "another")).unwrap();
    assert_eq!(shown(&reached).await, "their-own");
    assert!(reached.renew().await);
    assert_eq!(shown(&reached).await, "another");
    assert_eq!(api.given(), 0);
}

#[test]
fn kubectl_plugin_implies_kube_unless_a_relay_is_named() {
    use clap::Parser as _;
    let settled = |line: &str, plugin: bool, named: bool| {
        let mut cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let settled = cli.settle(plugin, named);
        let Command::List(args) = cli.command else {
            panic!("{line}");
        };
        settled.ok().map(|()| args.relay.kube.is_requested())
    };
    for (line, plugin, named, wanted) in [
        ("x list", false, false, Some(false)),
        ("x list", true, false, Some(true)),
        ("x list --relay http://x", true, true, Some(false)),
        ("x list -n ml", false, false, Some(true)),
        ("x list --kube-context prod", false, false, Some(true)),
        ("x list --kube --relay http://x", false, true, None),
    ] {
        assert_eq!(settled(line, plugin, named), wanted, "{line}");
    }
    for line in [
        "x list --audience a",
        "x list --as-service-account a --token-file b",
        "x list --kube --tls-server-name .",
    ] {
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}
