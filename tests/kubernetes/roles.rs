//! Permissions of users on RayClusters, by roles in their namespaces. Users see nothing else.

use std::time::Duration;

use hyper::StatusCode;
use ray_relay_base::wire::dap::conversation::Conversation;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::{Api, service_account};
use crate::head::Head;
use crate::relay::{DISCOVERY, Relay, account, clusters, ready_cluster};
use crate::server::{Server, TEST_TIMEOUT};
use crate::support::{attach, dial};

/// The policy rule for debuggers in docker/.
const DEBUGGER: (&str, &str, &str, &str) = (
    "ray-relay.dev",
    "breakpoints",
    "",
    "list view debug terminal dashboard-read",
);

/// A relay that finds the RayClusters `train` and `second` of the namespace `mine`, and `train` of `other`.
struct Scene {
    server: &'static Server,
    api: Api,
    relay: Relay,
    /// The relay's namespace.
    home: String,
    mine: String,
    other: String,
    /// A ClusterRole with [`DEBUGGER`].
    debugger: String,
    /// The token of a user who sees everything.
    all: String,
    _heads: Vec<Head>,
}

async fn scene() -> Option<Scene> {
    let server = Server::shared().await?;
    let api = server.api().await;
    let (home, mine, other) = (
        api.namespace().await,
        api.namespace().await,
        api.namespace().await,
    );
    let (discovery, debugger) = (format!("finds-{home}"), format!("debugger-{home}"));
    api.make_role(None, &discovery, &DISCOVERY).await;
    api.make_role(None, &debugger, &[DEBUGGER]).await;
    for role in [&discovery, "system:auth-delegator"] {
        api.bind(None, ("ClusterRole", role), account(&home)).await;
    }
    let heads = vec![
        ready_cluster(&api, &mine, "train", "aa").await,
        ready_cluster(&api, &mine, "second", "bb").await,
        ready_cluster(&api, &other, "train", "cc").await,
    ];
    api.make_service_account(&home, "all").await;
    let subject = service_account(&home, "all");
    api.bind(None, ("ClusterRole", &debugger), subject).await;
    let all = api.token(&home, "all", Some("ray-relay")).await;
    let mut relay = Relay::start(server, &api, &home, |config| {
        config.kubernetes.enabled = true;
        config.kubernetes.recheck = Duration::from_secs(2);
        config.kubernetes.refused_for = Duration::from_millis(100);
    })
    .await;
    relay.token = Some(all.clone());
    let of_mine = [format!("{mine}.train"), format!("{mine}.second")];
    relay
        .until(|list| {
            let rows = list["breakpoints"].as_array().unwrap().iter();
            let there = |name: &String| rows.clone().any(|row| row["cluster"] == **name);
            of_mine.iter().all(there) && there(&format!("{other}.train"))
        })
        .await;
    Some(Scene {
        server,
        api,
        relay,
        home,
        mine,
        other,
        debugger,
        all,
        _heads: heads,
    })
}

impl Scene {
    /// Has the relay asked by a new ServiceAccount `name` of `mine` from now on.
    async fn come_as(&mut self, name: &str) -> Value {
        self.api.make_service_account(&self.mine, name).await;
        let token = self.api.token(&self.mine, name, Some("ray-relay")).await;
        self.relay.token = Some(token);
        service_account(&self.mine, name)
    }

    /// The list, as soon as it is given.
    async fn listed(&self) -> Value {
        let granted = async {
            while !self
                .relay
                .get("/relay/v1/breakpoints")
                .await
                .starts_with("HTTP/1.1 200")
            {}
        };
        timeout(TEST_TIMEOUT, granted).await.unwrap();
        self.relay.list().await
    }

    /// An attach to `breakpoint`: the first answer.
    async fn attached(&self, breakpoint: &Value) -> (Conversation<TcpStream>, Value) {
        let selector = json!({"breakpoint": breakpoint, "token": self.relay.token});
        attach(dial(self.relay.address()).await, &selector).await
    }

    async fn post(&self, path: &str, body: &Value) -> String {
        let mut stream = dial(self.relay.address()).await;
        let (token, body) = (self.relay.token.as_ref().unwrap(), body.to_string());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        crate::support::rest(&mut stream).await
    }
}

