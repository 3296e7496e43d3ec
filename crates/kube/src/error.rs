//! Why a relay in a Kubernetes cluster is not reached, in words, with the next step.
//!
//! kube's own errors quote input that holds secrets: a kubeconfig, the output of a credential plugin, an answer. So
//! their text is not shown, except for connection errors. Of an answer only the status and one plain word appear.

use std::borrow::Cow;
use std::error::Error;
use std::iter::successors;

use kube::client::AuthError;
use kube::config::KubeconfigError;

use super::answer::KubeAnswer;
use ray_relay_base::dial::{DialError, ProxyError, behind, tls_error};
use ray_relay_base::wire::text::{innermost_cause, shortened};

/// Bytes that a credential plugin may print.
pub(super) const MAX_PLUGIN_OUTPUT: usize = 1 << 20;

/// A shell's exit status for a program that SIGPIPE has ended.
const SIGPIPE_STATUS: i32 = 141;

/// Longest name, or word of a server, in messages, in characters.
pub(super) const MAX_NAME_CHARS: usize = 200;

const MAX_LISTED_NAMES: usize = 8;

/// A request to the API server, as a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// As in a Role.
    pub(super) verbs: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespace: String,
}

/// Why a relay in a Kubernetes cluster is not reached.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KubeError {
    /// There is no kubeconfig, or it cannot be read.
    #[error("there is no usable kubeconfig: {0}")]
    Kubeconfig(String),
    /// The kubeconfig lacks the requested context.
    #[error("the kubeconfig has no context {requested}{}", names(known))]
    NoContext {
        /// The requested context.
        requested: String,
        /// The contexts of the kubeconfig.
        known: Vec<String>,
    },
    /// Neither the kubeconfig nor the command line names a context.
    #[error("the kubeconfig has no current context{}", names(.0))]
    NoCurrentContext(Vec<String>),
    /// A host on the network path could impersonate the API server, or read the traffic.
    #[error("{server} is not asked: {why}")]
    Unsafe {
        /// Its address.
        server: String,
        /// The cause.
        why: &'static str,
    },
    /// The credential plugin returns no credential.
    #[error("the kubeconfig's credential plugin {command} {why}")]
    Plugin {
        /// The plugin's command, without arguments.
        command: String,
        /// How the plugin failed, without any of its output.
        why: String,
        /// The kubeconfig's hint on how to install the plugin.
        install: Option<String>,
    },
    /// There is no credential for another reason.
    #[error("the kubeconfig gives no credential: {0}")]
    Credential(String),
    /// The API server is not reached.
    #[error("cannot reach the Kubernetes API server {server}: {cause}")]
    Unreachable {
        /// Its address.
        server: String,
        /// The operating system's error message.
        cause: String,
    },
    /// The proxy does not reach the API server.
    #[error("cannot reach the Kubernetes API server {server}: {why}")]
    Proxy {
        /// Its address.
        server: String,
        /// The proxy's failure.
        why: ProxyError,
    },
    /// The API server's certificate is not trusted, or it rejects ours.
    #[error("no TLS with the Kubernetes API server {server}: {cause}")]
    Untrusted {
        /// Its address.
        server: String,
        /// The message of the TLS library.
        cause: String,
    },
    /// The API server rejects the credential.
    #[error("the Kubernetes API server {0} does not take the kubeconfig's credential")]
    Unauthorized(String),
    /// The user lacks a permission.
    #[error("you may not {} {} in namespace {}", permission.verbs, permission.resource, permission.namespace)]
    Forbidden {
        /// The permission.
        permission: Permission,
    },
    /// There is no Service of a relay.
    #[error("namespace {namespace} has no {}", no_service(service.as_deref()))]
    NoService {
        /// The namespace that was searched.
        namespace: String,
        /// The requested name.
        service: Option<String>,
    },
    /// There are several relays.
    #[error("namespace {namespace} has several relays{}", names(services))]
    Several {
        /// Their namespace.
        namespace: String,
        /// Their Services.
        services: Vec<String>,
    },
    /// The Service leads to no pod.
    #[error("Service {service} in namespace {namespace} {why}")]
    Nowhere {
        /// Its namespace.
        namespace: String,
        /// Its name.
        service: String,
        /// The cause.
        why: String,
    },
    /// No pod of the relay is ready.
    #[error("no pod behind Service {service} in namespace {namespace} is ready ({found})")]
    NoPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        service: String,
        /// The pods that exist instead.
        found: String,
    },
    /// The API server refuses the port-forward, or it failed.
    #[error("no port-forward to pod {pod} in namespace {namespace}: {why}")]
    NotForwarded {
        /// The pod's namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// Status and word of the answer, or the cause.
        why: String,
    },
    /// The API server issues no token for a ServiceAccount.
    #[error("no token for ServiceAccount {account} in namespace {namespace}: {why}")]
    NoToken {
        /// The account's namespace.
        namespace: String,
        /// Its name.
        account: String,
        /// The answer.
        why: KubeAnswer,
    },
    /// The API server refuses a request for another reason.
    #[error("the Kubernetes API server {server} answers {why} when asked to {} {}", permission.verbs, permission.resource)]
    Refused {
        /// Its address.
        server: String,
        /// The request.
        permission: Permission,
        /// The answer.
        why: KubeAnswer,
    },
    /// The server is not an API server.
    #[error("{server} does not answer like a Kubernetes API server when asked to {} {}", permission.verbs, permission.resource)]
    Strange {
        /// Its address.
        server: String,
        /// The request.
        permission: Permission,
    },
}

