//! Kubernetes reviews of one token: its user (TokenReview), and the user's rights on each Ray cluster
//! (SubjectAccessReview).
//!
//! Each scope is a verb on the resource `breakpoints` of the group `ray-relay.dev`. The resource name is that of the
//! cluster, or of the RayCluster in its own namespace ([`Places`]). A role without names in the relay's namespace
//! applies to the whole relay, and is queried as such only for `admin`. No such API has to exist: roles may name it
//! all the same. All verbs are queried at once, since visibility is the first question to an
//! [`crate::policy::Access`].

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use zeroize::Zeroize;

use super::api::{KubernetesError, TokenReviewApi};
use super::places::{Places, RoleScope};
use super::quiet::Quiet;
use crate::identity::Secret;
use crate::identity::secret::CredentialDigest as Key;
use crate::policy::{RelayScope, Scope, Scopes};

/// API group in roles.
const API_GROUP: &str = "ray-relay.dev";

/// Resource in roles.
const RESOURCE: &str = "breakpoints";

/// The extra field with the id of a token (API server 1.30 and later).
const TOKEN_ID_FIELD: &str = "authentication.kubernetes.io/credential-id";

/// Longest user name. ServiceAccounts have at most 340 characters.
const MAX_USER_NAME_BYTES: usize = 512;

/// Reviews of one user at a time.
const MAX_CONCURRENT_REVIEWS: usize = 8;

/// The user of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::identity) struct User {
    pub(in crate::identity) name: String,
    pub(in crate::identity) uid: String,
    pub(in crate::identity) groups: BTreeSet<String>,
}

impl User {
    fn is_service_account(&self) -> bool {
        self.name.starts_with("system:serviceaccount:")
    }
}

/// The review of a token: its user, and the user's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::identity) struct Review {
    pub(in crate::identity) user: User,
    /// The scopes on each queried pattern of clusters, even if empty.
    pub(in crate::identity) grants: Vec<(String, Scopes)>,
    /// Whether the user administers the relay, by a role for the resource without names.
    pub(in crate::identity) administers_relay: bool,
    /// Whether there are more clusters than one review queries.
    pub(in crate::identity) is_partial: bool,
}

impl Review {
    /// Whether it allows less than `before` on what was queried again. A cluster that is gone does not count: its
    /// sessions have ended with it.
    pub(super) fn allows_less_than(&self, before: &Self) -> bool {
        let is_less = |(clusters, scopes): &(String, Scopes)| {
            let queried = self.grants.iter().any(|(now, _)| now == clusters);
            queried && scopes.intersection(allowed(&self.grants, clusters)) != *scopes
        };
        before.grants.iter().any(is_less) || before.administers_relay && !self.administers_relay
    }
}

/// Returns the scopes that `grants` contain for all of `clusters`, which may be a narrower pattern.
fn allowed(grants: &[(String, Scopes)], clusters: &str) -> Scopes {
    let covering = grants
        .iter()
        .filter(|(pattern, _)| covers(pattern, clusters));
    covering.fold(Scopes::NONE, |all, (_, scopes)| all.union(*scopes))
}

/// Whether a grant on `pattern` applies to `clusters`: they are equal, or it covers the namespace, or all discovered
/// clusters.
fn covers(pattern: &str, clusters: &str) -> bool {
    let namespace = |name: &str| name.split_once('.').map(|(namespace, _)| namespace.len());
    pattern == clusters
        || namespace(clusters).is_some_and(|end| match pattern.strip_suffix(".*") {
            Some("*") => true,
            Some(whole) => *whole == clusters[..end],
            None => false,
        })
}

/// An API that reviews tokens.
pub(in crate::identity) trait ReviewApi: Send + Sync {
    /// Reviews `token`. Returns `None` if it is not accepted. Parts that are `known` are not queried again.
    ///
    /// # Errors
    /// [`KubernetesError`]: there is no usable answer.
    fn review<'a>(
        &'a self,
        token: &'a Secret,
        known: Option<&'a Review>,
    ) -> BoxFuture<'a, Result<Option<Review>, KubernetesError>>;

    /// Resolves when there is a cluster that is not in `known`, and updates `known`. Cancel safe.
    fn appeared<'a>(&'a self, _known: &'a mut BTreeSet<String>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

