//! A namespace with a relay, a user with port-forwards there, and the output of commands.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ray_relay::app::{self, Running};
use ray_relay_base::config::{self, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::api::{Api, service_account};
use crate::kubelet::Kubelet;
use crate::server::{Server, TEST_TIMEOUT};

/// The audience of tokens that name none.
const API_AUDIENCE: &str = "https://kubernetes.default.svc";

/// A namespace with a relay's Service, a node, and a user with port-forwards there.
pub(super) struct Scene {
    pub(super) server: &'static Server,
    pub(super) api: Api,
    pub(super) namespace: String,
    pub(super) kubelet: Kubelet,
    pub(super) dir: tempfile::TempDir,
}

impl Scene {
    pub(super) async fn new() -> Option<Self> {
        let server = Server::shared().await?;
        let api = server.api().await;
        let namespace = api.namespace().await;
        let kubelet = Kubelet::start(&api, &namespace).await;
        let label = json!({"app.kubernetes.io/name": "ray-relay"});
        let service = json!({"metadata": {"name": "ray-relay", "labels": label},
            "spec": {"selector": label, "ports": [{"name": "relay", "port": 80, "targetPort": "relay"}]}});
        let path = format!("/api/v1/namespaces/{namespace}/services");
        api.post(&path, &service).await.unwrap();
        for name in ["relay", "debugger", "nobody"] {
            api.make_service_account(&namespace, name).await;
        }
        let reviewer = service_account(&namespace, "relay");
        let delegator = ("ClusterRole", "system:auth-delegator");
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("reviewer-{namespace}")}, "subjects": [reviewer],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": delegator.0, "name": delegator.1}});
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        api.post(path, &binding).await.unwrap();
        let debugs = [("ray-relay.dev", "breakpoints", "", "list debug")];
        api.make_role(Some(&namespace), "debugs", &debugs).await;
        let debugger = service_account(&namespace, "debugger");
        let role = ("Role", "debugs");
        api.bind(Some(&namespace), role, debugger).await;
        Some(Self {
            server,
            api,
            namespace,
            kubelet,
            dir: tempfile::tempdir().unwrap(),
        })
    }

    /// A relay that knows whom the API server knows, in a pod that is ready.
    pub(super) async fn relay(&self, pod: &str) -> Running {
        self.relay_with(pod, "HTTP", |_| {}).await
    }

    /// The same, configured so, and asked by the kubelet by `scheme` whether it is ready.
    pub(super) async fn relay_with(
        &self,
        pod: &str,
        scheme: &str,
        change: impl FnOnce(&mut Config),
    ) -> Running {
        let file = self.dir.path().join("relay.token");
        let token = self.api.token(&self.namespace, "relay", None).await;
        std::fs::write(&file, token).unwrap();
        let mut config = Config::default();
        config.listen.address = ([127, 0, 0, 1], 0).into();
        config.clusters[0].ray_address = "http://127.0.0.1:1".to_owned();
        config.clusters[0].gcs_address = config::Gcs::Off;
        config.park.r#for = Duration::ZERO;
        config.kubernetes.enabled = true;
        config.kubernetes.audiences = vec!["ray-relay".to_owned(), API_AUDIENCE.to_owned()];
        config.kubernetes.namespace = Some(self.namespace.clone());
        config.kubernetes.api_server = Some(self.server.url());
        config.kubernetes.ca_file = Some(self.server.file("ca.crt"));
        config.kubernetes.token_file = Some(file);
        config.kubernetes.recheck = Duration::from_secs(1);
        change(&mut config);
        let relay = app::start(config).await.unwrap();
        self.pod(pod, scheme, Some(relay.local_addr())).await;
        relay
    }

    /// A pod that is ready, and what listens in it.
    pub(super) async fn pod(&self, name: &str, scheme: &str, listens: Option<SocketAddr>) {
        self.kubelet.listens(name, listens);
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let ports = json!([{"name": "relay", "containerPort": 5678}]);
        let ready =
            json!({"httpGet": {"path": "/relay/healthz", "port": "relay", "scheme": scheme}});
        let container = json!({"name": "ray-relay", "image": "ray-relay", "ports": ports, "readinessProbe": ready});
        let pod = json!({"metadata": {"name": name, "labels": {"app.kubernetes.io/name": "ray-relay"}},
            "spec": {"nodeName": self.namespace, "containers": [container]}});
        self.api.post(&path, &pod).await.unwrap();
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"phase": "Running", "conditions": ready}});
        let path = format!("{path}/{name}/status");
        self.api.patch(&path, &status).await.unwrap();
    }

    pub(super) async fn delete_pod(&self, name: &str) {
        let namespace = &self.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0");
        self.api.delete(&path).await.unwrap();
        self.kubelet.listens(name, None);
    }

    /// Grants `subject` port-forwards here and tokens of `debugger`, and waits until that holds for `kubeconfig`.
    pub(super) async fn may_connect(&self, subject: Value, kubeconfig: &Path) {
        let rules = [
            ("", "services pods", "", "get list"),
            ("", "pods/portforward", "", "get create"),
            ("", "serviceaccounts/token", "debugger", "create"),
        ];
        let namespace = &self.namespace;
        self.api
            .make_role(Some(namespace), "connects", &rules)
            .await;
        let role = ("Role", "connects");
        self.api.bind(Some(namespace), role, subject).await;
        let they = Api::new(kubeconfig).await;
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        they.until(&path, Result::is_ok).await;
    }

    /// A user of this scene with a client certificate: the name, and the kubeconfig.
    pub(super) fn person(&self, name: &str) -> (String, PathBuf) {
        let name = format!("{name}-{}", self.namespace);
        self.server.certificates.client(&name, &name, "people");
        let kubeconfig = self.server.kubeconfig(&name);
        (name, kubeconfig)
    }

    /// Ann, with a client certificate and permission to connect.
    pub(super) async fn ann(&self) -> PathBuf {
        let (name, kubeconfig) = self.person("ann");
        let subject = json!({"kind": "User", "name": name});
        self.may_connect(subject, &kubeconfig).await;
        kubeconfig
    }

    /// A kubeconfig with a credential plugin, and the script that is one.
    pub(super) fn with_plugin(&self, script: &str) -> PathBuf {
        let plugin = self.dir.path().join("plugin");
        std::fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = Permissions::from_mode(0o755);
        std::fs::set_permissions(&plugin, executable).unwrap();
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": plugin,
            "args": ["--secret", "s3cret-argument"], "interactiveMode": "IfAvailable",
            "installHint": "get it from your administrator"});
        self.kubeconfig("plugin.kubeconfig", &json!({ "exec": exec }))
    }

    /// One with the scene's namespace in its context.
    pub(super) fn kubeconfig(&self, file: &str, user: &Value) -> PathBuf {
        let path = self.dir.path().join(file);
        let cluster = json!({"server": self.server.url(), "certificate-authority": self.server.file("ca.crt")});
        let context = json!({"cluster": "test", "user": "them", "namespace": self.namespace});
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "work",
            "clusters": [{"name": "test", "cluster": cluster}], "users": [{"name": "them", "user": user}],
            "contexts": [{"name": "work", "context": context}]});
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub(super) fn command(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", kubeconfig)
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Returns the output, the error and the exit code.
    pub(super) async fn run(&self, kubeconfig: &Path, args: &[&str]) -> (String, String, i32) {
        let output = self.command(kubeconfig, args).output();
        let output = timeout(TEST_TIMEOUT, output).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        for message in [&out, &err] {
            let leaks_secret = ["s3cret", "eyJ", "PRIVATE"]
                .iter()
                .any(|word| message.contains(word));
            assert!(!leaks_secret, "{message}");
        }
        (out, err, output.status.code().unwrap())
    }

    /// Returns the error of `args`.
    pub(super) async fn fails(&self, kubeconfig: &Path, args: &[&str], code: i32) -> String {
        let (out, err, ended) = self.run(kubeconfig, args).await;
        assert_eq!((ended, &*out), (code, ""), "{err}");
        err
    }
}

