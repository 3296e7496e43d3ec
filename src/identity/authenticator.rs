//! From a credential to a principal, for every protocol.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use super::basis::Basis;
use super::claims::Expectations;
use super::key_files::KeyFiles;
use super::keys::KeyRing;
use super::principal::{Credential, Principal, Recognised, Roles};
use super::refusal::Refusal;
use super::revocation::{Kept, LiveRevocations, Revocation, RevocationList, RevokeError};
use super::secret::Secret;
use super::setup::Parts;
use super::standing::Standing;
use super::subject::is_presentable;
use super::throttle::{Digest, Limits, Throttle, Verdict};
use super::ticket::Tickets;
use super::verifier::{Failure, Verifier};
use crate::config::{Auth, Problems};
use crate::policy::{Access, Narrowing, Policy, PolicyFile, Rule, Scopes};
use crate::registry::{Breakpoint, BreakpointId};

/// How often the list of revocations is looked at: sessions end within a second of a change.
const LOOK_AT_REVOCATIONS: Duration = Duration::from_millis(250);

/// Keys and policy are looked at with every so many looks at the revocations.
const LOOKS_PER_KEYS: u32 = 4;

/// The configuration of identities cannot be put to work.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

/// Why somebody was not recognised. `Display` is a sentence for the client, and the same for every way in which a
/// credential can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// None was presented.
    #[error(
        "this relay wants a token: get one from whoever runs it (`ray-relay token mint`), and give it as `Authorization: Bearer`, RAY_RELAY_TOKEN or \"rayRelay\": {{\"token\": …}}"
    )]
    Missing,
    /// It is not accepted.
    #[error(
        "the token was refused: it is wrong, has expired, was revoked or is not meant for this relay (`ray-relay token inspect` shows what it says)"
    )]
    Refused,
    /// Too many failures from there.
    #[error("too many refused attempts from your address; try again in {} s", .retry_after.as_secs().max(1))]
    Throttled {
        /// When the next attempt is looked at.
        retry_after: Duration,
    },
    /// It cannot be checked at the moment.
    #[error("the relay cannot check tokens at the moment: {0}")]
    Unavailable(String),
}

/// What somebody outside says of a token that no key here has signed.
#[derive(Debug, Clone)]
pub struct Vouched {
    /// The name.
    pub subject: String,
    /// By what it was recognised. Revoking the subject ends it while that is on the list.
    pub credential: Credential,
    /// When it is over by itself.
    pub expires: Option<SystemTime>,
    /// Groups, and what it is limited to; without a policy file that is what is allowed.
    pub basis: Basis,
    /// What its roles allow: no more than that, whatever the policy file says, and all of that without one.
    pub(super) roles: Option<Roles>,
    /// Whether it still vouches, in the time to come.
    pub(super) standing: Option<Standing>,
}

/// Somebody outside who knows tokens: Kubernetes.
pub trait Voucher: Send + Sync {
    /// Whose `token` this is. For a bounded time.
    ///
    /// # Errors
    /// [`AuthError::Refused`] where it does not know it, [`AuthError::Unavailable`] where it cannot be asked.
    fn vouch<'a>(&'a self, token: &'a Secret) -> BoxFuture<'a, Result<Vouched, AuthError>>;

    /// Who is already there by the credential of that `fingerprint`, for tickets made of it. `None`: nobody is, and so
    /// nobody would notice that it ends.
    fn present(&self, fingerprint: &str) -> Option<Vouched>;

    /// Does what has to go on behind, until `shutdown`.
    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, ()>;
}

/// Where keys and recognition come from beside the files of `[auth]`.
#[derive(Default)]
pub struct Issuers {
    /// Further keys.
    pub rings: Vec<Arc<dyn KeyRing>>,
    /// Who is asked about a token that no key has signed.
    pub voucher: Option<Arc<dyn Voucher>>,
}

