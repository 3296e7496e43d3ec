//! The parts of a credential that determine its holder's rights.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{Access, BreakpointSelector, Policy, Rule, Scope, Scopes};

/// Grants of a credential. Stored with the principal and written into tickets in this form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialGrants {
    /// Groups, for the policy file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The limits of the credential. `None`: it names none; without a policy file it then grants nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<GrantLimit>,
}

/// The scopes and the selector of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantLimit {
    /// `None`: only the selector limits, and the policy file grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// The breakpoints that it is limited to.
    #[serde(flatten)]
    pub selector: BreakpointSelector,
}

impl CredentialGrants {
    /// Returns the access of `subject`. With a policy file: its rules, within the limits of the credential. Without
    /// one: the scopes of the credential, and nothing if it names none.
    pub fn access(&self, subject: &str, policy: Option<&Policy>) -> Access {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::policy::{Pattern, RelayScope};

    #[test]
    fn only_an_unrestricted_admin_administers_the_relay() {
        let narrow = |to: &str| {
            let mut selector = BreakpointSelector::default();
            let list = match to {
                "clusters" => &mut selector.clusters,
                "jobs" => &mut selector.jobs,
                "namespaces" => &mut selector.namespaces,
                "tasks" => &mut selector.tasks,
                "nodes" => &mut selector.nodes,
                _ => return selector,
            };
            list.push(Pattern::new("*"));
            selector
        };
        let token = |to: &str, scopes: Option<&str>| CredentialGrants {
            groups: Vec::new(),
            limit: Some(GrantLimit {
                scopes: scopes.map(|scopes_text| scopes_text.parse().unwrap()),
                selector: narrow(to),
            }),
        };
        let policy = |narrowing: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("policy.toml");
            let rule = "[[rule]]\nsubjects = [\"*\"]\nscopes = [\"admin\"]\n";
            std::fs::write(&path, format!("{rule}{narrowing}")).unwrap();
            Policy::load(&path).unwrap()
        };
        let (all, partial) = (policy(""), policy("jobs = [\"*\"]"));
        let access_of = |grants: CredentialGrants, policy: Option<&Policy>| {
            let access = grants.access("ada", policy);
            (
                access.may_on_relay(RelayScope::Admin),
                access.may_anywhere(Scope::PlaceAdmin),
            )
        };
        let places = ["clusters", "jobs", "namespaces", "tasks", "nodes"];
        for (to, on_relay) in places.map(|to| (to, false)).into_iter().chain([("", true)]) {
            // Permissions of the token alone, of the policy within the token's scopes, and of a narrowed token.
            assert_eq!(
                access_of(token(to, Some("admin")), None),
                (on_relay, true),
                "{to}"
            );
            let narrowed = access_of(token(to, Some("admin")), Some(&all));
            assert_eq!(narrowed, (on_relay, true), "{to}");
            assert_eq!(
                access_of(token(to, None), Some(&all)),
                (on_relay, true),
                "{to}"
            );
            assert!(
                !access_of(token(to, Some("admin")), Some(&partial)).0,
                "{to}"
            );
            assert_eq!(
                access_of(token(to, Some("list")), Some(&all)),
                (false, false)
            );
        }
        // A client certificate, which carries no permissions.
        assert_eq!(
            access_of(CredentialGrants::default(), Some(&all)),
            (true, true)
        );
        assert_eq!(
            access_of(CredentialGrants::default(), Some(&partial)),
            (false, true)
        );
        assert_eq!(access_of(CredentialGrants::default(), None), (false, false));
    }
}
