//! What a credential brings along for deciding what its holder may do.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{Access, BreakpointSelector, Pattern, Policy, Rule, Scope, Scopes};

/// From a credential. Kept with the principal, because tickets carry it on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialGrants {
    /// Groups, for the policy file.
    pub groups: Vec<String>,
    /// What the credential itself is limited to. `None`: it says nothing about that.
    pub limit: Option<GrantLimit>,
}

/// The scopes and the selector of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantLimit {
    /// `None`: only narrowed; the policy file says what is allowed.
    pub scopes: Option<Scopes>,
    /// With which breakpoints.
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
            (
                None,
                Some(GrantLimit {
                    scopes: Some(scopes),
                    selector,
                }),
            ) => Access::new(vec![Arc::new(Rule {
                scopes: *scopes,
                selector: selector.clone(),
                ..Rule::default()
            })]),
            (None, _) => Access::new(Vec::new()),
        }
    }
}

/// As it is written into a ticket.
#[derive(Serialize, Deserialize)]
pub(super) struct WrittenGrants {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<WrittenGrantLimit>,
}

#[derive(Serialize, Deserialize)]
struct WrittenGrantLimit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<String>,
    clusters: Vec<String>,
    jobs: Vec<String>,
    namespaces: Vec<String>,
    tasks: Vec<String>,
}

impl From<&CredentialGrants> for WrittenGrants {
    fn from(grants: &CredentialGrants) -> Self {
        let written =
            |patterns: &[Pattern]| patterns.iter().map(|p| p.as_str().to_owned()).collect();
        Self {
            groups: grants.groups.clone(),
            limit: grants.limit.as_ref().map(|limit| WrittenGrantLimit {
                scopes: limit.scopes.map(|scopes| scopes.to_string()),
                clusters: written(&limit.selector.clusters),
                jobs: written(&limit.selector.jobs),
                namespaces: written(&limit.selector.namespaces),
                tasks: written(&limit.selector.tasks),
            }),
        }
    }
}

impl WrittenGrants {
    /// `None`: the scopes are of another version of the relay.
    pub(super) fn read(self) -> Option<CredentialGrants> {
        let read = |patterns: Vec<String>| patterns.into_iter().map(Pattern::new).collect();
        let limit = match self.limit {
            None => None,
            Some(limit) => Some(GrantLimit {
                scopes: match limit.scopes {
                    None => None,
                    Some(words) => Some(words.parse().ok()?),
                },
                selector: BreakpointSelector {
                    clusters: read(limit.clusters),
                    jobs: read(limit.jobs),
                    namespaces: read(limit.namespaces),
                    tasks: read(limit.tasks),
                },
            }),
        };
        Some(CredentialGrants {
            groups: self.groups,
            limit,
        })
    }
}
