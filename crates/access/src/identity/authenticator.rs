//! From a credential to a principal, for every protocol.

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

/// How often the list of revocations is looked at: sessions end within a second of a change.
const LOOK_AT_REVOCATIONS: Duration = Duration::from_millis(250);

/// Keys and policy are checked with every so many checks of the revocations.
const KEY_CHECK_TICKS: u32 = 4;

/// Recognises principals. One for the process.
pub struct Authenticator {
    /// `None`: authentication is off.
    checks: Option<Checks>,
    /// Everybody, where authentication is off.
    everybody: Principal,
    /// For which audience tokens have to be, where Kubernetes alone issues any.
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
    /// Authentication is off; every client is [`Principal::anonymous`].
    pub fn open() -> Arc<Self> {
        Arc::new(Self::new(None))
    }

    /// As `auth` says, with `issuers` beside it. [`Authenticator::open`] where no issuer is configured.
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
        let everybody = Principal::anonymous();
        Self {
            checks,
            everybody,
            audience_in_kubernetes: None,
        }
    }

    /// Whether the files that `auth` names can be put to work. Reads them, and so blocks.
    ///
    /// # Errors
    /// All [`Problems`].
    pub fn check(auth: &Auth) -> Result<(), Problems> {
        match auth.is_on() {
            true => Parts::read(auth).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Whether credentials are asked for.
    pub fn is_on(&self) -> bool {
        self.checks.is_some()
    }

    /// For which audience tokens have to be, where Kubernetes alone issues any: who has none is told.
    pub fn audience_in_kubernetes(&self) -> Option<Arc<str>> {
        self.audience_in_kubernetes.clone()
    }

    /// By what people are recognised, for the log. `None`: authentication is off.
    pub fn summary(&self) -> Option<&str> {
        self.checks.as_ref().map(|checks| checks.summary.as_str())
    }

    /// The principal of those who present nothing, where that is enough.
    pub fn anonymous(&self) -> Option<Principal> {
        (!self.is_on()).then(|| self.everybody.clone())
    }

    /// Whose `token` this is. `peer` is where it came from.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn token(&self, token: &Secret, peer: IpAddr) -> Result<Principal, AuthError> {
        let Some(checks) = &self.checks else {
            return Ok(self.everybody.clone());
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

    /// Who presented the client certificate with this `fingerprint` (SHA-256 in hex), which was verified and is for
    /// `subject` until `expires`. What it may do is in the policy file alone.
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
            return Ok(self.everybody.clone());
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

    /// Who `carried` is, as another process of this user has recognised it, with the rights that the policy gives now; `None`:
    /// the time of that is over, or it is to be recognised otherwise than it was.
    pub fn carried(&self, carried: Option<CarriedIdentity>) -> Option<Principal> {
        match (&self.checks, carried) {
            (None, None) => Some(self.everybody.clone()),
            (Some(checks), Some(carried)) => checks.principal(carried.into_verified()).ok(),
            (None, Some(_)) | (Some(_), None) => None,
        }
    }

    /// A ticket with which `principal` can open further sessions to `breakpoint` within a short time. `None` where
    /// authentication is off.
    pub fn issue_ticket(&self, principal: &Principal, breakpoint: &Breakpoint) -> Option<Secret> {
        self.issue(principal, &Opens::Breakpoint(breakpoint.id))
    }

    /// A ticket for what `opens` names.
    pub fn issue(&self, principal: &Principal, opens: &Opens) -> Option<Secret> {
        let tickets = &self.checks.as_ref()?.tickets;
        tickets.issue(principal, opens, SystemTime::now())
    }

    /// Whose `ticket` this is, and the one breakpoint that it is for.
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

    /// Whose `ticket` this is, which opens exactly what is `wanted`.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn opens(
        &self,
        ticket: &Secret,
        peer: IpAddr,
        wanted: &Opens,
    ) -> Result<Principal, AuthError> {
        let is_wanted = |opens| (opens == *wanted).then_some(());
        let (principal, ()) = self.ticket_for(ticket, peer, is_wanted)?;
        Ok(principal)
    }

    fn ticket_for<T>(
        &self,
        ticket: &Secret,
        peer: IpAddr,
        wanted: impl FnOnce(Opens) -> Option<T>,
    ) -> Result<(Principal, T), AuthError> {
        let Some(checks) = &self.checks else {
            return Err(AuthError::Refused);
        };
        let attempt = CredentialAttempt::new(ticket, peer);
        let read = checks.tickets.read(ticket, SystemTime::now());
        let read = read.and_then(|(who, opens)| {
            let opened = wanted(opens).ok_or(CredentialRefusal::Audience)?;
            Ok((checks.still_accepted(who)?, opened))
        });
        let (who, opened) = match read {
            Ok((who, opened)) => (Ok(who), Some(opened)),
            Err(refusal) => (Err(refusal), None),
        };
        let principal = checks.conclude(who, attempt)?;
        Ok((principal, opened.ok_or(AuthError::Refused)?))
    }

    /// Revokes, with effect on live sessions at once and, where `auth.revocations_file` is configured, on other
    /// relays that read it.
    ///
    /// # Errors
    /// [`RevokeError`]; also where authentication is off, so that there is nothing to revoke.
    pub async fn revoke(&self, revocation: Revocation) -> Result<StoredIn, RevokeError> {
        match &self.checks {
            Some(checks) => checks.revocations.revoke(revocation).await,
            None => Err(RevokeError::Open),
        }
    }

    /// Revokes what another relay has ([`RevocationSeal`] says so), as far as that is news, which is told.
    ///
    /// # Errors
    /// [`RevokeError`], where it does not hold.
    pub async fn hear(&self, said: Vec<Revocation>) -> Result<Vec<Revocation>, RevokeError> {
        match &self.checks {
            Some(checks) => checks.revocations.hear(said).await,
            None => Err(RevokeError::Open),
        }
    }

    /// By which relays believe each other what is revoked. `None` without `auth.ticket_key_file`.
    pub fn revocation_seal(&self) -> Option<&RevocationSeal> {
        self.checks.as_ref()?.seal.as_ref()
    }

    /// What is revoked, as principals watch it. `None` where authentication is off.
    pub fn revocations(&self) -> Option<watch::Receiver<Arc<RevocationList>>> {
        Some(self.checks.as_ref()?.revocations.watch())
    }

    /// Keeps keys, policy and revocations fresh until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        let Some(checks) = &self.checks else {
            return shutdown.cancelled().await;
        };
        let work = async {
            let mut ticks = interval(LOOK_AT_REVOCATIONS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut looks = 0u32;
            loop {
                ticks.tick().await;
                looks = looks.wrapping_add(1);
                checks.look(looks.is_multiple_of(KEY_CHECK_TICKS)).await;
            }
        };
        // Files are read on other threads: cancelling leaves at most one read to its end.
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
