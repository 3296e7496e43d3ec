//! The owner of a connection or request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::sleep;

use super::credential_id::CredentialId;
use super::grants::CredentialGrants;
use super::refusal::CredentialRefusal;
use super::revocation::RevocationList;
use super::subject::is_presentable;
use super::validity::{Validity, Withdrawn};
use crate::policy::{Access, Granted, Grants, Rule, Scope, Scopes};

/// Longest wait before the clock is read again: it may be set during a wait.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Why a principal has ended. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalEnded {
    /// Its credential expired.
    #[error("your token has expired")]
    Expired,
    /// Its credential was revoked.
    #[error("your token was revoked")]
    Revoked,
    /// Its issuer no longer accepts the credential.
    #[error(transparent)]
    Withdrawn(#[from] Withdrawn),
}

/// The identity proven by a credential, before its rights are determined.
#[derive(Debug, Clone)]
pub struct VerifiedIdentity {
    pub(super) subject: String,
    pub(super) credential: CredentialId,
    /// When it expires, including the leeway for clock differences.
    pub(super) expires: Option<SystemTime>,
    /// When the credential was issued, if known. Otherwise revoking the subject ends it whatever the time of issue.
    pub(super) issued: Option<SystemTime>,
    pub(super) grants: CredentialGrants,
    /// The roles granted by an outside authority. They cap the policy file, and grant everything if there is none.
    /// Not written to tickets.
    pub(super) roles: Option<Grants>,
    /// Whether Kubernetes still accepts it, if it is a Kubernetes token.
    pub(super) validity: Option<Validity>,
}

impl VerifiedIdentity {
    /// Creates an identity with a name only: the credential grants nothing and never expires.
    pub(super) fn new(subject: impl Into<String>, credential: CredentialId) -> Self {
        Self {
            subject: subject.into(),
            credential,
            expires: None,
            issued: None,
            grants: CredentialGrants::default(),
            roles: None,
            validity: None,
        }
    }

    /// Returns the identity if its name can be shown.
    pub(super) fn presentable(self) -> Result<Self, CredentialRefusal> {
        match is_presentable(&self.subject) {
            true => Ok(self),
            false => Err(CredentialRefusal::Claim("sub")),
        }
    }
}

/// An authenticated client and its access. Cheap to clone.
#[derive(Clone)]
pub struct Principal(Arc<PrincipalInner>);

struct PrincipalInner {
    who: VerifiedIdentity,
    access: Access,
    revocations: Option<watch::Receiver<Arc<RevocationList>>>,
    /// The same user with a newer credential, if one was presented.
    renewed: Option<watch::Receiver<Option<Principal>>>,
}

/// Extends the lifetime of a principal.
#[derive(Debug)]
pub struct Renewal {
    of: Principal,
    newest: watch::Sender<Option<Principal>>,
}

impl Renewal {
    /// Adopts `by`, the same user with a newer credential, if it has the same rights: the principal then ends with
    /// it. Revocations stay in force. Returns whether it was adopted.
    pub fn renew(&self, by: &Principal) -> bool {
        let (old, new) = (&self.of.0.who, &by.0.who);
        let same = old.subject == new.subject
            && old.grants == new.grants
            && self.of.access() == by.access()
            && by.is_over().is_none();
        if same {
            self.newest.send_replace(Some(by.clone()));
        }
        same
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.who.subject, self.0.who.credential)
    }
}

impl Principal {
    /// Returns the principal of every client while authentication is off, with all scopes but those that no other
    /// scope includes.
    pub fn anonymous() -> Self {
        Self::without_credential("anonymous", Scopes::USUAL)
    }

    /// Returns the principal of the relay itself, for actions that its own configuration triggers. Not for a client.
    pub fn relay() -> Self {
        Self::without_credential("ray-relay", Scopes::USUAL)
    }

    /// Returns the principal of the relay itself where its findings go to people with unknown permissions: it sees
    /// every stack, and no text of a value. Not for a client.
    pub fn relay_viewer() -> Self {
        Self::without_credential(
            "ray-relay",
            Scopes::NONE.with(Scope::List).with(Scope::View),
        )
    }

    fn without_credential(subject: &str, scopes: Scopes) -> Self {
        let everything = Rule {
            scopes,
            ..Rule::default()
        };
        Self(Arc::new(PrincipalInner {
            who: VerifiedIdentity::new(subject, CredentialId::None),
            access: Access::new(vec![Arc::new(everything)]),
            revocations: None,
            renewed: None,
        }))
    }

    /// Creates a principal. Only for the authenticator.
    pub(super) fn issued(
        who: VerifiedIdentity,
        access: Access,
        revocations: watch::Receiver<Arc<RevocationList>>,
    ) -> Self {
        Self(Arc::new(PrincipalInner {
            who,
            access,
            revocations: Some(revocations),
            renewed: None,
        }))
    }

