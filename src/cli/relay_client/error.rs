//! Why a relay gave no usable answer, and what to do about it.

use std::borrow::Cow;

use hyper::StatusCode;

use crate::cli::relay_token::RelayTokenError;
use ray_relay_base::dial::{DialError, ProxyError, tls_error};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::text::innermost_cause;
use ray_relay_kube::KubeError;

/// Why a relay gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum RelayError {
    /// No connection, or it broke, or no answer came within the deadline.
    #[error("cannot reach a relay at {relay}: {cause}")]
    Unreachable {
        /// The URL of the relay.
        relay: String,
        /// The operating system's error message.
        cause: String,
    },
    /// The proxy from the environment does not lead there.
    #[error("cannot reach a relay at {relay}: {why}")]
    Proxy {
        /// The URL of the relay.
        relay: String,
        /// The proxy's failure.
        why: ProxyError,
    },
    /// The relay's Kubernetes cluster provides no access, or no token.
    #[error("{0}")]
    Kube(#[from] Box<KubeError>),
    /// The certificate is not trusted, or there are no authorities to verify it.
    #[error("cannot trust {relay}: {cause}")]
    Untrusted {
        /// The URL of the relay.
        relay: String,
        /// The operating system's error message.
        cause: String,
    },
    /// The client's own certificate or key cannot be used.
    #[error("{file} {cause}")]
    Identity {
        /// The path of the client certificate's file.
        file: String,
        /// The error in it.
        cause: String,
    },
    /// The relay requires a client certificate, or another one.
    #[error("the relay at {relay} refuses the connection: {cause}")]
    Unrecognised {
        /// The URL of the relay.
        relay: String,
        /// The TLS library's error.
        cause: String,
    },
    /// A Ray dashboard, which has port 8265, answers in place of a relay.
    #[error("{relay} is a Ray dashboard, not a relay")]
    Dashboard {
        /// The requested URL.
        relay: String,
    },
    /// An HTTP server that is no relay.
    #[error("{relay} does not answer like a relay: {found}")]
    NotARelay {
        /// The requested URL.
        relay: String,
        /// Its answer, which is not a relay's.
        found: String,
    },
    /// The relay does not support the request.
    #[error(
        "the relay at {relay} is older than this program, and takes no command for many tasks at once"
    )]
    Older {
        /// The URL of the relay.
        relay: String,
    },
    /// There is no token to send.
    #[error(transparent)]
    Token(#[from] RelayTokenError),
    /// The relay's own refusal. With 401 and 403 it requires a token, or another one, or one that permits more.
    #[error("the relay at {relay} answers {status}: {message}")]
    Refused {
        /// The URL of the relay.
        relay: String,
        /// HTTP status of the refusal.
        status: StatusCode,
        /// The relay's message, cleaned for display.
        message: String,
    },
}

impl RelayError {
    /// Converts a failure to connect to `relay`.
    pub(in crate::cli) fn of(relay: &RelayUrl, error: &DialError) -> Self {
        let cause = innermost_cause(error);
        let not_trusted = match error {
            DialError::Proxy(why) => {
                return Self::Proxy {
                    relay: relay.to_string(),
                    why: why.clone(),
                };
            }
            DialError::Unnamed(_) => Some(Self::Untrusted {
                relay: relay.to_string(),
                cause: cause.clone(),
            }),
            DialError::Tls(error) => refusal(relay, error, &cause),
            DialError::Forward(why) => why
                .downcast_ref::<KubeError>()
                .map(|why| Self::Kube(Box::new(why.clone()))),
            DialError::Unreachable(_) => None,
        };
        not_trusted.unwrap_or_else(|| Self::Unreachable {
            relay: relay.to_string(),
            cause,
        })
    }

    /// Converts the answer of a relay that does not have `path`. Other refusals may quote the path, or what the user
    /// named.
    pub(in crate::cli) fn or_older(self, path: &str) -> Self {
        let missing = format!("there is no {path} ");
        match self {
            Self::Refused {
                relay,
                status: StatusCode::NOT_FOUND,
                message,
            } if message.starts_with(&missing) => Self::Older { relay },
            why => why,
        }
    }