/// `ray-relay connect`, and what it prints.
pub(super) struct Connect {
    _child: Child,
    pub(super) lines: Lines<BufReader<ChildStdout>>,
    pub(super) address: SocketAddr,
    pub(super) relay: String,
}

impl Connect {
    pub(super) async fn start(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0", "--json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = next(&mut lines).await;
        assert_eq!(first["event"], "listening", "{first}");
        let mut connect = Self {
            _child: child,
            lines,
            address: first["address"].as_str().unwrap().parse().unwrap(),
            relay: first["relay"].as_str().unwrap().to_owned(),
        };
        connect.event("connected").await;
        connect
    }

    pub(super) async fn event(&mut self, name: &str) -> Value {
        loop {
            let event = next(&mut self.lines).await;
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Sends a GET of `path`, whose response may be a stream.
    pub(super) async fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    pub(super) async fn get(&self, path: &str) -> String {
        let mut stream = self.ask(path).await;
        let mut all = String::new();
        let read = timeout(TEST_TIMEOUT, stream.read_to_string(&mut all)).await;
        read.unwrap().unwrap();
        all
    }
}

pub(super) async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = timeout(TEST_TIMEOUT, lines.next_line()).await;
    let line = line.unwrap().unwrap().expect("it prints");
    serde_json::from_str(&line).unwrap()
}

/// Reads until `expected` has arrived.
pub(super) async fn read_until(stream: &mut TcpStream, expected: &str) {
    let mut all = Vec::new();
    let found = timeout(TEST_TIMEOUT, async {
        while !String::from_utf8_lossy(&all).contains(expected) {
            assert_ne!(stream.read_buf(&mut all).await.unwrap(), 0, "it is over");
        }
    });
    found.await.expect("in time");
}