/// Recognises principals. One for the process.
pub struct Authenticator {
    /// `None`: nobody is authenticated.
    checks: Option<Checks>,
    #[cfg(test)]
    fixed: Option<super::fixed::Fixed>,
}

struct Checks {
    verifier: Verifier,
    voucher: Option<Arc<dyn Voucher>>,
    /// Those beside `keys`.
    rings: Vec<Arc<dyn KeyRing>>,
    keys: Arc<KeyFiles>,
    policy: Option<Arc<PolicySlot>>,
    revocations: Arc<LiveRevocations>,
    tickets: Tickets,
    throttle: Mutex<Throttle>,
    summary: String,
}

struct PolicySlot {
    file: Mutex<PolicyFile>,
    current: RwLock<Arc<Policy>>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authenticator")
            .field(&self.summary())
            .finish()
    }
}

impl Authenticator {
    /// Nobody is authenticated; everybody is [`Principal::anonymous`].
    pub fn open() -> Arc<Self> {
        Arc::new(Self::with(None))
    }

    /// Knows the tokens of `table`, each with its principal or answer, and no others; nobody is anonymous.
    #[cfg(test)]
    pub(crate) fn fixed<T, A>(table: impl IntoIterator<Item = (T, A)>) -> Arc<Self>
    where
        T: Into<String>,
        A: Into<super::fixed::Answer>,
    {
        Arc::new(Self {
            checks: None,
            fixed: Some(super::fixed::Fixed::new(table)),
        })
    }

    fn with(checks: Option<Checks>) -> Self {
        Self {
            checks,
            #[cfg(test)]
            fixed: None,
        }
    }

    /// As `auth` says, with `issuers` beside it. [`Authenticator::open`] where there is nobody to recognise anybody.
    /// Reads files, and so blocks.
    ///
    /// # Errors
    /// [`SetupError`] with all problems.
    pub fn from_config(auth: &Auth, issuers: Issuers) -> Result<Arc<Self>, SetupError> {
        if !auth.is_on() && issuers.rings.is_empty() && issuers.voucher.is_none() {
            return Ok(Self::open());
        }
        Ok(Arc::new(Self::with(Some(Checks::new(auth, issuers)?))))
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
        #[cfg(test)]
        if self.fixed.is_some() {
            return true;
        }
        self.checks.is_some()
    }

    /// By what people are recognised, for the log. `None`: nobody is.
    pub fn summary(&self) -> Option<&str> {
        self.checks.as_ref().map(|checks| checks.summary.as_str())
    }

    /// The principal of those who present nothing, where that is enough.
    pub fn anonymous(&self) -> Option<Principal> {
        (!self.is_on()).then(Principal::anonymous)
    }

