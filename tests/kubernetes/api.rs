//! Objects of an API server, as its administrator makes them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::{Method, Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::server::TEST_TIMEOUT;

/// The answer of the API server, or the status of its refusal.
pub(crate) type Answer = Result<Value, StatusCode>;

/// An API server, with a user's credentials.
pub(crate) struct Api(kube::Client);

/// Returns a ServiceAccount as the subject of a role binding.
pub(crate) fn service_account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

impl Api {
    pub(crate) async fn new(kubeconfig: &Path) -> Self {
        let file = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options).await;
        Self(kube::Client::try_from(config.unwrap()).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Merges `body` into what is there (RFC 7386).
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind).body(Body::from(body));
        let answer = self.0.send(request.unwrap()).await;
        // A server that is not up yet.
        let answer = answer.map_err(|_| StatusCode::BAD_GATEWAY)?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|_| StatusCode::BAD_GATEWAY)?.to_bytes();
        match status.is_success() {
            // Some answers, such as that of /readyz, are words.
            true => Ok(serde_json::from_slice(&body).unwrap_or(Value::Null)),
            false => Err(status),
        }
    }

    /// Waits until a GET of `path` matches; a refusal is an empty answer.
    pub(crate) async fn until(&self, path: &str, fits: impl Fn(&Answer) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let answer = self.get(path).await;
            if fits(&answer) {
                return answer.unwrap_or_default();
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "{path}: {answer:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes a namespace that no other test has, and returns its name.
    pub(crate) async fn namespace(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("team-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let object = json!({"metadata": {"name": name}});
        self.post("/api/v1/namespaces", &object).await.unwrap();
        name
    }

    pub(crate) async fn make_service_account(&self, namespace: &str, name: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let object = json!({"metadata": {"name": name}});
        self.post(&path, &object).await.unwrap();
    }

    /// A token of a ServiceAccount for `audience`; `None`: for the API server itself.
    pub(crate) async fn token(
        &self,
        namespace: &str,
        name: &str,
        audience: Option<&str>,
    ) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let audiences: Vec<&str> = audience.into_iter().collect();
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": 3600}});
        let made = self.post(&path, &request).await.unwrap();
        made["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A RayCluster of KubeRay's sample shape, the dashboard of its head at `port`. It has no status yet.
    pub(crate) async fn make_ray_cluster(&self, namespace: &str, name: &str, port: u16) {
        let path = format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters");
        let ports = json!([{"name": "gcs-server", "containerPort": 6379}, {"name": "dashboard", "containerPort": port}]);
        let container =
            json!({"name": "ray-head", "image": "rayproject/ray:2.53.0", "ports": ports});
        let object = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
            "spec": {"rayVersion": "2.53.0", "authOptions": {"mode": "disabled"},
                "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}}});
        self.post(&path, &object).await.unwrap();
    }

    /// Writes the status of a RayCluster as KubeRay's operator does: the Service of its head, and whether that serves.
    pub(crate) async fn set_status(
        &self,
        namespace: &str,
        name: &str,
        service: &str,
        is_ready: bool,
    ) {
        let path = format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}/status");
        let (state, ready) = match is_ready {
            true => ("ready", "True"),
            false => ("", "False"),
        };
        let condition = json!({"type": "HeadPodReady", "status": ready, "reason": "HeadPodRunningAndReady",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status =
            json!({"state": state, "head": {"serviceName": service}, "conditions": [condition]});
        self.patch(&path, &json!({"status": status})).await.unwrap();
    }

    /// A Role of `namespace`; of all, a ClusterRole. Each rule is the group, the resource, its names (all where there are none) and
    /// the verbs, as words.
    pub(crate) async fn make_role(
        &self,
        namespace: Option<&str>,
        name: &str,
        rules: &[(&str, &str, &str, &str)],
    ) {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(Into::into).collect() };
        let rule = |(group, resource, names, verbs): &(&str, &str, &str, &str)| {
            json!({"apiGroups": [group], "resources": words(resource), "resourceNames": words(names),
                "verbs": words(verbs)})
        };
        let rules: Vec<Value> = rules.iter().map(rule).collect();
        let (path, kind) = rbac(namespace, "roles");
        let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "rules": rules});
        self.post(&path, &object).await.unwrap();
    }

    /// Binds the ClusterRole or, in a namespace, the Role `role` to `whom`, and returns what [`Self::delete`] takes it away by.
    pub(crate) async fn bind(
        &self,
        namespace: Option<&str>,
        role: (&str, &str),
        subject: Value,
    ) -> String {
        let (kind, role) = role;
        let (path, binding) = rbac(namespace, "rolebindings");
        let user = subject["name"].as_str().unwrap();
        let of = subject["namespace"].as_str().unwrap_or_default();
        let name = format!("{role}-{}-{of}-{user}", namespace.unwrap_or_default());
        let name = name.replace(':', "-");
        let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": [subject]});
        self.post(&path, &object).await.unwrap();
        format!("{path}/{name}")
    }
}

/// Returns the path and kind of Roles or RoleBindings, in a namespace or in all.
fn rbac(namespace: Option<&str>, plural: &str) -> (String, &'static str) {
    let group = "/apis/rbac.authorization.k8s.io/v1";
    match (namespace, plural) {
        (Some(namespace), "roles") => (format!("{group}/namespaces/{namespace}/roles"), "Role"),
        (Some(namespace), _) => (
            format!("{group}/namespaces/{namespace}/rolebindings"),
            "RoleBinding",
        ),
        (None, "roles") => (format!("{group}/clusterroles"), "ClusterRole"),
        (None, _) => (format!("{group}/clusterrolebindings"), "ClusterRoleBinding"),
    }
}