/// The API server, and the clusters to query.
pub(in crate::identity) struct Kubernetes {
    api: TokenReviewApi,
    audiences: Vec<String>,
    places: Places,
    quiet: Quiet,
}

type Extra = Option<BTreeMap<String, Vec<String>>>;

impl Kubernetes {
    pub(super) fn new(api: TokenReviewApi, audiences: Vec<String>, places: Places) -> Self {
        Self {
            api,
            audiences,
            places,
            quiet: Quiet::default(),
        }
    }

    async fn user(&self, token: &Secret) -> Result<Option<(User, Extra)>, KubernetesError> {
        let mut review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(self.audiences.clone()),
                token: Some(token.expose().to_owned()),
            },
            ..TokenReview::default()
        };
        let answer = self.api.create(&review).await;
        review.spec.token.zeroize();
        let mut answer = answer?;
        answer.spec.token.zeroize();
        let status = answer
            .status
            .ok_or_else(|| self.api.unusable::<TokenReview>("it has no status"))?;
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        // An API server without audience support returns none, and would accept any token.
        let audiences = status.audiences.unwrap_or_default();
        if !audiences.iter().any(|one| self.audiences.contains(one)) {
            tracing::debug!("Kubernetes accepts a token, but for none of kubernetes.audiences");
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        let name = user.username.unwrap_or_default();
        if name.is_empty() || name.len() > MAX_USER_NAME_BYTES || name.chars().any(char::is_control)
        {
            return Err(self
                .api
                .unusable::<TokenReview>("it has no name that could be shown"));
        }
        let groups = user.groups.unwrap_or_default().into_iter().collect();
        let uid = user.uid.unwrap_or_default();
        Ok(Some((User { name, uid, groups }, user.extra)))
    }

    /// Whether a role at `place` grants `scope` to `user`. `None`: a role for the whole relay.
    async fn may(
        &self,
        user: &User,
        extra: &Extra,
        place: Option<&RoleScope>,
        scope: Scope,
    ) -> Result<bool, KubernetesError> {
        let namespace = place.and_then(|place| place.namespace.as_deref());
        let name = place.and_then(|place| place.name.clone());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
                groups: Some(user.groups.iter().cloned().collect()),
                extra: extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(API_GROUP.to_owned()),
                    resource: Some(RESOURCE.to_owned()),
                    verb: Some(verb(scope).to_owned()),
                    namespace: Some(namespace.unwrap_or(self.api.namespace()).to_owned()),
                    name,
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = self.api.create(&review).await?;
        let status = answer
            .status
            .ok_or_else(|| self.api.unusable::<SubjectAccessReview>("it has no status"))?;
        Ok(status.allowed && status.denied != Some(true))
    }

    /// Returns the scopes of `user` at `places`, except those `known` already. `list` is queried first. If it is
    /// denied, nothing else is queried, except `node` for a ServiceAccount, which may be an agent.
    async fn on(
        &self,
        user: &User,
        extra: &Extra,
        places: Vec<RoleScope>,
        known: &[(String, Scopes)],
    ) -> Result<Vec<(String, Scopes)>, KubernetesError> {
        let covered = |place: &RoleScope| allowed(known, &place.clusters);
        let covered: Vec<Scopes> = places.iter().map(covered).collect();
        let mut found = vec![Scopes::NONE; places.len()];
        for is_first in [true, false] {
            let mut questions = Vec::new();
            for (number, covered) in covered.iter().enumerate() {
                let has = covered.union(found[number]);
                let next: &[Scope] = match has.contains(Scope::List) {
                    _ if is_first => &[Scope::List],
                    true => &Scope::ALL,
                    false if user.is_service_account() => &[Scope::Node],
                    false => &[],
                };
                let open = next.iter().filter(|scope| !has.contains(**scope));
                questions.extend(open.map(|scope| (number, *scope)));
            }
            let answers = stream::iter(questions).map(|(number, scope)| {
                let place = Some(&places[number]);
                async move { Ok((number, scope, self.may(user, extra, place, scope).await?)) }
            });
            let answers: Vec<(usize, Scope, bool)> = answers
                .buffer_unordered(MAX_CONCURRENT_REVIEWS)
                .try_collect()
                .await?;
            for (number, scope, _) in answers.into_iter().filter(|(_, _, allowed)| *allowed) {
                found[number] = found[number].with(scope);
            }
        }
        let names = places.into_iter().map(|place| place.clusters);
        Ok(names.zip(found).collect())
    }

    async fn all(
        &self,
        token: &Secret,
        known: Option<&Review>,
    ) -> Result<Option<Review>, KubernetesError> {
        let Some((user, extra)) = self.user(token).await? else {
            return Ok(None);
        };
        let mut grants = known.map_or_else(Vec::new, |known| known.grants.clone());
        let known_places = known.into_iter().flat_map(|known| &known.grants);
        let known_places: HashSet<&str> = known_places.map(|(place, _)| &**place).collect();
        let user_key = user_key(&user, &extra);
        let [mut first, whole, single] = self.places.now();
        let all = whole.len() + single.len();
        let mut is_partial = false;
        first.retain(|place| !known_places.contains(&*place.clusters));
        grants.extend(self.on(&user, &extra, first, &grants).await?);
        for mut places in [whole, single] {
            places.retain(|place| !known_places.contains(&*place.clusters));
            let (queried, quiet, is_more) = self.quiet.part(&user_key, places);
            let found = self.on(&user, &extra, queried, &grants).await?;
            if grants
                .iter()
                .chain(&found)
                .any(|(_, scopes)| !scopes.is_empty())
            {
                self.quiet.learn(user_key, &found, all);
            }
            grants.extend(found);
            let nothing = quiet
                .into_iter()
                .map(|place| (place.clusters, Scopes::NONE));
            grants.extend(nothing);
            is_partial |= is_more;
        }
        let admin = RelayScope::Admin.granted();
        let administers_relay = match known {
            Some(known) => known.administers_relay,
            None => self.may(&user, &extra, None, admin).await?,
        };
        Ok(Some(Review {
            user,
            grants,
            administers_relay,
            is_partial,
        }))
    }
}