    /// Whose `token` this is. `peer` is where it came from.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn token(&self, token: &Secret, peer: IpAddr) -> Result<Principal, AuthError> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return fixed.token(token);
        }
        let Some(checks) = &self.checks else {
            return Ok(Principal::anonymous());
        };
        let digest = checks.admit(token, peer)?;
        let now = SystemTime::now();
        let who = match checks.verifier.verify(token, now).await {
            Ok(who) => Ok(who),
            Err(Failure::Refused(refusal) | Failure::Foreign(refusal @ Refusal::TooLong)) => {
                Err(refusal)
            }
            Err(Failure::Foreign(refusal)) => match checks.vouch(token).await {
                Ok(vouched) => vouched.recognised(),
                Err(AuthError::Refused) => Err(refusal),
                Err(other) => return Err(other),
            },
            Err(Failure::Unavailable(why)) => match checks.vouch(token).await {
                Ok(vouched) => vouched.recognised(),
                Err(_) => return Err(AuthError::Unavailable(why)),
            },
        };
        checks.conclude(who, digest, peer)
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
            return Ok(Principal::anonymous());
        };
        let vouched = Vouched {
            subject: subject.to_owned(),
            credential: Credential::Certificate {
                fingerprint: fingerprint.to_owned(),
            },
            expires: Some(expires),
            basis: Basis::default(),
            roles: None,
            standing: None,
        };
        vouched
            .recognised()
            .and_then(|who| checks.principal(who))
            .map_err(|refusal| {
                debug!(%refusal, "a client certificate was refused");
                AuthError::Refused
            })
    }

    /// A ticket with which `principal` can open further sessions to `breakpoint` within a short time. `None` where
    /// nobody is authenticated.
    pub fn issue_ticket(&self, principal: &Principal, breakpoint: &Breakpoint) -> Option<Secret> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return Some(fixed.issue_ticket(principal, breakpoint));
        }
        let checks = self.checks.as_ref()?;
        checks
            .tickets
            .issue(principal, breakpoint, SystemTime::now())
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
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return fixed.ticket(ticket);
        }
        let Some(checks) = &self.checks else {
            return Err(AuthError::Refused);
        };
        let digest = checks.admit(ticket, peer)?;
        let (who, id) = match checks.tickets.read(ticket, SystemTime::now()) {
            Ok((who, id)) => (checks.still_vouched(who), Some(id)),
            Err(refusal) => (Err(refusal), None),
        };
        let principal = checks.conclude(who, digest, peer)?;
        Ok((principal, id.ok_or(AuthError::Refused)?))
    }

    /// Revokes, with effect on live sessions at once and, where `auth.revocations_file` is configured, on other
    /// relays that read it.
    ///
    /// # Errors
    /// [`RevokeError`]; also where nobody is authenticated, so that there is nothing to revoke.
    pub async fn revoke(&self, revocation: Revocation) -> Result<Kept, RevokeError> {
        match &self.checks {
            Some(checks) => checks.revocations.revoke(revocation).await,
            None => Err(RevokeError::Open),
        }
    }

    /// What is revoked, as principals watch it. `None` where nobody is authenticated.
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
                checks.look(looks.is_multiple_of(LOOKS_PER_KEYS)).await;
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
        let voucher = checks.voucher.iter().map(|v| v.run(shutdown.clone()));
        let others = join_all(rings.chain(voucher));
        tokio::join!(work, others);
    }
}