    /// Returns the same principal, with a lifetime that can be extended.
    pub fn renewable(&self) -> (Self, Renewal) {
        let newest = watch::Sender::new(None);
        let principal = Self(Arc::new(PrincipalInner {
            who: self.0.who.clone(),
            access: self.0.access.clone(),
            revocations: self.0.revocations.clone(),
            renewed: Some(newest.subscribe()),
        }));
        let renewal = Renewal {
            of: self.clone(),
            newest,
        };
        (principal, renewal)
    }

    /// Returns the renewed principal that determines the lifetime.
    fn newest(&self) -> Option<Self> {
        let renewed = self.0.renewed.as_ref()?;
        renewed.borrow().clone()
    }

    /// Returns the name: `sub` of a token, SAN of a certificate, user of Kubernetes. Cleaned for display.
    pub fn subject(&self) -> &str {
        &self.0.who.subject
    }

    /// Returns the name, or `None` for anonymous clients.
    pub fn known_subject(&self) -> Option<String> {
        (!self.is_anonymous()).then(|| self.0.who.subject.clone())
    }

    /// Returns the identifier of its credential.
    pub fn credential(&self) -> &CredentialId {
        &self.0.who.credential
    }

    /// Describes how to obtain the missing `scope`: the last clause of a refusal.
    pub fn remedy(&self, scope: Scope) -> &'static str {
        self.0.who.credential.remedy(scope)
    }

    /// Returns when it expires.
    pub fn expires(&self) -> Option<SystemTime> {
        match self.newest() {
            Some(newest) => newest.expires(),
            None => self.0.who.expires,
        }
    }

    /// Returns when its credential was issued, if known.
    pub fn issued_at(&self) -> Option<SystemTime> {
        self.0.who.issued
    }

    /// Returns the grants of its credential, for tickets.
    pub(super) fn grants(&self) -> &CredentialGrants {
        &self.0.who.grants
    }

    /// Returns the roles granted by an outside authority, if any.
    pub(super) fn roles(&self) -> Option<&Grants> {
        self.0.who.roles.as_ref()
    }

    /// Notifies when it gains rights. `None`: its rights are fixed.
    pub fn gains(&self) -> Option<watch::Receiver<Arc<Granted>>> {
        self.roles().map(Grants::watch)
    }

    /// Returns its access.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// Whether it has the same credential. A ticket has the credential of the principal that it was issued to.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.who.subject == other.0.who.subject && self.0.who.credential == other.0.who.credential
    }

    /// Whether it is the same user, perhaps with another credential: a token is renewed while a laptop sleeps. All
    /// unauthenticated clients count as the same user.
    pub fn is_same_person(&self, other: &Self) -> bool {
        self.0.who.subject == other.0.who.subject && self.is_anonymous() == other.is_anonymous()
    }

    /// Whether it is the same authenticated user. Unauthenticated clients are all different here.
    pub fn is_same_authenticated_person(&self, other: &Self) -> bool {
        !self.is_anonymous() && self.is_same_person(other)
    }

    /// Whether authentication is off.
    pub fn is_anonymous(&self) -> bool {
        self.0.who.credential == CredentialId::None
    }

    /// Returns whether and why it has ended.
    pub fn is_over(&self) -> Option<PrincipalEnded> {
        let revoked = |list: &watch::Receiver<Arc<RevocationList>>| {
            let (credential, issued) = (self.0.who.credential.id(), self.0.who.issued);
            list.borrow()
                .revokes(&self.0.who.subject, credential, issued)
        };
        if self.0.revocations.as_ref().is_some_and(revoked) {
            return Some(PrincipalEnded::Revoked);
        }
        if let Some(newest) = self.newest() {
            return newest.is_over();
        }
        let validity = self.0.who.validity.as_ref();
        if let Some(why) = validity.and_then(Validity::is_withdrawn) {
            return Some(PrincipalEnded::Withdrawn(why));
        }
        let expired = self.0.who.expires.is_some_and(|at| at <= SystemTime::now());
        expired.then_some(PrincipalEnded::Expired)
    }

    /// Resolves when it ends. Cancel safe. Never resolves for a principal without an end.
    pub async fn ended(&self) -> PrincipalEnded {
        let PrincipalInner {
            who,
            revocations,
            renewed,
            ..
        } = &*self.0;
        let may_end = revocations.is_some()
            || renewed.is_some()
            || who.expires.is_some()
            || who.validity.is_some();
        match may_end {
            // Boxed: futures that wait for a principal without an end stay small.
            true => Box::pin(self.end()).await,
            false => std::future::pending().await,
        }
    }

    async fn end(&self) -> PrincipalEnded {
        let mut revocations = self.0.revocations.clone();
        let mut renewed = self.0.renewed.clone();
        loop {
            if let Some(renewed) = &mut renewed {
                renewed.mark_unchanged();
            }
            if let Some(ended) = self.is_over() {
                return ended;
            }
            let newest = self.newest();
            let who = &newest.as_ref().unwrap_or(self).0.who;
            let renewal = async {
                match &mut renewed {
                    Some(renewed) => renewed.changed().await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                match &mut revocations {
                    Some(list) => list.changed().await,
                    None => std::future::pending().await,
                }
            };
            let expiry = async {
                match who.expires {
                    Some(at) => {
                        let remaining = at.duration_since(SystemTime::now()).unwrap_or_default();
                        sleep(remaining.min(CLOCK_CHECK_INTERVAL)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            let withdrawn = async {
                match &who.validity {
                    Some(validity) => validity.withdrawn().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = withdrawn => {}
                closed = changed => if closed.is_err() {
                    // The authenticator is gone: the process is ending.
                    revocations = None;
                },
                () = expiry => {}
                closed = renewal => if closed.is_err() {
                    // The link is gone: no further renewal.
                    renewed = None;
                },
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::identity::revocation::{Revocation, Revoked};
    use crate::identity::testing;

    fn ada(expires: Option<SystemTime>) -> (watch::Sender<Arc<RevocationList>>, Principal) {
        let sender = watch::Sender::new(Arc::new(RevocationList::default()));
        let identity = VerifiedIdentity {
            expires,
            ..testing::identity("ada")
        };
        let ada = Principal::issued(identity, Access::default(), sender.subscribe());
        (sender, ada)
    }

    #[tokio::test]
    async fn principal_ends_on_expiry_or_revocation() {
        let (_sender, principal) = ada(Some(SystemTime::now() + Duration::from_millis(30)));
        assert_eq!(principal.is_over(), None);
        assert_eq!(principal.ended().await, PrincipalEnded::Expired);

        let (sender, principal) = ada(Some(SystemTime::now() + Duration::from_secs(600)));
        let waiting = tokio::spawn({
            let principal = principal.clone();
            async move { principal.ended().await }
        });
        let mut list = RevocationList::default();
        let target = Revoked::CredentialId("another".to_owned());
        list.add(Revocation {
            what: target,
            until: None,
        })
        .unwrap();
        sender.send_replace(Arc::new(list.clone()));
        assert_eq!(principal.is_over(), None);
        let target = Revoked::CredentialId("jti-ada".to_owned());
        list.add(Revocation {
            what: target,
            until: None,
        })
        .unwrap();
        sender.send_replace(Arc::new(list));
        assert_eq!(waiting.await.unwrap(), PrincipalEnded::Revoked);
    }

    #[test]
    fn user_named_anonymous_is_not_the_anonymous_principal() {
        let anonymous = Principal::anonymous();
        let sender = watch::Sender::default();
        let identity = testing::identity(anonymous.subject());
        let issued = Principal::issued(identity, Access::default(), sender.subscribe());
        assert!(issued.is_same_person(&issued) && anonymous.is_same_person(&anonymous));
        assert!(!issued.is_same_person(&anonymous) && !anonymous.is_same_person(&issued));
    }

    #[tokio::test]
    async fn renewed_credential_postpones_the_expiry() {
        let expiry = SystemTime::now() + Duration::from_millis(50);
        let later = SystemTime::now() + Duration::from_secs(600);
        let (sender, first) = ada(Some(expiry));
        let (principal, renewal) = first.renewable();
        let (_others, second) = ada(Some(later));
        let bob = Principal::issued(
            testing::identity("bob"),
            Access::default(),
            sender.subscribe(),
        );
        assert!(!renewal.renew(&bob));
        let wider = Access::new(vec![Arc::new(Rule::default())]);
        let wider = Principal::issued(testing::identity("ada"), wider, sender.subscribe());
        assert!(!renewal.renew(&wider));
        let waiting = tokio::spawn({
            let principal = principal.clone();
            async move { principal.ended().await }
        });
        assert!(renewal.renew(&second));
        assert_eq!(principal.expires(), Some(later));
        sleep(Duration::from_millis(100)).await;
        assert_eq!(
            (first.is_over(), principal.is_over()),
            (Some(PrincipalEnded::Expired), None)
        );
        assert!(!renewal.renew(&first));
        // A revocation is final.
        let mut list = RevocationList::default();
        let target = Revoked::CredentialId("jti-ada".to_owned());
        list.add(Revocation {
            what: target,
            until: None,
        })
        .unwrap();
        sender.send_replace(Arc::new(list));
        assert_eq!(waiting.await.unwrap(), PrincipalEnded::Revoked);
    }

    #[tokio::test(start_paused = true)]
    async fn anonymous_principal_never_ends() {
        let anonymous = Principal::anonymous();
        let ended = tokio::time::timeout(2 * CLOCK_CHECK_INTERVAL, anonymous.ended());
        assert!(ended.await.is_err());
    }
}