    /// Whether no relay was reached.
    pub(in crate::cli) fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Proxy { .. } => true,
            Self::Kube(why) => !(why.is_not_permitted() || why.is_misconfigured()),
            _ => false,
        }
    }

    /// Whether the settings for reaching a relay are wrong.
    pub(in crate::cli) fn is_misconfigured(&self) -> bool {
        matches!(self, Self::Kube(why) if why.is_misconfigured())
    }

    /// Whether a retry may succeed: no relay was reached, it is overloaded, or a proxy before it does not reach it.
    pub(in crate::cli) fn is_passing(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Proxy { why, .. } => why.is_passing(),
            Self::Kube(why) => why.is_passing(),
            error => error.is_unreachable(),
        }
    }

    /// Whether the relay requires a credential, or refuses the one it got.
    pub(in crate::cli) fn is_not_permitted(&self) -> bool {
        match self {
            Self::Unrecognised { .. } => true,
            Self::Kube(why) => why.is_not_permitted(),
            Self::Refused { status, .. } => {
                matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            }
            _ => false,
        }
    }

    /// Whether the requested object does not exist, or is hidden.
    pub(in crate::cli) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// The next step, as a sentence.
    pub(in crate::cli) fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Unreachable { .. } => {
                "start one with `ray-relay serve`, or forward its port with `kubectl port-forward svc/ray-relay 5678`, or name it with --relay URL, or reach one in Kubernetes with --kube; `ray-relay doctor` names the link that is broken"
            }
            Self::Proxy { why, .. } => return Some(Cow::Owned(why.hint())),
            Self::Kube(why) => return Some(why.hint()),
            Self::Untrusted { .. } => {
                "name the file of the CA that signed it, or of the certificate itself, with --ca-file FILE or \
                 RAY_RELAY_CA_FILE"
            }
            Self::Unrecognised { .. } => {
                "show a certificate of an authority that it trusts with --client-cert FILE and --client-key FILE"
            }
            Self::Dashboard { relay } => {
                return Some(Cow::Owned(format!(
                    "start a relay for it with `ray-relay serve --ray-address {relay}`, and name that one with --relay URL"
                )));
            }
            Self::Older { .. } => {
                "update the relay, or give the id of one task, as `ray-relay list` shows it, without --all, --job and --ranks"
            }
            Self::NotARelay { .. } => {
                "name a relay with --relay URL; its own port is 5678 unless configured otherwise"
            }
            // A relay without a URL is in Kubernetes.
            Self::Refused { relay, status, .. }
                if *status == StatusCode::UNAUTHORIZED && !relay.contains("://") =>
            {
                "try --as-service-account NAME with one that may debug, or give a token of the relay's with --token-file FILE or RAY_RELAY_TOKEN. The relay takes a kubeconfig's own token only where `kubernetes.audiences` has the API server's audience; a client certificate is no token"
            }
            Self::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED => {
                "give a token with --token-file FILE or RAY_RELAY_TOKEN"
            }
            Self::Identity { .. } | Self::Token(_) | Self::Refused { .. } => return None,
        };
        Some(Cow::Borrowed(hint))
    }
}

/// Classifies `error` if one side rejects the other's certificate; `cause` is its text.
pub(in crate::cli) fn refusal(
    relay: &RelayUrl,
    error: &(dyn std::error::Error + 'static),
    cause: &str,
) -> Option<RelayError> {
    let (relay, cause) = (relay.to_string(), cause.to_owned());
    match tls_error(error)? {
        rustls::Error::InvalidCertificate(_) => Some(RelayError::Untrusted { relay, cause }),
        error if wants_certificate(error) => Some(RelayError::Unrecognised { relay, cause }),
        _ => None,
    }
}

/// Whether the relay's TLS rejects the client's certificate, or misses one.
fn wants_certificate(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::AlertReceived(
            Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::DecryptError
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_path_means_an_older_relay() {
        let path = "/relay/v1/jobs";
        let is_older = |status: u16, message: &str| {
            let refused = RelayError::Refused {
                relay: "http://relay".to_owned(),
                status: StatusCode::from_u16(status).unwrap_or_default(),
                message: message.to_owned(),
            };
            matches!(refused.or_older(path), RelayError::Older { .. })
        };
        let missing = "there is no /relay/v1/jobs here; what exists is /relay/v1/breakpoints";
        assert!(is_older(404, missing));
        for (status, message) in [
            (400, "the only parameter of /relay/v1/jobs is job"),
            (404, "no job is called /relay/v1/jobs; name it by its id"),
            (404, "there is no /relay/v1/jobs-of-ann here"),
            (409, "several jobs run nightly: /relay/v1/jobs"),
            (409, missing),
        ] {
            assert!(!is_older(status, message), "{status} {message}");
        }
    }
}
