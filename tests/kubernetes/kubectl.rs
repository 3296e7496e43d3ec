//! Client commands that reach a relay through the API server (`--kube`): the kubeconfig, the API server and what it allows
//! are real, and so are TokenRequest and TokenReview; the kubelet at the end of a port-forward is a stand-in
//! ([`crate::kubelet`]).

mod scene;

use std::process::Stdio;
use std::time::Duration;

use ray_relay_base::config::TlsMode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use self::scene::{Connect, Scene, read_until};
use crate::api::{Api, service_account};
use crate::server::TEST_TIMEOUT;

#[tokio::test]
async fn by_a_client_certificate_and_a_token_of_a_service_account() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let _relay = scene.relay("relay-a").await;
    let ann = scene.ann().await;
    let there = ["-n", &scene.namespace];

    let args = [
        &["list", "--json"],
        &there[..],
        &["--as-service-account", "debugger"],
    ]
    .concat();
    let (out, err, code) = scene.run(&ann, &args).await;
    assert_eq!(code, 0, "{err}");
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["breakpoints"], json!([]), "{out}");

    // The relay knows no certificates of the API server's.
    let args = [&["list", "--kube"], &there[..]].concat();
    let err = scene.fails(&ann, &args, 77).await;
    assert!(
        err.contains("401") && err.contains("--as-service-account NAME"),
        "{err}"
    );
    // One that may do nothing at the relay, and for whom Ann may have no token.
    let args = [&["list"], &there[..], &["--as-service-account", "nobody"]].concat();
    let err = scene.fails(&ann, &args, 77).await;
    let text = format!(
        "no token for ServiceAccount nobody in namespace {}: 403 Forbidden",
        scene.namespace
    );
    assert!(
        err.contains(&text) && err.contains("`create` on serviceaccounts/token"),
        "{err}"
    );

    let args = [
        &["doctor"],
        &there[..],
        &["--as-service-account", "debugger"],
    ]
    .concat();
    let (out, err, _) = scene.run(&ann, &args).await;
    let forwarded = format!(
        "the API server {} has a port-forward to pod relay-a",
        scene.server.url()
    );
    for text in [
        "Service ray-relay in namespace",
        &forwarded,
        "the relay takes the token of ServiceAccount debugger",
    ] {
        assert!(out.contains(text), "{text}: {out}{err}");
    }

    // As kubectl calls it.
    let plugin = scene.dir.path().join("kubectl-ray_relay");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ray-relay"), &plugin).unwrap();
    let mut command = Command::new(plugin);
    command
        .env_clear()
        .env("KUBECONFIG", &ann)
        .stdin(Stdio::null());
    command
        .args(["list", "--as-service-account", "debugger"])
        .args(there);
    let output = timeout(TEST_TIMEOUT, command.output())
        .await
        .unwrap()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn by_a_credential_plugin_and_its_own_token() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let _relay = scene.relay("relay-a").await;
    let token = scene.api.token(&scene.namespace, "debugger", None).await;
    let file = scene.dir.path().join("login");
    std::fs::write(&file, token).unwrap();
    let runs = scene.dir.path().join("runs");
    let kubeconfig = scene.with_plugin(&format!(
        r#"echo ran >> {}; echo "$KUBERNETES_EXEC_INFO" | grep -q '"interactive":false' || exit 9
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"'$(cat {})'"}}}}'"#,
        runs.display(),
        file.display()
    ));
    let debugger = service_account(&scene.namespace, "debugger");
    let known = scene.kubeconfig("known", &json!({"tokenFile": file}));
    scene.may_connect(debugger, &known).await;
    let (out, err, code) = scene.run(&kubeconfig, &["list", "--kube", "--json"]).await;
    assert_eq!(code, 0, "{err}{out}");
    // Called once for everything: it may be interactive.
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "ran\n");
    let (out, _, _) = scene.run(&kubeconfig, &["doctor", "--kube"]).await;
    assert!(out.contains("takes the token of context work"), "{out}");
}

