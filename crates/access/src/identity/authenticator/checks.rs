//! The state of an authenticator that is on: keys, policy, revocations and the throttle.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use tracing::{debug, error, info};

use crate::identity::PrincipalEnded;
use crate::identity::claims::Expectations;
use crate::identity::credential_id::CredentialId;
use crate::identity::error::{AuthError, SetupError};
use crate::identity::issuers::Issuers;
use crate::identity::key_files::KeyFiles;
use crate::identity::keys::KeyRing;
use crate::identity::kubernetes::Reviewer;
use crate::identity::principal::{Principal, VerifiedIdentity};
use crate::identity::refusal::CredentialRefusal;
use crate::identity::revocation::{LiveRevocations, RevocationSeal};
use crate::identity::secret::{CredentialDigest, Secret};
use crate::identity::setup::Parts;
use crate::identity::throttle::{Throttle, ThrottleVerdict};
use crate::identity::ticket::Tickets;
use crate::identity::verifier::Verifier;
use crate::policy::{Access, Policy, PolicyFile};
use ray_relay_base::config::Auth;

pub(super) struct Checks {
    pub(super) verifier: Verifier,
    pub(super) kubernetes: Option<Reviewer>,
    /// Sources of keys other than `keys`.
    pub(super) rings: Vec<Arc<dyn KeyRing>>,
    keys: Arc<KeyFiles>,
    policy: Option<Arc<PolicySlot>>,
    pub(super) revocations: Arc<LiveRevocations>,
    pub(super) tickets: Tickets,
    pub(super) seal: Option<RevocationSeal>,
    throttle: Mutex<Throttle>,
    pub(super) summary: String,
}

/// An attempt to authenticate with a credential.
pub(super) struct CredentialAttempt {
    /// SHA-256 of the credential.
    credential: CredentialDigest,
    peer: IpAddr,
    /// Whether the throttle has admitted it.
    admitted: bool,
}

impl CredentialAttempt {
    pub(super) fn new(credential: &Secret, peer: IpAddr) -> Self {
        Self {
            credential: credential.digest(),
            peer,
            admitted: false,
        }
    }
}

struct PolicySlot {
    file: Mutex<PolicyFile>,
    current: RwLock<Arc<Policy>>,
}

impl Checks {
    /// Builds the checks of `auth` and `issuers`. Reads files, and so blocks.
    pub(super) fn new(auth: &Auth, issuers: Issuers) -> Result<Self, SetupError> {
        let parts = Parts::read(auth).map_err(|problems| SetupError(problems.to_string()))?;
        let keys = Arc::new(parts.keys);
        let mut by = vec![match keys.len() {
            1 => "1 key".to_owned(),
            n => format!("{n} keys"),
        }];
        if !issuers.rings.is_empty() {
            by.push("a key set".to_owned());
        }
        if issuers.kubernetes.is_some() {
            by.push("Kubernetes".to_owned());
        }
        if parts.policy.is_some() {
            by.push("a policy file".to_owned());
        }
        let mut rings: Vec<Arc<dyn KeyRing>> = vec![keys.clone()];
        rings.extend(issuers.rings.iter().cloned());
        let expected = Expectations {
            audience: auth.audience.clone(),
            issuers: auth.issuer.clone(),
            leeway: auth.leeway,
            max_lifetime: auth.max_lifetime,
        };
        let verifier = Verifier::new(expected, rings).map_err(|why| SetupError(why.to_string()))?;
        Ok(Self {
            verifier,
            kubernetes: issuers.kubernetes,
            rings: issuers.rings,
            keys,
            policy: parts.policy.map(|file| {
                Arc::new(PolicySlot {
                    current: RwLock::new(file.policy().clone()),
                    file: Mutex::new(file),
                })
            }),
            revocations: Arc::new(parts.revocations),
            tickets: parts.tickets,
            seal: parts.seal,
            throttle: Mutex::new(Throttle::new(auth.throttle_after)),
            summary: by.join(", "),
        })
    }

    /// Asks Kubernetes, if configured, about a token that no key here has signed. The request is expensive, so it
    /// counts as an `attempt`.
    pub(super) async fn ask_kubernetes(
        &self,
        token: &Secret,
        attempt: &mut CredentialAttempt,
    ) -> Result<VerifiedIdentity, AuthError> {
        let Some(kubernetes) = &self.kubernetes else {
            return Err(AuthError::Refused);
        };
        self.admit(attempt)?;
        kubernetes.review(token).await
    }

