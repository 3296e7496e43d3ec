//! Who a connection or request belongs to.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::sleep;

use super::revocation::RevocationList;
use crate::policy::{Access, Rule, Scopes};

/// Longest wait before the clock is looked at again: it may be set while somebody waits.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// By what a principal was recognised. Never the credential itself; `Display` goes to logs and audit lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nobody is authenticated here.
    None,
    /// A token, by its `jti`.
    Token {
        /// `jti`.
        id: String,
    },
    /// A client certificate, by the SHA-256 of it in hex.
    Certificate {
        /// Fingerprint.
        fingerprint: String,
    },
    /// A token that Kubernetes vouched for, by the SHA-256 of it in hex, cut to 16 characters.
    Kubernetes {
        /// Fingerprint.
        fingerprint: String,
    },
}

impl Credential {
    /// What tells it from others of its kind.
    pub fn id(&self) -> &str {
        match self {
            Self::None => "",
            Self::Token { id } => id,
            Self::Certificate { fingerprint } | Self::Kubernetes { fingerprint } => fingerprint,
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::None => return f.write_str("none"),
            Self::Token { .. } => "token",
            Self::Certificate { .. } => "certificate",
            Self::Kubernetes { .. } => "kubernetes",
        };
        write!(f, "{kind}:{}", self.id())
    }
}

/// Why a principal's time is over. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Its credential expired.
    #[error("your token has expired")]
    Expired,
    /// It was revoked.
    #[error("your token was revoked")]
    Revoked,
}

/// Somebody who was recognised, and what that person may do. Cheap to clone.
#[derive(Clone)]
pub struct Principal(Arc<Inner>);

struct Inner {
    subject: String,
    credential: Credential,
    expires: Option<SystemTime>,
    access: Access,
    revocations: Option<watch::Receiver<Arc<RevocationList>>>,
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.subject, self.0.credential)
    }
}

impl Principal {
    /// Everybody, where nobody is authenticated: all but ending worker processes.
    pub fn anonymous() -> Self {
        let everything = Rule {
            scopes: Scopes::ALL_BUT_TERMINATE,
            ..Rule::default()
        };
        Self(Arc::new(Inner {
            subject: "anonymous".to_owned(),
            credential: Credential::None,
            expires: None,
            access: Access::new(vec![Arc::new(everything)]),
            revocations: None,
        }))
    }

    /// For the authenticator: `subject` was recognised by `credential`.
    pub(crate) fn recognised(
        subject: String,
        credential: Credential,
        expires: Option<SystemTime>,
        access: Access,
        revocations: watch::Receiver<Arc<RevocationList>>,
    ) -> Self {
        Self(Arc::new(Inner {
            subject,
            credential,
            expires,
            access,
            revocations: Some(revocations),
        }))
    }

    /// The name: `sub` of a token, SAN of a certificate, user of Kubernetes. Cleaned for display.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// The name where somebody was told apart from others, `None` for everybody.
    pub fn known_subject(&self) -> Option<String> {
        (!self.is_anonymous()).then(|| self.0.subject.clone())
    }

    /// By what it was recognised.
    pub fn credential(&self) -> &Credential {
        &self.0.credential
    }

    /// When its time is over by itself.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.expires
    }

    /// What it may do.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// Nobody was authenticated.
    pub fn is_anonymous(&self) -> bool {
        self.0.credential == Credential::None
    }

    /// Whether its time is over now.
    pub fn is_over(&self) -> Option<Ended> {
        let revoked = |list: &watch::Receiver<Arc<RevocationList>>| {
            list.borrow().revokes(&self.0.subject, &self.0.credential)
        };
        if self.0.revocations.as_ref().is_some_and(revoked) {
            return Some(Ended::Revoked);
        }
        let expired = self.0.expires.is_some_and(|at| at <= SystemTime::now());
        expired.then_some(Ended::Expired)
    }

    /// Resolves when its time is over. Cancel safe; never resolves for somebody who cannot end.
    pub async fn ended(&self) -> Ended {
        let mut revocations = self.0.revocations.clone();
        loop {
            if let Some(ended) = self.is_over() {
                return ended;
            }
            let changed = async {
                match &mut revocations {
                    Some(list) => list.changed().await,
                    None => std::future::pending().await,
                }
            };
            let expiry = async {
                match self.0.expires {
                    Some(at) => {
                        let left = at.duration_since(SystemTime::now()).unwrap_or_default();
                        sleep(left.min(LOOK_AGAIN)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                closed = changed => if closed.is_err() {
                    // The authenticator is gone: the process ends.
                    revocations = None;
                },
                () = expiry => {}
            }
        }
    }
}