/// `NAMESPACE.NAME` of what waits, sorted.
fn waiting(list: &Value) -> Vec<&str> {
    let rows = list["breakpoints"].as_array().unwrap().iter();
    let mut names: Vec<&str> = rows.map(|row| row["cluster"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

fn id_in(list: &Value, cluster: &str) -> Value {
    let mut rows = list["breakpoints"].as_array().unwrap().iter();
    let row = rows.find(|row| row["cluster"] == *cluster);
    row.unwrap()["id"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_admin_grants_debugging_only_in_that_namespace() {
    let Some(mut scene) = scene().await else {
        return;
    };
    let (mine, other) = (scene.mine.clone(), scene.other.clone());
    let everything = scene.relay.list().await;
    let theirs = id_in(&everything, &format!("{other}.train"));
    let ann = scene.come_as("ann").await;
    let refused = scene.relay.get("/relay/v1/breakpoints").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");

    // The owner of the namespace may bind roles in it, but no more than the owner may.
    let owner = format!("owner-{mine}");
    scene.server.certificates.client(&owner, &owner, "people");
    let api = Api::new(&scene.server.kubeconfig(&owner)).await;
    let rules = [("rbac.authorization.k8s.io", "rolebindings", "", "create")];
    scene.api.make_role(Some(&mine), "binds", &rules).await;
    let subject = || json!({"kind": "User", "name": owner});
    scene
        .api
        .bind(Some(&mine), ("Role", "binds"), subject())
        .await;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{mine}/rolebindings");
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": scene.debugger}, "subjects": [ann]});
    assert_eq!(api.post(&path, &binding).await, Err(StatusCode::FORBIDDEN));
    let debugger = scene.debugger.clone();
    scene
        .api
        .bind(Some(&mine), ("ClusterRole", &debugger), subject())
        .await;
    let bound = async { while api.post(&path, &binding).await.is_err() {} };
    timeout(TEST_TIMEOUT, bound).await.unwrap();

    // Ann debugs both clusters of the namespace, and of the other one there is nothing.
    let list = scene.listed().await;
    let both = [format!("{mine}.second"), format!("{mine}.train")];
    assert_eq!(waiting(&list), both);
    assert_eq!(clusters(&list), both);
    let (unseen, answer) = scene.attached(&theirs).await;
    let (unknown, no_such) = scene.attached(&"ffffffff".into()).await;
    let error_text = |answer: &Value| {
        let text = answer["message"].to_string();
        text.replace(theirs.as_str().unwrap(), "ID")
            .replace("ffffffff", "ID")
    };
    let without_request = |text: String| text.split("(request").next().unwrap().to_owned();
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(
        without_request(error_text(&answer)),
        without_request(error_text(&no_such))
    );
    drop((unseen, unknown));
    let mut session = scene.relay.session(&both[1]).await;
    assert_eq!(session.is_over().await, None);

    // Her session ends with the binding.
    let own = format!("{path}/ann");
    scene.api.delete(&own).await.unwrap();
    let over = async { while session.is_over().await.is_none() {} };
    timeout(TEST_TIMEOUT, over).await.unwrap();
    let disappearance = async {
        while !scene
            .relay
            .get("/relay/v1/breakpoints")
            .await
            .starts_with("HTTP/1.1 403")
        {}
    };
    timeout(TEST_TIMEOUT, disappearance).await.unwrap();
    scene.relay.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_of_one_raycluster_sees_only_that_one() {
    let Some(mut scene) = scene().await else {
        return;
    };
    let (mine, other) = (scene.mine.clone(), scene.other.clone());
    let everything = scene.relay.list().await;
    let hidden = [format!("{mine}.second"), format!("{other}.train")];
    let ids: Vec<Value> = hidden.iter().map(|name| id_in(&everything, name)).collect();
    // Another user has a session with a hidden task.
    let mut theirs = scene.relay.session(&hidden[1]).await;

    let bob = scene.come_as("bob").await;
    let rules = [(
        "ray-relay.dev",
        "breakpoints",
        "train",
        "list debug terminal dashboard-read admin",
    )];
    scene.api.make_role(Some(&mine), "train", &rules).await;
    scene.api.bind(Some(&mine), ("Role", "train"), bob).await;
    let list = scene.listed().await;
    let one = format!("{mine}.train");
    assert_eq!(
        (waiting(&list), clusters(&list)),
        (vec![&*one], vec![&*one])
    );
    let paths = [
        "/relay/v1/breakpoints",
        "/relay/v1/breakpoints?filter=state%3Dpaused",
        "/relay/v1/nodes",
        "/relay/v1/sessions",
        "/relay/v1/whoami",
        "/relay/v1/doctor",
        "/relay/metrics",
        "/relay/readyz",
        "/relay/",
        "/",
        "/nowhere",
    ];
    let is_hidden = |text: &str| {
        let ids = ids.iter().map(|id| id.as_str().unwrap());
        hidden
            .iter()
            .map(String::as_str)
            .chain(ids)
            .chain([&*other])
            .all(|word| !text.contains(word))
    };
    for path in paths {
        let answer = scene.relay.get(path).await;
        assert!(is_hidden(&answer), "{path}: {answer}");
    }
    for command in ["list", "sessions", "doctor"] {
        let output = scene.relay.command(&[command]).await;
        assert!(is_hidden(&output), "{command}: {output}");
    }
    // Hidden and unknown are the same.
    let without_name = |answer: String, name: &str| {
        let answer = answer.replace(name, "NAME").to_ascii_lowercase();
        let lines = answer
            .lines()
            .filter(|line| !line.starts_with("x-request-id") && !line.starts_with("date"));
        let text = lines.collect::<Vec<_>>().join("\n");
        text.split("request").next().unwrap().to_owned()
    };
    for path in ["/relay/readyz?cluster=", "/relay/clusters/"] {
        let unknown = scene.relay.get(&format!("{path}no.such")).await;
        for name in &hidden {
            let answer = scene.relay.get(&format!("{path}{name}")).await;
            let length = |answer: &str| answer.replace(&name.len().to_string(), "");
            let (answer, unknown) = (
                without_name(answer, name),
                without_name(unknown.clone(), "no.such"),
            );
            assert_eq!(
                length(&answer).split("content-length").next(),
                length(&unknown).split("content-length").next(),
                "{path}"
            );
        }
    }
    // Tasks of others are not resumed, parked or ended, and their session continues.
    for id in &ids {
        let released = scene.post("/relay/v1/release", &json!({"ids": [id]})).await;
        let unknown = scene
            .post("/relay/v1/release", &json!({"ids": ["ffffffff"]}))
            .await;
        assert_eq!(
            released.lines().next(),
            unknown.lines().next(),
            "{released} {unknown}"
        );
        assert!(!released.contains("\"released\":true"), "{released}");
    }
    scene
        .post("/relay/v1/release", &json!({"all": true, "older_than": 0}))
        .await;
    assert_eq!(theirs.is_over().await, None);
    scene.relay.token = Some(scene.all.clone());
    // The API server is that of other tests too.
    let list = scene.relay.list().await;
    let is_there = |name: &String| waiting(&list).contains(&&**name);
    assert!(hidden.iter().all(is_there), "{list:#}");
    scene.relay.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_stream_sends_only_permitted_breakpoints() {
    let Some(mut scene) = scene().await else {
        return;
    };
    let (mine, other) = (scene.mine.clone(), scene.other.clone());
    let carl = scene.come_as("carl").await;
    let rules = [("ray-relay.dev", "breakpoints", "train late", "list")];
    scene.api.make_role(Some(&mine), "late", &rules).await;
    scene.api.bind(Some(&mine), ("Role", "late"), carl).await;
    scene.listed().await;
    let mut stream = dial(scene.relay.address()).await;
    let token = scene.relay.token.clone().unwrap();
    let request = format!(
        "GET /relay/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();

    // The cluster of another namespace appears first, and its users see it.
    let _theirs = ready_cluster(&scene.api, &other, "late", "dd").await;
    let _unnamed = ready_cluster(&scene.api, &mine, "other", "ee").await;
    scene.relay.token = Some(scene.all.clone());
    let (theirs, unnamed) = (format!("{other}.late"), format!("{mine}.other"));
    let has_both = |list: &Value| {
        let waiting = waiting(list);
        waiting.contains(&&*theirs) && waiting.contains(&&*unnamed)
    };
    scene.relay.until(has_both).await;
    let _late = ready_cluster(&scene.api, &mine, "late", "ff").await;
    let late = format!("{mine}.late");
    let mut received = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&received).contains(&late) {
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
        }
    };
    timeout(TEST_TIMEOUT, read).await.unwrap();
    let message = String::from_utf8(received).unwrap();
    for word in [&theirs, &unnamed, &other, &format!("{mine}.second")] {
        assert!(!message.contains(&**word), "{message}");
    }
    scene.relay.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_token_is_answered_with_the_audience() {
    let Some(mut scene) = scene().await else {
        return;
    };
    let home = scene.home.clone();
    let expected = "`kubectl create token SERVICEACCOUNT --audience ray-relay`";
    scene.relay.token = None;
    let none = scene.relay.get("/relay/v1/breakpoints").await;
    assert!(
        none.starts_with("HTTP/1.1 401") && none.contains(expected),
        "{none}"
    );
    // `kubectl create token` without an audience makes one for the API server.
    let token = scene.api.token(&home, "all", None).await;
    scene.relay.token = Some(token);
    let refused = scene.relay.get("/relay/v1/breakpoints").await;
    assert!(
        refused.starts_with("HTTP/1.1 401") && refused.contains(expected),
        "{refused}"
    );
    assert!(!none.contains("token mint") && !refused.contains("token inspect"));
    scene.relay.end().await;
}
