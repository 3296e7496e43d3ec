//! From a credential to a principal, for all protocols.

mod checks;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::checks::{Checks, CredentialAttempt};
use super::carried::CarriedIdentity;
use super::credential_id::CredentialId;
use super::error::{AuthError, SetupError};
use super::issuers::Issuers;
use super::kubernetes::Reviewer;
use super::principal::{Principal, VerifiedIdentity};
use super::refusal::CredentialRefusal;
use super::revocation::{Revocation, RevocationList, RevocationSeal, RevokeError, StoredIn};
use super::secret::Secret;
use super::setup::Parts;
use super::ticket::Opens;
use super::verifier::VerifyError;
use ray_relay_base::config::{Auth, Problems};
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId};

/// How often the list of revocations is checked: sessions end within a second of a change.
const REVOCATION_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Keys and policy are checked once in this many checks of the revocations.
const KEY_CHECK_TICKS: u32 = 4;

/// Authenticates principals. One for the process.
pub struct Authenticator {
    /// `None`: authentication is off.
    checks: Option<Checks>,
    /// The principal of every client while authentication is off.
    anonymous_principal: Principal,
    /// The audience that tokens need, if Kubernetes is the only issuer.
    audience_in_kubernetes: Option<Arc<str>>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authenticator")
            .field(&self.summary())
            .finish()
    }
}

impl Authenticator {
    /// Returns an authenticator for authentication off: every client is [`Principal::anonymous`].
    pub fn open() -> Arc<Self> {
        Arc::new(Self::new(None))
    }

    /// Builds the authenticator of `auth` and `issuers`. Returns [`Authenticator::open`] if no issuer is configured.
    /// Reads files, and so blocks.
    ///
    /// # Errors
    /// [`SetupError`] with all problems.
    pub fn from_config(auth: &Auth, issuers: Issuers) -> Result<Arc<Self>, SetupError> {
        if !auth.is_on() && issuers.rings.is_empty() && issuers.kubernetes.is_none() {
            return Ok(Self::open());
        }
        let kubernetes = issuers.kubernetes.as_ref();
        let is_alone = auth.keys.is_empty() && issuers.rings.is_empty();
        let audience = kubernetes.filter(|_| is_alone).map(Reviewer::audience);
        let checks = Some(Checks::new(auth, issuers)?);
        Ok(Arc::new(Self {
            audience_in_kubernetes: audience,
            ..Self::new(checks)
        }))
    }

    fn new(checks: Option<Checks>) -> Self {
        let anonymous_principal = Principal::anonymous();
        Self {
            checks,
            anonymous_principal,
            audience_in_kubernetes: None,
        }
    }

    /// Checks whether the files that `auth` names can be used. Reads them, and so blocks.
    ///
    /// # Errors
    /// All [`Problems`].
    pub fn check(auth: &Auth) -> Result<(), Problems> {
        match auth.is_on() {
            true => Parts::read(auth).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Whether clients need credentials.
    pub fn is_on(&self) -> bool {
        self.checks.is_some()
    }

    /// Returns the audience that tokens need if Kubernetes is the only issuer, for the message to clients without a
    /// token.
    pub fn audience_in_kubernetes(&self) -> Option<Arc<str>> {
        self.audience_in_kubernetes.clone()
    }

    /// Summarizes the configured issuers, for the log. `None`: authentication is off.
    pub fn summary(&self) -> Option<&str> {
        self.checks.as_ref().map(|checks| checks.summary.as_str())
    }

    /// Returns the principal of clients without a credential, if none is needed.
    pub fn anonymous(&self) -> Option<Principal> {
        (!self.is_on()).then(|| self.anonymous_principal.clone())
    }

    /// Authenticates `token`, which came from `peer`.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn token(&self, token: &Secret, peer: IpAddr) -> Result<Principal, AuthError> {
        let Some(checks) = &self.checks else {
            return Ok(self.anonymous_principal.clone());
        };
        let mut attempt = CredentialAttempt::new(token, peer);
        let now = SystemTime::now();
        let who = match checks.verifier.verify(token, now).await {
            Ok(who) => Ok(who),
            Err(
                VerifyError::Refused(refusal)
                | VerifyError::Foreign(refusal @ CredentialRefusal::TooLong),
            ) => Err(refusal),
            Err(VerifyError::Foreign(refusal)) => {
                match checks.ask_kubernetes(token, &mut attempt).await {
                    Ok(reviewed) => reviewed.presentable(),
                    Err(AuthError::Refused) => Err(refusal),
                    Err(other) => return Err(other),
                }
            }
            Err(VerifyError::Unavailable(why)) => {
                match checks.ask_kubernetes(token, &mut attempt).await {
                    Ok(reviewed) => reviewed.presentable(),
                    Err(throttled @ AuthError::Throttled { .. }) => return Err(throttled),
                    Err(_) => return Err(AuthError::Unavailable(why)),
                }
            }
        };
        checks.conclude(who, attempt)
    }

    /// Authenticates the client certificate with this `fingerprint` (SHA-256 in hex), which was verified and is valid
    /// for `subject` until `expires`. Its rights come from the policy file alone.
    ///
    /// # Errors
    /// [`AuthError::Refused`]: it was revoked, has expired, or its name cannot be shown.
    pub fn certificate(
        &self,
        subject: &str,
        fingerprint: &str,
        expires: SystemTime,
    ) -> Result<Principal, AuthError> {
        let Some(checks) = &self.checks else {
            return Ok(self.anonymous_principal.clone());
        };
        let fingerprint = fingerprint.to_owned();
        let who = VerifiedIdentity {
            expires: Some(expires),
            ..VerifiedIdentity::new(subject, CredentialId::Certificate { fingerprint })
        };
        who.presentable()
            .and_then(|who| checks.principal(who))
            .map_err(|refusal| {
                debug!(%refusal, "a client certificate was refused");
                AuthError::Refused
            })
    }

    /// Restores the principal `carried`, which another process of this user authenticated, with its current rights.
    /// `None`: it has expired, or was authenticated under another setup.
    pub fn carried(&self, carried: Option<CarriedIdentity>) -> Option<Principal> {
        match (&self.checks, carried) {
            (None, None) => Some(self.anonymous_principal.clone()),
            (Some(checks), Some(carried)) => checks.principal(carried.into_verified()).ok(),
            (None, Some(_)) | (Some(_), None) => None,
        }
    }

    /// Issues a ticket with which `principal` can open further sessions to `breakpoint` within a short time. `None`
    /// if authentication is off.
    pub fn issue_ticket(&self, principal: &Principal, breakpoint: &Breakpoint) -> Option<Secret> {
        self.issue(principal, &Opens::Breakpoint(breakpoint.id))
    }

    /// Issues a ticket for the target `opens`.
    pub fn issue(&self, principal: &Principal, opens: &Opens) -> Option<Secret> {
        let tickets = &self.checks.as_ref()?.tickets;
        tickets.issue(principal, opens, SystemTime::now())
    }

    /// Authenticates `ticket`, and returns the one breakpoint that it is for.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn ticket(
        &self,
        ticket: &Secret,
        peer: IpAddr,
    ) -> Result<(Principal, BreakpointId), AuthError> {
        self.ticket_for(ticket, peer, |opens| match opens {
            Opens::Breakpoint(id) => Some(id),
            Opens::Entrance(_) | Opens::Dashboard(_) => None,
        })
    }

