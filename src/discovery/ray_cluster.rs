//! The parts of a RayCluster (`ray.io/v1`) that the relay reads. The rest, such as the pods, is skipped.

use std::fmt;

use serde::Deserialize;

/// Port of Ray's dashboard, if the head's container declares none.
const DASHBOARD_PORT: u16 = 8265;

/// Prefix, before the RayCluster's name, of the Secret with its workers' certificate. The head's certificate would work
/// too, but with it the relay could impersonate the head.
const WORKER_CERTIFICATE: &str = "ray-worker-secret";

/// Maximum length of a name that KubeRay turns into a Secret's.
const MAX_SECRET_NAME_CHARS: usize = 50;

/// A RayCluster: its head, and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RayCluster {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Creation time, as the API server formats it: it sorts as text.
    pub(super) created: String,
    /// The Service of its head.
    pub(super) service: Option<String>,
    /// Port of its dashboard.
    pub(super) port: u16,
    /// The Secret with its token; `None` if it needs none.
    pub(super) secret: Option<String>,
    /// Whether its head verifies tokens with the API server, and has none of its own.
    pub(super) takes_kubernetes_tokens: bool,
    /// The Secret with the certificate of its workers; `None` if KubeRay creates none.
    pub(super) tls_secret: Option<String>,
    /// The RayJob that owns it.
    pub(super) ray_job: Option<String>,
    pub(super) state: ClusterPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterPhase {
    /// The head's pod serves.
    Ready,
    /// It is starting, or fails to start.
    Pending,
    /// It has no pods, or is being deleted.
    Over,
}

/// The object on the wire. Unknown fields are skipped.
#[derive(Deserialize, Clone)]
pub(super) struct RayClusterObject {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    /// Absent in a bookmark.
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize, Clone)]
struct Owner {
    kind: String,
    name: String,
}

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    suspend: Option<bool>,
    auth_options: Option<AuthOptions>,
    tls_options: Option<TlsOptions>,
    head_group_spec: Option<HeadGroup>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
struct AuthOptions {
    mode: Option<String>,
    secret_name: Option<String>,
    enable_k8s_token_auth: Option<bool>,
}

impl AuthOptions {
    fn is_disabled(&self) -> bool {
        self.mode.as_deref() == Some("disabled")
    }

    /// KubeRay 1.6 and later, Ray 2.55 and later.
    fn takes_kubernetes_tokens(&self) -> bool {
        !self.is_disabled() && self.enable_k8s_token_auth == Some(true)
    }
}

/// KubeRay 1.7 and later, with its feature gate RayClusterMTLS.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct TlsOptions {
    enabled: Option<bool>,
}

#[derive(Deserialize, Clone)]
struct HeadGroup {
    #[serde(default)]
    template: Template,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct Template {
    spec: Option<Pod>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct Pod {
    containers: Option<Vec<Container>>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct Container {
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    name: Option<String>,
    container_port: i64,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct Status {
    state: Option<String>,
    head: Option<HeadStatus>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
struct HeadStatus {
    service_name: Option<String>,
}

#[derive(Deserialize, Clone)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl RayClusterObject {
    /// The version of the object, or of the whole list for a bookmark.
    pub(super) fn resource_version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }

    pub(super) fn read(self) -> RayCluster {
        let Self {
            metadata,
            spec,
            status,
        } = self;
        let state = state(&metadata, &spec, &status);
        let port = dashboard_port(&spec).unwrap_or(DASHBOARD_PORT);
        let takes_kubernetes_tokens = spec
            .auth_options
            .as_ref()
            .is_some_and(AuthOptions::takes_kubernetes_tokens);
        let secret = spec
            .auth_options
            .and_then(|auth| secret(auth, &metadata.name));
        let has_tls = spec.tls_options.and_then(|tls| tls.enabled) == Some(true);
        let mut owners = metadata.owner_references.into_iter().flatten();
        let of_job = owners.find(|owner| owner.kind == "RayJob");
        RayCluster {
            namespace: metadata.namespace,
            created: metadata.creation_timestamp.unwrap_or_default(),
            service: status.head.and_then(|head| head.service_name),
            port,
            secret,
            takes_kubernetes_tokens,
            tls_secret: has_tls.then(|| format!("{WORKER_CERTIFICATE}-{}", metadata.name)),
            ray_job: of_job.map(|owner| owner.name),
            name: metadata.name,
            state,
        }
    }
}

fn state(metadata: &Metadata, spec: &Spec, status: &Status) -> ClusterPhase {
    let state = status.state.as_deref().unwrap_or_default();
    if metadata.deletion_timestamp.is_some() || spec.suspend == Some(true) || state == "suspended" {
        return ClusterPhase::Over;
    }
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = match conditions.find(|condition| condition.kind == "HeadPodReady") {
        Some(condition) => condition.status == "True",
        // KubeRay has conditions since 1.2; before, it had only the state.
        None => state == "ready",
    };
    match is_ready {
        true => ClusterPhase::Ready,
        false => ClusterPhase::Pending,
    }
}

/// The port called `dashboard` of Ray's container, which is the first. The head's Service uses the same.
fn dashboard_port(spec: &Spec) -> Option<u16> {
    let pod = spec.head_group_spec.as_ref()?.template.spec.as_ref()?;
    let ports = pod.containers.as_ref()?.first()?.ports.as_ref()?;
    let port = ports
        .iter()
        .find(|port| port.name.as_deref() == Some("dashboard"))?;
    u16::try_from(port.container_port)
        .ok()
        .filter(|port| *port > 0)
}

/// The Secret from which KubeRay passes the token to Ray's containers (1.5.1 and later).
fn secret(auth: AuthOptions, cluster: &str) -> Option<String> {
    if auth.is_disabled() || auth.takes_kubernetes_tokens() {
        return None;
    }
    let named = auth.secret_name.filter(|name| !name.is_empty());
    Some(named.unwrap_or_else(|| own_secret(cluster)))
}

/// Name of the Secret that KubeRay creates for `cluster`: the end of a long name, beginning with a letter.
fn own_secret(cluster: &str) -> String {
    let start = cluster.len().saturating_sub(MAX_SECRET_NAME_CHARS);
    let name = cluster.get(start..).unwrap_or(cluster);
    match name.strip_prefix(|c: char| c.is_ascii_digit() || c.is_ascii_punctuation()) {
        Some(rest) => format!("r{rest}"),
        None => name.to_owned(),
    }
}

impl fmt::Display for RayCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