impl ReviewApi for Kubernetes {
    fn review<'a>(
        &'a self,
        token: &'a Secret,
        known: Option<&'a Review>,
    ) -> BoxFuture<'a, Result<Option<Review>, KubernetesError>> {
        Box::pin(self.all(token, known))
    }

    fn appeared<'a>(&'a self, known: &'a mut BTreeSet<String>) -> BoxFuture<'a, ()> {
        Box::pin(self.places.appeared(known))
    }
}

/// Returns the cache key of a user: all properties except the id of the token, which differs with each.
fn user_key(user: &User, extra: &Extra) -> Key {
    let extra: Vec<_> = extra
        .iter()
        .flatten()
        .filter(|(key, _)| *key != TOKEN_ID_FIELD)
        .collect();
    let about = format!(
        "{:?} {:?} {:?} {:?}",
        user.name, user.uid, user.groups, extra
    );
    Secret::new(about).digest()
}

/// Returns the verb for `scope` in roles.
fn verb(scope: Scope) -> &'static str {
    match scope {
        Scope::List => "list",
        Scope::View => "view",
        Scope::Debug => "debug",
        Scope::Attach => "attach",
        Scope::Terminal => "terminal",
        Scope::DashboardRead => "dashboard-read",
        Scope::DashboardWrite => "dashboard-write",
        Scope::PlaceAdmin => "admin",
        Scope::Terminate => "terminate",
        Scope::Node => "node",
    }
}