impl Checks {
    fn new(auth: &Auth, issuers: Issuers) -> Result<Self, SetupError> {
        let parts = Parts::read(auth).map_err(|problems| SetupError(problems.to_string()))?;
        let Parts {
            keys,
            policy,
            revocations,
            tickets,
        } = parts;
        let keys = Arc::new(keys);
        let mut by = vec![match keys.len() {
            1 => "1 key".to_owned(),
            n => format!("{n} keys"),
        }];
        if !issuers.rings.is_empty() {
            by.push("a key set".to_owned());
        }
        if issuers.voucher.is_some() {
            by.push("Kubernetes".to_owned());
        }
        if policy.is_some() {
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
        let verifier = Verifier::new(expected, auth.max_token, rings)
            .map_err(|why| SetupError(why.to_string()))?;
        let limits = Limits {
            free: u32::try_from(auth.throttle_after).unwrap_or(u32::MAX),
            first: auth.throttle_delay,
            longest: auth.throttle_max,
        };
        Ok(Self {
            verifier,
            voucher: issuers.voucher,
            rings: issuers.rings,
            keys,
            policy: policy.map(|file| {
                Arc::new(PolicySlot {
                    current: RwLock::new(file.policy().clone()),
                    file: Mutex::new(file),
                })
            }),
            revocations: Arc::new(revocations),
            tickets,
            throttle: Mutex::new(Throttle::new(limits)),
            summary: by.join(", "),
        })
    }

    /// What somebody outside says of a token that no key here has signed.
    async fn vouch(&self, token: &Secret) -> Result<Vouched, AuthError> {
        match &self.voucher {
            Some(voucher) => voucher.vouch(token).await,
            None => Err(AuthError::Refused),
        }
    }

    /// Whether a credential from `peer` is looked at, and its digest.
    fn admit(&self, credential: &Secret, peer: IpAddr) -> Result<Digest, AuthError> {
        let hash = digest(&SHA256, credential.expose().as_bytes());
        let mut of_it = Digest::default();
        of_it.copy_from_slice(hash.as_ref());
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        match throttle.ask(peer, &of_it, Instant::now()) {
            Verdict::Look | Verdict::Try => Ok(of_it),
            Verdict::Wait(retry_after) => Err(AuthError::Throttled { retry_after }),
        }
    }

    /// The answer to a credential, which is remembered for the next one from there.
    fn conclude(
        &self,
        who: Result<Recognised, Refusal>,
        digest: Digest,
        peer: IpAddr,
    ) -> Result<Principal, AuthError> {
        let principal = who.and_then(|who| self.principal(who));
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        match principal {
            Ok(principal) => {
                throttle.passed(digest, Instant::now());
                Ok(principal)
            }
            Err(refusal) => {
                debug!(%refusal, %peer, "a credential was refused");
                if let Some(wait) = throttle.failed(peer, Instant::now()) {
                    debug!(%peer, seconds = wait.as_secs(), "back-off");
                }
                Err(AuthError::Refused)
            }
        }
    }

    fn principal(&self, who: Recognised) -> Result<Principal, Refusal> {
        let policy = self.policy.as_ref().map(|slot| slot.policy());
        let access = match (&who.roles, policy.as_deref()) {
            (None, policy) => who.basis.access(&who.subject, policy),
            (Some(roles), Some(policy)) => policy
                .access(&who.subject, &who.basis.groups)
                .limited_to_any(roles.clone()),
            (Some(roles), None) => Access::new(roles.iter().map(rule).collect()),
        };
        let principal = Principal::issued(who, access, self.revocations.watch());
        match principal.is_over() {
            None => Ok(principal),
            Some(super::Ended::Expired) => Err(Refusal::Expired),
            Some(super::Ended::Revoked) => Err(Refusal::Revoked),
        }
    }

    /// What a ticket says of somebody whom Kubernetes vouched for is worth as much as the token that it came from:
    /// the relay that shows that one again and again is asked.
    fn still_vouched(&self, who: Recognised) -> Result<Recognised, Refusal> {
        let Credential::Kubernetes { fingerprint } = &who.credential else {
            return Ok(who);
        };
        let voucher = self.voucher.as_ref().ok_or(Refusal::Revoked)?;
        let vouched = voucher.present(fingerprint).ok_or(Refusal::Revoked)?;
        vouched.recognised()
    }

    async fn look(&self, at_keys_too: bool) {
        let (revocations, keys) = (self.revocations.clone(), self.keys.clone());
        let policy = self.policy.clone();
        let reading = tokio::task::spawn_blocking(move || {
            revocations.poll(SystemTime::now());
            if at_keys_too {
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
    fn policy(&self) -> Arc<Policy> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    fn reload(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match file.reload() {
            Ok(false) => {}
            Ok(true) => {
                info!("the policy file was read again; it holds for those who come from now on");
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = file.policy().clone();
            }
            Err(why) => {
                error!(%why, "the policy file cannot be used; the old rules stay in force until it is mended");
            }
        }
    }
}

impl Vouched {
    fn recognised(self) -> Result<Recognised, Refusal> {
        if !is_presentable(&self.subject) {
            return Err(Refusal::Claim("sub"));
        }
        Ok(Recognised {
            subject: self.subject,
            credential: self.credential,
            expires: self.expires,
            issued: None,
            basis: self.basis,
            roles: self.roles,
            standing: self.standing,
        })
    }
}

/// Of a role.
fn rule((scopes, narrowing): &(Scopes, Narrowing)) -> Arc<Rule> {
    Arc::new(Rule {
        scopes: *scopes,
        narrowing: narrowing.clone(),
        ..Rule::default()
    })
}

#[cfg(test)]
mod tests;
