//! The identifier of a principal's credential, and how to obtain more permissions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Scope;

/// Identifies the credential of a principal, without containing it. `Display` goes to logs and audit lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialId {
    /// Authentication is off.
    None,
    /// A token, by its `jti`.
    Token {
        /// The `jti` of the token.
        id: String,
    },
    /// A client certificate, by its SHA-256 in hex.
    Certificate {
        /// The fingerprint in hex.
        fingerprint: String,
    },
    /// A token that Kubernetes accepts, by its SHA-256 in hex, cut to 16 characters.
    Kubernetes {
        /// The fingerprint in hex.
        fingerprint: String,
    },
}

impl CredentialId {
    /// Returns the part that distinguishes it from others of its kind.
    pub fn id(&self) -> &str {
        match self {
            Self::None => "",
            Self::Token { id } => id,
            Self::Certificate { fingerprint } | Self::Kubernetes { fingerprint } => fingerprint,
        }
    }

    /// Describes how a user with this credential can obtain the missing `scope`.
    pub(super) fn remedy(&self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::Token { .. }, _) => "ask the issuer of your token",
            (Self::Certificate { .. }, _) => {
                "ask the relay's operator, whose policy says what your certificate may do"
            }
            (Self::Kubernetes { .. }, _) => {
                "ask for a role in Kubernetes that grants it, as far as the relay's policy lets it"
            }
            (Self::None, Scope::Attach) => {
                "this relay authenticates no client: `dap.allow_attach` in its configuration allows it to all"
            }
            (Self::None, Scope::Terminate) => {
                "this relay authenticates no client: `dap.allow_terminate` in its configuration allows it to all"
            }
            (Self::None, _) => "this relay authenticates no client, and gives it to none",
        }
    }
}

impl fmt::Display for CredentialId {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_token_holders_are_referred_to_their_issuer() {
        let id = || "x".to_owned();
        for (credential, has_token) in [
            (CredentialId::None, false),
            (CredentialId::Token { id: id() }, true),
            (CredentialId::Certificate { fingerprint: id() }, false),
            (CredentialId::Kubernetes { fingerprint: id() }, false),
        ] {
            for scope in Scope::ALL {
                let remedy = credential.remedy(scope);
                assert_eq!(
                    remedy.contains("issuer of your token"),
                    has_token,
                    "{remedy}"
                );
                // The text after the last semicolon of a refusal is its next step.
                assert!(!remedy.contains("; "), "{remedy}");
            }
        }
    }
}