    /// Checks whether this attempt may cost a request to an outside authority, or an audit line. Once admitted it
    /// stays so.
    fn admit(&self, attempt: &mut CredentialAttempt) -> Result<(), AuthError> {
        if attempt.admitted {
            return Ok(());
        }
        let mut throttle = self.throttle.lock();
        match throttle.decide(attempt.peer, &attempt.credential, Instant::now()) {
            ThrottleVerdict::Examine | ThrottleVerdict::Trial => {
                attempt.admitted = true;
                Ok(())
            }
            ThrottleVerdict::Wait(retry_after) => Err(AuthError::Throttled { retry_after }),
        }
    }

    /// Concludes an attempt, and records it for the next one from the same source. A valid credential is accepted
    /// however many invalid ones preceded it. Of invalid ones no more are examined, and put on record, than the
    /// throttle admits.
    pub(super) fn conclude(
        &self,
        who: Result<VerifiedIdentity, CredentialRefusal>,
        mut attempt: CredentialAttempt,
    ) -> Result<Principal, AuthError> {
        let principal = who.and_then(|who| self.principal(who));
        let throttle = || self.throttle.lock();
        let peer = attempt.peer;
        match principal {
            Ok(principal) => {
                throttle().passed(attempt.credential, Instant::now());
                Ok(principal)
            }
            Err(refusal) => {
                self.admit(&mut attempt)?;
                let mut throttle = throttle();
                debug!(%refusal, %peer, "a credential was refused");
                if let Some(wait) = throttle.failed(peer, Instant::now()) {
                    debug!(%peer, seconds = wait.as_secs(), "back-off");
                }
                Err(AuthError::Refused)
            }
        }
    }

    /// Returns the principal with its current rights.
    pub(super) fn principal(&self, who: VerifiedIdentity) -> Result<Principal, CredentialRefusal> {
        let policy = self.policy.as_ref().map(|slot| slot.current.read().clone());
        let access = match (&who.roles, policy.as_deref()) {
            (None, policy) => who.grants.access(&who.subject, policy),
            (Some(roles), Some(policy)) => policy
                .access(&who.subject, &who.grants.groups)
                .limited_to(roles.clone()),
            (Some(roles), None) => Access::granted(roles.clone()),
        };
        let principal = Principal::issued(who, access, self.revocations.watch());
        match principal.is_over() {
            None => Ok(principal),
            Some(PrincipalEnded::Expired) => Err(CredentialRefusal::Expired),
            Some(PrincipalEnded::Revoked | PrincipalEnded::Withdrawn(_)) => {
                Err(CredentialRefusal::Revoked)
            }
        }
    }

    /// Checks that Kubernetes still accepts the token from which a ticket came. Fails closed: unless this relay is
    /// rechecking that token, the ticket counts as revoked.
    pub(super) fn still_accepted(
        &self,
        who: VerifiedIdentity,
    ) -> Result<VerifiedIdentity, CredentialRefusal> {
        let CredentialId::Kubernetes { fingerprint } = &who.credential else {
            return Ok(who);
        };
        let kubernetes = self.kubernetes.as_ref().ok_or(CredentialRefusal::Revoked)?;
        let present = kubernetes
            .present(fingerprint)
            .ok_or(CredentialRefusal::Revoked)?;
        present.presentable()
    }

    /// Reads changed revocations, and keys and policy if `include_keys`.
    pub(super) async fn refresh(&self, include_keys: bool) {
        let (revocations, keys) = (self.revocations.clone(), self.keys.clone());
        let policy = self.policy.clone();
        let reading = tokio::task::spawn_blocking(move || {
            revocations.poll(SystemTime::now());
            if include_keys {
                keys.reload();
                if let Some(policy) = policy {
                    policy.reload();
                }
            }
        });
        if let Err(why) = reading.await
            && why.is_panic()
        {
            error!("reading keys and revocations has panicked; it is tried again");
        }
    }
}

impl PolicySlot {
    fn reload(&self) {
        let mut file = self.file.lock();
        match file.reload() {
            Ok(false) => {}
            Ok(true) => {
                info!("the policy file was read again; it holds for new connections");
                *self.current.write() = file.policy().clone();
            }
            Err(why) => {
                error!(%why, "the policy file cannot be used; the old rules stay in force until it is mended");
            }
        }
    }
}
