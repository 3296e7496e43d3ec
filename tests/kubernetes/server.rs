//! A kube-apiserver with its etcd.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ray_relay_base::wire::tcp::free_port;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::api::Api;
use crate::certificates::Certificates;
use crate::process::Held;

/// The environment variable with the directory of the binaries.
const ASSETS_ENV: &str = "KUBEBUILDER_ASSETS";

/// A machine that has other things to do takes its time.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// Disables unused APIs, which saves a quarter of the start. The rest is its own work, and a second of waiting before it makes
/// the default roles.
pub(crate) const SOON_UP: [&str; 2] = [
    "--enable-priority-and-fairness=false",
    "--runtime-config=api/beta=false",
];

/// A line that `cargo test` shows at once (it holds back only what the print macros write).
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "kubernetes: {text}");
}

/// Returns the path of the binary `name`, if it exists.
pub(crate) fn binary(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(ASSETS_ENV).map(PathBuf::from);
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty())?;
    Some(folder.join(name))
}

/// A running API server. It ends when it is dropped, and with this process.
pub(crate) struct Server {
    binary: PathBuf,
    /// In addition to the common ones.
    flags: &'static [&'static str],
    port: u16,
    etcd_port: u16,
    /// `None`: it is down. Before etcd, which it would wait for.
    api: Mutex<Option<Held>>,
    _etcd: Held,
    pub(crate) certificates: Certificates,
    dir: tempfile::TempDir,
}

impl Server {
    /// The shared server of this process, which is never restarted. `None`, with a message, if this machine has none.
    pub(crate) async fn shared() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<Server>> = OnceCell::const_new();
        SHARED.get_or_init(|| Self::start(&[])).await.as_ref()
    }

    /// A separate server that the test may restart, with these additional flags.
    pub(crate) async fn start(flags: &'static [&'static str]) -> Option<Self> {
        let Some(folder) = binary("") else {
            say(format_args!(
                "SKIPPED a test: {ASSETS_ENV} names no folder with kube-apiserver and etcd (no failure under CI either: most machines have none)"
            ));
            return None;
        };
        let began = Instant::now();
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::new(dir.path());
        let (port, etcd_port) = (free_port().unwrap(), free_port().unwrap());
        let etcd = etcd(&folder.join("etcd"), etcd_port, dir.path());
        let server = Self {
            binary: folder.join("kube-apiserver"),
            flags,
            port,
            etcd_port,
            api: Mutex::new(None),
            _etcd: etcd,
            certificates,
            dir,
        };
        server.up().await;
        server.install_kuberay().await;
        let seconds = began.elapsed().as_secs_f64();
        say(format_args!("an API server is up ({seconds:.1} s)"));
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// `ca.crt` and the other files of [`Certificates`].
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A kubeconfig of the client certificate `FILE.crt` and `FILE.key`; YAML, of which JSON is a part.
    pub(crate) fn kubeconfig(&self, file: &str) -> PathBuf {
        let path = self.file(&format!("{file}.kubeconfig"));
        let user = json!({"client-certificate": self.file(&format!("{file}.crt")), "client-key": self.file(&format!("{file}.key"))});
        let cluster = json!({"server": self.url(), "certificate-authority": self.file("ca.crt")});
        let context = json!({"cluster": "test", "user": file, "namespace": "default"});
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}], "users": [{"name": file, "user": user}],
            "contexts": [{"name": "test", "context": context}]});
        // Renames the file into place: another test may read it now.
        let new = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
        std::fs::write(new.path(), config.to_string()).unwrap();
        new.persist(&path).unwrap();
        path
    }

    /// The API server with an administrator's credentials, for one test and its runtime.
    pub(crate) async fn api(&self) -> Api {
        Api::new(&self.kubeconfig("admin")).await
    }

    /// Kills it.
    pub(crate) fn down(&self) {
        self.api.lock().take();
    }

    /// Starts it again, and waits until it says that it is ready. What is right is answered with 403 for a while before that, and
    /// sometimes after.
    pub(crate) async fn up(&self) {
        *self.api.lock() = Some(self.apiserver());
        let (api, began) = (self.api().await, Instant::now());
        while api.get("/readyz").await.is_err() {
            if began.elapsed() > TEST_TIMEOUT {
                let log = std::fs::read_to_string(self.file("apiserver.log"));
                let log = log.unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(5).collect();
                panic!("the API server does not come up: {lines:#?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn apiserver(&self) -> Held {
        let file = |name: &str| self.file(name).display().to_string();
        let flags = [
            (
                "etcd-servers",
                format!("http://127.0.0.1:{}", self.etcd_port),
            ),
            ("bind-address", "127.0.0.1".to_owned()),
            ("advertise-address", "127.0.0.1".to_owned()),
            ("secure-port", self.port.to_string()),
            ("cert-dir", self.dir.path().display().to_string()),
            ("tls-cert-file", file("apiserver.crt")),
            ("tls-private-key-file", file("apiserver.key")),
            ("client-ca-file", file("ca.crt")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-cluster-ip-range", "10.96.0.0/16".to_owned()),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".to_owned(),
            ),
            ("service-account-key-file", file("sa.pub")),
            ("service-account-signing-key-file", file("sa.key")),
            ("api-audiences", "https://kubernetes.default.svc".to_owned()),
            // The test server needs no ServiceAccount controller and no leader election.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            ("endpoint-reconciler-type", "none".to_owned()),
        ];
        let flags = flags.map(|(name, value)| format!("--{name}={value}"));
        let more = self.flags.iter().map(|flag| (*flag).to_owned());
        let flags: Vec<String> = flags.into_iter().chain(more).collect();
        Held::start(&self.binary, &flags, &self.file("apiserver.log"))
    }

    /// KubeRay's kinds, without what its operator fills in and checks.
    async fn install_kuberay(&self) {
        let api = self.api().await;
        for (plural, kind) in [("rayclusters", "RayCluster"), ("rayjobs", "RayJob")] {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}});
            let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
            let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.ray.io")},
                "spec": {"group": "ray.io", "scope": "Namespaced", "names": names, "versions": [version]}});
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            api.post(path, &crd).await.unwrap();
            let path = format!("/apis/ray.io/v1/{plural}");
            api.until(&path, Result::is_ok).await;
        }
    }
}

fn etcd(binary: &Path, port: u16, dir: &Path) -> Held {
    let address = format!("http://127.0.0.1:{port}");
    let peers = format!("http://127.0.0.1:{}", free_port().unwrap());
    let flags = [
        ("data-dir", dir.join("etcd").display().to_string()),
        ("listen-client-urls", address.clone()),
        ("advertise-client-urls", address),
        ("listen-peer-urls", peers.clone()),
        ("initial-advertise-peer-urls", peers.clone()),
        ("initial-cluster", format!("default={peers}")),
        ("unsafe-no-fsync", "true".to_owned()),
    ];
    let flags = flags.map(|(name, value)| format!("--{name}={value}"));
    Held::start(binary, &flags, &dir.join("etcd.log"))
}