    /// Authenticates `ticket`, which has to open exactly `expected`.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn opens(
        &self,
        ticket: &Secret,
        peer: IpAddr,
        expected: &Opens,
    ) -> Result<Principal, AuthError> {
        let is_expected = |opens| (opens == *expected).then_some(());
        let (principal, ()) = self.ticket_for(ticket, peer, is_expected)?;
        Ok(principal)
    }

    fn ticket_for<T>(
        &self,
        ticket: &Secret,
        peer: IpAddr,
        select: impl FnOnce(Opens) -> Option<T>,
    ) -> Result<(Principal, T), AuthError> {
        let Some(checks) = &self.checks else {
            return Err(AuthError::Refused);
        };
        let attempt = CredentialAttempt::new(ticket, peer);
        let read = checks.tickets.read(ticket, SystemTime::now());
        let read = read.and_then(|(who, opens)| {
            let opened = select(opens).ok_or(CredentialRefusal::Audience)?;
            Ok((checks.still_accepted(who)?, opened))
        });
        let (who, opened) = match read {
            Ok((who, opened)) => (Ok(who), Some(opened)),
            Err(refusal) => (Err(refusal), None),
        };
        let principal = checks.conclude(who, attempt)?;
        Ok((principal, opened.ok_or(AuthError::Refused)?))
    }

    /// Revokes with immediate effect on live sessions and, if `auth.revocations_file` is configured, on other relays
    /// that read it.
    ///
    /// # Errors
    /// [`RevokeError`], also if authentication is off and there is nothing to revoke.
    pub async fn revoke(&self, revocation: Revocation) -> Result<StoredIn, RevokeError> {
        match &self.checks {
            Some(checks) => checks.revocations.revoke(revocation).await,
            None => Err(RevokeError::Open),
        }
    }

    /// Applies revocations of another relay ([`RevocationSeal`] proves them). Returns those that are new.
    ///
    /// # Errors
    /// [`RevokeError`] if they could not be applied.
    pub async fn apply_revocations(
        &self,
        revocations: Vec<Revocation>,
    ) -> Result<Vec<Revocation>, RevokeError> {
        match &self.checks {
            Some(checks) => checks.revocations.apply(revocations).await,
            None => Err(RevokeError::Open),
        }
    }

    /// Returns the seal by which relays trust each other's revocations. `None` without `auth.ticket_key_file`.
    pub fn revocation_seal(&self) -> Option<&RevocationSeal> {
        self.checks.as_ref()?.seal.as_ref()
    }

    /// Subscribes to the revocations. `None` if authentication is off.
    pub fn revocations(&self) -> Option<watch::Receiver<Arc<RevocationList>>> {
        Some(self.checks.as_ref()?.revocations.watch())
    }

    /// Keeps keys, policy and revocations up to date until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        let Some(checks) = &self.checks else {
            return shutdown.cancelled().await;
        };
        let work = async {
            let mut ticks = interval(REVOCATION_CHECK_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut round = 0u32;
            loop {
                ticks.tick().await;
                round = round.wrapping_add(1);
                checks.refresh(round.is_multiple_of(KEY_CHECK_TICKS)).await;
            }
        };
        // Files are read on other threads: cancelling lets at most one read finish.
        let work = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = work => {}
            }
        };
        let rings = checks.rings.iter().map(|ring| ring.run(shutdown.clone()));
        let kubernetes = async {
            if let Some(kubernetes) = &checks.kubernetes {
                kubernetes.run(shutdown.clone()).await;
            }
        };
        tokio::join!(work, join_all(rings), kubernetes);
    }
}

#[cfg(test)]
mod tests;