impl KubeError {
    /// Whether the cause may pass on its own.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoPod { .. } | Self::NotForwarded { .. } => true,
            Self::Refused { why, .. } | Self::NoToken { why, .. } => {
                matches!(why.status, Some(429 | 500..=599))
            }
            Self::Proxy { why, .. } => why.is_passing(),
            _ => false,
        }
    }

    /// Whether the user lacks the permission, or is rejected.
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Unauthorized(_) | Self::Forbidden { .. } => true,
            Self::NoToken { why, .. } => why.status == Some(403),
            _ => false,
        }
    }

    /// Whether the kubeconfig is at fault.
    pub fn is_misconfigured(&self) -> bool {
        matches!(
            self,
            Self::Kubeconfig(_)
                | Self::NoContext { .. }
                | Self::NoCurrentContext(_)
                | Self::Unsafe { .. }
                | Self::Plugin { .. }
                | Self::Credential(_)
                | Self::Untrusted { .. }
        )
    }

    /// Returns the cause alone, for a sentence of the caller's that names the API server.
    pub fn cause(&self) -> String {
        match self {
            Self::Kubeconfig(cause)
            | Self::Unreachable { cause, .. }
            | Self::Untrusted { cause, .. } => cause.clone(),
            Self::Proxy { why, .. } => why.to_string(),
            other => other.to_string(),
        }
    }

    /// The next step, as a sentence.
    pub fn hint(&self) -> Cow<'static, str> {
        let hint = match self {
            Self::Kubeconfig(_) => {
                "name one with --kubeconfig FILE or KUBECONFIG; `kubectl config view` shows which is read"
            }
            Self::NoContext { .. } | Self::NoCurrentContext(_) => {
                "choose one with --context NAME; `kubectl config get-contexts` lists them"
            }
            Self::Unsafe { .. } => {
                "give its cluster in the kubeconfig an https:// address, and certificate-authority-data in place of insecure-skip-tls-verify"
            }
            Self::Plugin {
                install: Some(install),
                ..
            } => {
                return Cow::Owned(format!("the kubeconfig says of it: {install}"));
            }
            Self::Plugin { .. } => {
                "install it, or log in with it; `kubectl get --raw /version` runs the same plugin"
            }
            Self::Credential(_) => "does `kubectl auth whoami` work?",
            Self::Unreachable { .. } => {
                "does `kubectl get --raw /version` work? It may take a VPN, or another --context"
            }
            Self::Proxy { why, .. } => return Cow::Owned(why.hint()),
            Self::Untrusted { .. } => {
                "is certificate-authority-data of its cluster in the kubeconfig, or tls-server-name, or your client certificate out of date? `kubectl get --raw /version` meets the same"
            }
            Self::Unauthorized(_) => {
                "log in again as you do for kubectl, until `kubectl auth whoami` works"
            }
            Self::Forbidden { permission } => {
                return Cow::Owned(format!(
                    "ask the cluster's operator for a Role in namespace {} with {} on {} (`ray-relay help laptop`, \"In Kubernetes\"), or name another one with --namespace",
                    permission.namespace, permission.verbs, permission.resource
                ));
            }
            Self::NoService {
                service: Some(_), ..
            } => {
                "is that its name? `kubectl get services` lists them; --namespace names another place"
            }
            Self::NoService { .. } => {
                "name where it is with --namespace NAME, or the Service itself with --kube-service NAME; `kubectl get services -A -l app.kubernetes.io/name=ray-relay` finds it"
            }
            Self::Several { .. } => "choose one with --kube-service NAME",
            Self::Nowhere { .. } => {
                "is that the relay's Service? name another one with --kube-service NAME"
            }
            Self::NoPod { namespace, .. } => {
                return Cow::Owned(format!(
                    "see why: `kubectl get pods -n {namespace} -l app.kubernetes.io/name=ray-relay`, then `kubectl describe pod`"
                ));
            }
            Self::NotForwarded { .. } => {
                "does `kubectl port-forward` to that pod work? The way there is from the API server to the pod's node (kubelet, port 10250)"
            }
            Self::NoToken { why, .. } if why.status == Some(403) => {
                "ask the cluster's operator for `create` on serviceaccounts/token of that name, or name another one with --as-service-account"
            }
            Self::NoToken { why, .. } if why.status == Some(404) => {
                "is that its name? `kubectl get serviceaccounts` lists them; --as-service-account NAMESPACE/NAME is one of another namespace"
            }
            Self::NoToken { .. } | Self::Refused { .. } => "see the API server's own log",
            Self::Strange { .. } => "is the server of that context in the kubeconfig one?",
        };
        Cow::Borrowed(hint)
    }

    /// Classifies a failed request to `server`.
    pub(super) fn of(server: &str, permission: &Permission, error: &kube::Error) -> Self {
        let server = server.to_owned();
        let permission = permission.clone();
        match error {
            kube::Error::Api(status) => match status.code {
                401 => Self::Unauthorized(server),
                403 => Self::Forbidden { permission },
                code => Self::Refused {
                    server,
                    permission,
                    why: KubeAnswer::of(code, &status.reason),
                },
            },
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Self::Strange { server, permission }
            }
            error => Self::before(server, error),
        }
    }

    /// Classifies a failure before `server` received a request.
    pub(super) fn before(server: String, error: &(dyn Error + 'static)) -> Self {
        let auth =
            successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref());
        if let Some(auth) = auth {
            return Self::of_credential(auth, None);
        }
        let cause = innermost_cause(error);
        match behind(error) {
            Some(DialError::Proxy(why)) => {
                let why = why.clone();
                return Self::Proxy { server, why };
            }
            Some(DialError::Unnamed(_)) => return Self::Untrusted { server, cause },
            _ => {}
        }
        match tls_error(error) {
            Some(_) => Self::Untrusted { server, cause },
            None => Self::Unreachable { server, cause },
        }
    }

    /// Explains why the kubeconfig has no usable credential. `plugin` holds its command and install hint.
    pub(super) fn of_credential(
        error: &AuthError,
        plugin: Option<(String, Option<String>)>,
    ) -> Self {
        let why = match error {
            AuthError::AuthExecStart(error) if error.kind() == std::io::ErrorKind::NotFound => {
                "is not there".to_owned()
            }
            AuthError::AuthExecStart(error) => format!("cannot be started: {error}"),
            AuthError::AuthExecRun { out, .. } => match out.status.code() {
                Some(127) => "is not there".to_owned(),
                Some(SIGPIPE_STATUS) => format!("prints more than {MAX_PLUGIN_OUTPUT} bytes"),
                _ => format!("has failed ({})", out.status),
            },
            AuthError::AuthExecParse(_) => "prints no ExecCredential".to_owned(),
            AuthError::ExecPluginFailed => "prints an ExecCredential without a status".to_owned(),
            AuthError::MalformedTokenExpirationDate(_) => {
                "prints an expirationTimestamp that is no time".to_owned()
            }
            AuthError::ReadTokenFile(cause, path) => {
                let path = shortened(&path.display().to_string(), MAX_NAME_CHARS);
                return Self::Credential(format!("its token file {path} cannot be read: {cause}"));
            }
            AuthError::InvalidBasicAuth(_) | AuthError::InvalidBearerToken(_) => {
                return Self::Credential("its token or password cannot be used".to_owned());
            }
            AuthError::Oidc(_) => {
                return Self::Credential(
                    "its auth-provider oidc has a token that has expired, and gets no other"
                        .to_owned(),
                );
            }
            _ => {
                return Self::Credential(
                    "its auth-provider or plugin is not supported; use a credential plugin (exec)"
                        .to_owned(),
                );
            }
        };
        let (command, install) = plugin.unwrap_or_else(|| ("(exec)".to_owned(), None));
        Self::Plugin {
            command,
            why,
            install,
        }
    }

    /// Explains why a kubeconfig is unusable.
    pub(super) fn of_kubeconfig(error: &KubeconfigError) -> Self {
        if let Some(why) = not_yaml(error) {
            return Self::Kubeconfig(why);
        }
        Self::Kubeconfig(match error {
            KubeconfigError::ReadConfig(cause, path) => {
                let path = shortened(&path.display().to_string(), MAX_NAME_CHARS);
                format!("{path} cannot be read: {cause}")
            }
            KubeconfigError::FindPath => "there is no home directory".to_owned(),
            KubeconfigError::LoadClusterOfContext(_) => {
                "the cluster of the context is not in it".to_owned()
            }
            KubeconfigError::MissingClusterUrl | KubeconfigError::ParseClusterUrl(_) => {
                "the cluster of the context has no usable server".to_owned()
            }
            KubeconfigError::LoadCertificateAuthority(_)
            | KubeconfigError::ParseCertificates(_) => {
                "the certificate authority of the cluster cannot be read".to_owned()
            }
            KubeconfigError::LoadClientCertificate(_) | KubeconfigError::LoadClientKey(_) => {
                "the client certificate or its key cannot be read".to_owned()
            }
            KubeconfigError::ParseProxyUrl(_) => "the proxy of the cluster is no URL".to_owned(),
            KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
                "the files of KUBECONFIG are of several versions".to_owned()
            }
            _ => "it is not understood".to_owned(),
        })
    }
}

/// Locates the error in a kubeconfig that is not YAML. The parser's own message quotes the file.
fn not_yaml(why: &KubeconfigError) -> Option<String> {
    let KubeconfigError::Parse(why) = why else {
        return None;
    };
    let at = why.location().map_or_else(String::new, |at| {
        format!(" (line {}, column {})", at.line(), at.column())
    });
    Some(format!("it cannot be read as YAML{at}"))
}

fn names(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let listed: Vec<_> = known
        .iter()
        .take(MAX_LISTED_NAMES)
        .map(|name| shortened(name, MAX_NAME_CHARS))
        .collect();
    let more = match known.len() > MAX_LISTED_NAMES {
        true => ", ...",
        false => "",
    };
    format!(": there are {}{more}", listed.join(", "))
}

fn no_service(service: Option<&str>) -> String {
    match service {
        Some(name) => format!("Service {name}"),
        None => "Service labelled app.kubernetes.io/name=ray-relay".to_owned(),
    }
}