#[tokio::test]
async fn connect_survives_a_replaced_pod_and_a_cut_connection() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let first = scene.relay("relay-a").await;
    let ann = scene.ann().await;
    let args = [
        "connect",
        "-n",
        &scene.namespace,
        "--as-service-account",
        "debugger",
    ];
    let mut connect = Connect::start(scene.command(&ann, &args)).await;
    let called = format!(
        "Service ray-relay in namespace {} (context test)",
        scene.namespace
    );
    assert_eq!(connect.relay, called);
    let whoami = connect.get("/relay/v1/whoami").await;
    let name = format!("system:serviceaccount:{}:debugger", scene.namespace);
    assert!(whoami.contains(&name), "{whoami}");

    // The port-forward is cut, which stays hidden.
    let mut events = connect.ask("/relay/v1/events").await;
    read_until(&mut events, "event: snapshot").await;
    scene.kubelet.cut();
    let whoami = connect.get("/relay/v1/whoami").await;
    assert!(whoami.contains(&name), "{whoami}");
    read_until(&mut events, ": ").await;

    // Another pod replaces it: open sessions end with a notice, and new ones work.
    let second = scene.relay("relay-b").await;
    scene.delete_pod("relay-a").await;
    scene.kubelet.cut();
    first.abort().await;
    let event = connect.event("gone").await;
    assert!(
        event["why"].as_str().unwrap().contains("restarted"),
        "{event}"
    );
    let whoami = connect.get("/relay/v1/whoami").await;
    assert!(whoami.contains(&name), "{whoami}");
    drop(second);
}

#[tokio::test]
async fn tls_is_verified_end_to_end_through_the_port_forward() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let made = rcgen::generate_simple_self_signed(["ray-relay.test".to_owned()]).unwrap();
    let (certificate, key) = (
        scene.dir.path().join("tls.crt"),
        scene.dir.path().join("tls.key"),
    );
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let _relay = scene
        .relay_with("relay-a", "HTTPS", |config| {
            config.tls.mode = TlsMode::Required;
            config.tls.cert_file = Some(certificate.clone());
            config.tls.key_file = Some(key);
        })
        .await;
    let ann = scene.ann().await;
    let ca = certificate.display().to_string();
    let there = ["-n", &scene.namespace, "--as-service-account", "debugger"];
    let named = ["--ca-file", &ca, "--tls-server-name", "ray-relay.test"];

    // Neither the API server nor the kubelet vouches for the relay.
    let args = [&["list"], &there[..]].concat();
    let err = scene.fails(&ann, &args, 1).await;
    assert!(err.contains("UnknownIssuer"), "{err}");
    let args = [&["list"], &there[..], &named[..2]].concat();
    let err = scene.fails(&ann, &args, 1).await;
    assert!(err.contains("localhost"), "{err}");

    let args = [&["connect"], &there[..], &named[..]].concat();
    let connect = Connect::start(scene.command(&ann, &args)).await;
    let name = format!("system:serviceaccount:{}:debugger", scene.namespace);
    let mut events = connect.ask("/relay/v1/events").await;
    read_until(&mut events, "event: snapshot").await;
    // A new port-forward has TLS of its own.
    let before = scene.kubelet.opened();
    scene.kubelet.cut();
    let whoami = connect.get("/relay/v1/whoami").await;
    assert!(whoami.contains(&name), "{whoami}");
    read_until(&mut events, ": ").await;
    assert!(scene.kubelet.opened() > before);
}

