//! RayClusters of an API server become clusters of the relay, change, and vanish.

#[path = "discovery/api_server.rs"]
mod api_server;
#[path = "discovery/head.rs"]
mod head;

use std::time::Duration;

use ray_relay::app::Running;
use ray_relay_base::config::Config;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::browser::{Browser, chromium};
use super::support::{TEST_TIMEOUT, dial, rest, start};
use api_server::ApiServer;
use head::Head;

fn fixture(name: &str) -> Value {
    let path = format!(
        "{}/tests/fixtures/kuberay/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

/// The recorded object, its head at `head`.
fn served_by(mut object: Value, head: &Head) -> Value {
    object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"][1]["containerPort"] =
        head.address.port().into();
    object
}

async fn relay(api: &ApiServer, change: impl FnOnce(&mut Config)) -> Running {
    start(|config| {
        config.clusters.clear();
        config.discovery.kubernetes = true;
        // Stand-ins have no names: the Service is in the path, where they look at it.
        let address = "http://127.0.0.1:{port}/{namespace}/{service}";
        config.discovery.ray_address = address.parse().unwrap();
        config.kubernetes.api_server = Some(format!("http://{}", api.address));
        config.kubernetes.token_file = Some(api.token_file());
        config.registry.poll_interval = Duration::from_millis(100);
        config.registry.backoff_max = Duration::from_millis(500);
        change(config);
    })
    .await
}

async fn get(relay: &Running, path: &str) -> String {
    let mut stream = dial(relay.local_addr()).await;
    let before = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(before.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

async fn list(relay: &Running) -> Value {
    let answer = get(relay, "/relay/v1/breakpoints").await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.parse().unwrap_or_else(|_| panic!("{answer}"))
}

/// The list, as soon as it fits.
async fn until(relay: &Running, fits: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let found = timeout(TEST_TIMEOUT, async {
        loop {
            last = list(relay).await;
            if fits(&last) {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    if found.await.is_err() {
        panic!("{last:#}");
    }
    last
}

/// `CLUSTER` of what has no head, `CLUSTER: WORKER` of what waits.
fn shown(list: &Value) -> Vec<String> {
    let items = |key: &str| list[key].as_array().unwrap().clone();
    let mut shown = Vec::new();
    for cluster in items("clusters") {
        let name = cluster["name"].as_str().unwrap();
        let rows = items("breakpoints").into_iter();
        let of_it: Vec<_> = rows
            .filter(|row| row["cluster"] == *name)
            .map(|row| format!("{name}: {}", &row["worker_id"].as_str().unwrap()[..2]))
            .collect();
        match of_it.is_empty() {
            true => shown.push(name.to_owned()),
            false => shown.extend(of_it),
        }
    }
    shown.sort();
    shown
}

#[tokio::test]
async fn two_rayclusters_appear_change_and_vanish() {
    let (first, second, third) = (
        Head::start("aa").await,
        Head::start("bb").await,
        Head::start("cc").await,
    );
    first.require_token("bWFkZSB1cCBmb3IgdGhlc2UgdGVzdHMsIDMyIGJ5dGU=");
    let api = ApiServer::start().await;
    api.put(served_by(fixture("pending"), &first));
    api.put(served_by(fixture("of-a-rayjob"), &second));
    api.put_secret(fixture("secret"));
    let relay = relay(&api, |_| {}).await;

    // The clusters appear, one before its head serves.
    let both = ["ml.ray-cluster-with-auth", "ml.rayjob-sample-9rqzv: bb"];
    let observed = until(&relay, |list| shown(list) == both).await;
    let cluster = |list: &Value, name: &str| {
        let all = list["clusters"].as_array().unwrap().iter();
        all.clone().find(|c| c["name"] == *name).unwrap().clone()
    };
    assert_eq!(
        cluster(&observed, "ml.rayjob-sample-9rqzv")["ray_job"],
        "rayjob-sample"
    );
    let trouble = cluster(&observed, "ml.ray-cluster-with-auth")["trouble"].to_string();
    assert!(
        trouble.contains("is not ready; `kubectl describe"),
        "{trouble}"
    );
    assert_eq!(
        second.paths()[0].split('/').take(3).collect::<Vec<_>>(),
        ["", "ml", "rayjob-sample-9rqzv-head-svc"]
    );
    // All pages, and by the relay's own token.
    assert!(api.requests("continue=").len() == 1 && api.requests("/secrets/").is_empty());
    // The dashboard of each is in its place, and none is at /.
    let theirs = get(&relay, "/relay/clusters/ml.rayjob-sample-9rqzv/api/version").await;
    assert!(theirs.contains("\"2.53.0\""), "{theirs}");
    let none = get(&relay, "/api/version").await;
    assert!(
        none.starts_with("HTTP/1.1 502") && none.contains("/relay/clusters/NAME/"),
        "{none}"
    );

    // The head serves, and takes the token in KubeRay's Secret.
    api.put(served_by(fixture("ready"), &first));
    let both = ["ml.ray-cluster-with-auth: aa", "ml.rayjob-sample-9rqzv: bb"];
    until(&relay, |list| shown(list) == both).await;
    let secrets = api.requests("/secrets/");
    assert_eq!(
        secrets,
        ["/api/v1/namespaces/ml/secrets/ray-cluster-with-auth"]
    );

    // The token is another one: it is read again when the head refuses.
    let mut secret = fixture("secret");
    secret["data"]["auth_token"] = "cm90YXRlZA==".into();
    api.put_secret(secret);
    first.require_token("rotated");
    let refused = |list: &Value| !cluster(list, "ml.ray-cluster-with-auth")["trouble"].is_null();
    until(&relay, refused).await;
    until(&relay, |list| !refused(list)).await;
    assert!(api.requests("/secrets/").len() >= 2);

    // A watch breaks in the middle of a change: it comes again. The version of a bookmark counts.
    api.bookmark(9000);
    api.cut_next();
    let mut moved = served_by(fixture("ready"), &third);
    moved["status"]["head"]["serviceName"] = "another-head-svc".into();
    third.require_token("rotated");
    api.put(moved);
    let both = ["ml.ray-cluster-with-auth: cc", "ml.rayjob-sample-9rqzv: bb"];
    until(&relay, |list| shown(list) == both).await;
    assert!(third.paths()[0].starts_with("/ml/another-head-svc/"));
    assert!(!api.requests("resourceVersion=9000").is_empty());

    // The API server forgets what it was: all are listed anew, and one is not among them.
    api.forget("rayjob-sample-9rqzv");
    until(&relay, |list| {
        shown(list) == ["ml.ray-cluster-with-auth: cc"]
    })
    .await;
    assert_eq!(api.requests("limit=").len(), 3);
    let metrics = get(&relay, "/relay/metrics").await;
    assert!(
        metrics.contains("ml.ray-cluster-with-auth") && !metrics.contains("rayjob"),
        "{metrics}"
    );
    let unknown = get(&relay, "/relay/clusters/ml.rayjob-sample-9rqzv/").await;
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");

    api.delete("ray-cluster-with-auth");
    until(&relay, |list| shown(list).is_empty()).await;
    relay.drain().await;
}

#[tokio::test]
async fn relay_without_a_clusterrole_discovers_its_own_namespace() {
    let head = Head::start("aa").await;
    head.require_token("secret");
    let api = ApiServer::start().await;
    let mut object = served_by(fixture("ready"), &head);
    object["metadata"]["namespace"] = "default".into();
    api.put(object);
    api.refuse("/apis/ray.io/v1/rayclusters");
    api.refuse("/secrets/");
    let relay = relay(&api, |_| {}).await;
    let trouble = |list: &Value| list["clusters"][0]["trouble"].as_str().map(str::to_owned);
    let list = until(&relay, |list| trouble(list).is_some()).await;
    let trouble = trouble(&list).unwrap();
    assert!(
        trouble.contains("the Secret default/ray-cluster-with-auth, where the relay finds none"),
        "{trouble}"
    );
    assert_eq!(list["clusters"][0]["name"], "default.ray-cluster-with-auth");
    assert!(
        !api.requests("/apis/ray.io/v1/namespaces/default/rayclusters")
            .is_empty()
    );
    relay.drain().await;
}

#[tokio::test]
async fn page_says_that_discovery_is_narrowed() {
    let Some(program) = chromium() else {
        return;
    };
    let api = ApiServer::start().await;
    api.refuse("/apis/ray.io/v1/rayclusters");
    let narrowed = relay(&api, |_| {}).await;
    until(&narrowed, |list| !list["discovery"]["narrowed"].is_null()).await;
    let page = |relay: &Running| format!("http://{}/relay/", relay.local_addr());
    let browser = Browser::open(&program, &page(&narrowed));
    let text = browser.reads("troubles", "is looked at").await;
    let expected = "Only namespace default is looked at: the relay may not list the RayClusters of all namespaces; bind ";
    assert!(text.starts_with(expected), "{text}");
    drop(browser);

    // A restriction that was configured is not reported.
    let named = relay(&api, |config| {
        config.discovery.namespaces = vec!["ml".to_owned()]
    })
    .await;
    let browser = Browser::open(&program, &page(&named));
    browser.reads("link", "live").await;
    assert_eq!(browser.reads("troubles", "").await, "");
    narrowed.drain().await;
    named.drain().await;
}

#[tokio::test]
async fn absent_api_server_removes_no_cluster() {
    let head = Head::start("aa").await;
    let api = ApiServer::start().await;
    let mut object = served_by(fixture("ready"), &head);
    object["spec"]["authOptions"] = json!({"mode": "disabled"});
    api.put(object);
    let relay = relay(&api, |config| {
        config.discovery.namespaces = vec!["ml".to_owned()]
    })
    .await;
    until(&relay, |list| {
        shown(list) == ["ml.ray-cluster-with-auth: aa"]
    })
    .await;
    let paths = api.requests("rayclusters");
    assert!(
        paths
            .iter()
            .all(|path| path.starts_with("/apis/ray.io/v1/namespaces/ml/")),
        "{paths:?}"
    );
    api.refuse("/");
    api.hang_up();
    let before = api.requests("/").len();
    timeout(TEST_TIMEOUT, async {
        while api.requests("/").len() < before + 2 {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    // The failure is reported, and the known clusters stay.
    let list = until(&relay, |list| {
        shown(list) == ["kubernetes", "ml.ray-cluster-with-auth: aa"]
    })
    .await;
    let mut clusters = list["clusters"].as_array().unwrap().iter();
    let trouble = clusters.find_map(|cluster| cluster["trouble"].as_str());
    let trouble = trouble.unwrap();
    assert!(
        trouble.contains("the Kubernetes API server at") && trouble.contains("refuses with 403"),
        "{trouble}"
    );
    relay.drain().await;
}

#[tokio::test]
async fn unreachable_api_server_is_not_an_empty_list() {
    let api = ApiServer::start().await;
    let relay = relay(&api, |config| {
        config.kubernetes.api_server = Some("http://127.0.0.1:1".to_owned())
    })
    .await;
    let list = until(&relay, |list| shown(list) == ["kubernetes"]).await;
    let trouble = list["clusters"][0]["trouble"].as_str().unwrap();
    assert!(
        trouble.contains("cannot reach the Kubernetes API server at"),
        "{trouble}"
    );
    relay.drain().await;
}
