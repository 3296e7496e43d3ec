//! What a credential brings along for deciding what its holder may do.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{Access, BreakpointSelector, Policy, Rule, Scope, Scopes};

/// From a credential. Kept with the principal, because tickets carry it on: it is written into them as it is here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialGrants {
    /// Groups, for the policy file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What the credential itself is limited to. `None`: it says nothing about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<GrantLimit>,
}

/// The scopes and the selector of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantLimit {
    /// `None`: only narrowed; the policy file says what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// With which breakpoints.
    #[serde(flatten)]
    pub selector: BreakpointSelector,
}

impl CredentialGrants {
    /// What `subject` may do. With a policy file: what it says, as far as the credential is not limited further.
    /// Without: what the credential says, and nothing where it says nothing.
    pub(crate) fn access(&self, subject: &str, policy: Option<&Policy>) -> Access {
        match (policy, &self.limit) {
            (Some(policy), None) => policy.access(subject, &self.groups),
            (Some(policy), Some(limit)) => {
                let all = Scope::ALL.into_iter().fold(Scopes::NONE, Scopes::with);
                policy
                    .access(subject, &self.groups)
                    .limited(limit.scopes.unwrap_or(all), limit.selector.clone())
            }
            (None, Some(limit)) => {
                let rule = limit.scopes.map(|scopes| Rule {
                    scopes,
                    selector: limit.selector.clone(),
                    ..Rule::default()
                });
                Access::new(rule.into_iter().map(Arc::new).collect())
            }
            (None, None) => Access::default(),
        }
    }
}