#[tokio::test]
async fn a_token_is_replaced_before_it_ends_and_sessions_go_on() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let relay = scene.relay("relay-a").await;
    // Each is good for as long as its Secret is there.
    let secrets = format!("/api/v1/namespaces/{}/secrets", scene.namespace);
    let token = async |secret: &str| {
        let object = json!({"metadata": {"name": secret}});
        let made = scene.api.post(&secrets, &object).await.unwrap();
        let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": made["metadata"]["uid"]});
        let request =
            json!({"spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound}});
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/debugger/token",
            scene.namespace
        );
        let made = scene.api.post(&path, &request).await.unwrap();
        made["status"]["token"].as_str().unwrap().to_owned()
    };
    let login = scene.dir.path().join("login");
    std::fs::write(&login, token("one").await).unwrap();
    let debugger = service_account(&scene.namespace, "debugger");
    let known = scene.kubeconfig("known", &json!({"tokenFile": login}));
    scene.may_connect(debugger, &known).await;
    // A token that is about to expire makes kube request another for each use.
    let kubeconfig = scene.with_plugin(&format!(
        r#"echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"'$(cat {})'","expirationTimestamp":"'$(date -u -d '+30 seconds' +%Y-%m-%dT%H:%M:%SZ)'"}}}}'"#,
        login.display()
    ));
    let connect = Connect::start(scene.command(&kubeconfig, &["connect", "--kube"])).await;
    let mut events = connect.ask("/relay/v1/events").await;
    read_until(&mut events, "event: snapshot").await;
    // Another user, with the first credential.
    let mut others = TcpStream::connect(relay.local_addr()).await.unwrap();
    let first = std::fs::read_to_string(&login).unwrap();
    let request = format!(
        "GET /relay/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {first}\r\n\r\n"
    );
    others.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut others, "event: snapshot").await;

    // Both the line that carries the events and the one that waits are carried anew.
    let before = scene.kubelet.opened();
    std::fs::write(&login, token("two").await).unwrap();
    let renewed = timeout(TEST_TIMEOUT, async {
        while scene.kubelet.opened() < before + 2 {
            sleep(Duration::from_millis(20)).await;
        }
    });
    renewed.await.expect("another token is shown");
    // Links are carried anew more than once while uses of the two tokens overlap. From one keepalive to the next, 15 s, the
    // command has looked for a new token and found none.
    let settled = timeout(TEST_TIMEOUT, async {
        read_until(&mut events, "\n\n").await;
        let mut previous = None;
        while previous != Some(scene.kubelet.opened()) {
            previous = Some(scene.kubelet.opened());
            read_until(&mut events, "\n\n").await;
        }
    });
    settled.await.expect("the links settle");
    scene.api.delete(&format!("{secrets}/one")).await.unwrap();
    let mut rest = Vec::new();
    let over = timeout(TEST_TIMEOUT, others.read_to_end(&mut rest)).await;
    // With an error or without one.
    let _ = over.expect("the first token is none any more");
    let whoami = connect.get("/relay/v1/whoami").await;
    assert!(whoami.starts_with("HTTP/1.1 200"), "{whoami}");
    let over = timeout(Duration::from_secs(3), async {
        let mut bytes = [0; 4096];
        while events.read(&mut bytes).await.unwrap() > 0 {}
    });
    assert!(over.await.is_err(), "the session is over");
}

#[tokio::test]
async fn missing_arguments_are_reported_with_the_next_step() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let namespace = scene.namespace.clone();
    let (name, kubeconfig) = scene.person("bob");
    let list = ["list", "-n", &namespace];

    // First without permissions, then with all but the port-forward.
    let err = scene.fails(&kubeconfig, &list, 77).await;
    assert!(
        err.contains(&format!(
            "you may not list services in namespace {namespace}"
        )),
        "{err}"
    );
    let rules = [("", "services pods", "", "get list")];
    scene.api.make_role(Some(&namespace), "looks", &rules).await;
    let bob = json!({"kind": "User", "name": name});
    scene
        .api
        .bind(Some(&namespace), ("Role", "looks"), bob)
        .await;
    let they = Api::new(&kubeconfig).await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    they.until(&pods, Result::is_ok).await;
    let err = scene.fails(&kubeconfig, &list, 69).await;
    let output = format!(
        "no pod behind Service ray-relay in namespace {namespace} is ready (there is none)"
    );
    assert!(
        err.contains(&output) && err.contains("kubectl get pods"),
        "{err}"
    );
    scene.pod("relay-a", "HTTP", None).await;
    let err = scene.fails(&kubeconfig, &list, 77).await;
    let output = format!("you may not get and create pods/portforward in namespace {namespace}");
    assert!(
        err.contains(&output) && err.contains("ask the cluster's operator for a Role"),
        "{err}"
    );

    // Allowed, and nothing listens in the pod.
    let ann = scene.ann().await;
    let mut err = scene.fails(&ann, &list, 69).await;
    // On a busy machine the stream may close before the reason arrives.
    for _ in 0..3 {
        if !err.contains("connection refused") {
            err = scene.fails(&ann, &list, 69).await;
        }
    }
    assert!(err.contains("connection refused"), "{err}");
    // Another Service, and none.
    let err = scene
        .fails(
            &ann,
            &["list", "-n", &namespace, "--kube-service", "other"],
            69,
        )
        .await;
    assert!(
        err.contains(&format!("namespace {namespace} has no Service other")),
        "{err}"
    );
    let service = format!("/api/v1/namespaces/{namespace}/services/ray-relay");
    scene.api.delete(&service).await.unwrap();
    let err = scene.fails(&ann, &list, 69).await;
    assert!(
        err.contains("has no Service labelled app.kubernetes.io/name=ray-relay"),
        "{err}"
    );
    assert!(err.contains("--kube-service NAME"), "{err}");

    // The kubeconfig.
    let err = scene.fails(&ann, &["list", "--context", "prod"], 78).await;
    assert!(err.contains("no context prod: there are test"), "{err}");
    let nowhere = scene.dir.path().join("nowhere");
    let err = scene.fails(&nowhere, &["list", "--kube"], 78).await;
    assert!(
        err.contains("nowhere is not there") && err.contains("--kubeconfig FILE"),
        "{err}"
    );
    std::fs::write(&nowhere, "users: [{name: a, user: {token: s3cret\n").unwrap();
    let err = scene.fails(&nowhere, &["list", "--kube"], 78).await;
    assert!(err.contains("cannot be read as YAML"), "{err}");

    // The plugin.
    let failing = scene.with_plugin("echo s3cret; echo s3cret >&2; exit 3");
    let err = scene.fails(&failing, &["list", "--kube"], 78).await;
    assert!(err.contains("plugin has failed (exit status: 3)"), "{err}");
    assert!(err.contains("get it from your administrator"), "{err}");
    std::fs::remove_file(scene.dir.path().join("plugin")).unwrap();
    let err = scene.fails(&failing, &["list", "--kube"], 78).await;
    assert!(err.contains("plugin is not there"), "{err}");
    // Unknown users, and untrusted certificates.
    let unknown = scene.kubeconfig("unknown", &json!({"token": "s3cret"}));
    let err = scene.fails(&unknown, &["list", "--kube"], 77).await;
    assert!(
        err.contains("does not take the kubeconfig's credential"),
        "{err}"
    );
    let text = std::fs::read_to_string(&unknown).unwrap();
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    let ca = scene.dir.path().join("other.crt");
    std::fs::write(&ca, other.cert.pem()).unwrap();
    let its = scene.server.file("ca.crt").display().to_string();
    std::fs::write(&unknown, text.replace(&its, &ca.display().to_string())).unwrap();
    let err = scene.fails(&unknown, &["list", "--kube"], 78).await;
    assert!(
        err.contains("no TLS with the Kubernetes API server https://127.0.0.1:"),
        "{err}"
    );
    let err = scene
        .fails(&ann, &["list", "--kube", "--relay", "http://localhost"], 2)
        .await;
    assert!(err.contains("leave out the one or the other"), "{err}");
}
