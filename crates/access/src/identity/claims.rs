//! The claims of a token: parsing and checking.
//!
//! Pure. Unknown claims are ignored. A known claim of the wrong type refuses the token, so that there is only one
//! reading of it. Called after the signature was verified ([`super::verifier`]), and by `ray-relay token inspect`.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;

use super::grants::{CredentialGrants, GrantLimit};
use super::jws::Jws;
use super::refusal::CredentialRefusal;
use super::subject::{MAX_NAME_CHARS, is_presentable};
use crate::policy::{BreakpointSelector, Pattern, Scope, Scopes};

/// Largest number of groups or audiences in a token.
const MAX_ENTRIES: usize = 512;

/// Largest number of patterns in one list of a selector.
const MAX_PATTERNS: usize = 64;

/// 9999-12-31: later times overflow in consumers.
const MAX_TIMESTAMP: u64 = 253_402_300_799;

/// The relay's requirements on tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectations {
    /// `aud` has to contain this.
    pub audience: String,
    /// `iss` has to be one of these. Empty: only its type is checked.
    pub issuers: Vec<String>,
    /// Tolerated clock difference.
    pub leeway: Duration,
    /// Largest time from `iat` to `exp`.
    pub max_lifetime: Option<Duration>,
}

/// The known claims, of any type.
#[derive(Deserialize, Default)]
struct RawClaims {
    #[serde(default, deserialize_with = "present")]
    sub: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    jti: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    exp: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    nbf: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    iat: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    aud: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    iss: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    scope: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    ray_relay: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    groups: Option<Value>,
}

/// `null` is a value: an empty claim is malformed, not absent.
fn present<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

/// Claims of the right types, before times and audience are checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// The subject that the token speaks for (`sub`, RFC 7519 section 4.1.2).
    pub subject: String,
    /// The id by which the token can be revoked (`jti`).
    pub id: Option<String>,
    /// When the token expires (`exp`).
    pub expires: SystemTime,
    /// When the token becomes valid (`nbf`).
    pub not_before: Option<SystemTime>,
    /// When the token was issued (`iat`).
    pub issued: Option<SystemTime>,
    /// The audiences of the token (`aud`).
    pub audience: Vec<String>,
    /// The issuer of the token (`iss`).
    pub issuer: Option<String>,
    /// `groups`, and `scope` with `ray_relay`.
    pub grants: CredentialGrants,
}

impl Claims {
    /// Parses the claims of `token`, which has to be an access token and no ticket. The caller has verified its
    /// signature.
    ///
    /// # Errors
    /// [`CredentialRefusal`].
    pub fn of(token: &Jws<'_>) -> Result<Self, CredentialRefusal> {
        token.is_token()?;
        Self::read(token.claims()?)
    }

    fn read(raw: RawClaims) -> Result<Self, CredentialRefusal> {
        let required = |claim: Option<Value>, name| claim.ok_or(CredentialRefusal::Missing(name));
        let expires = date(&required(raw.exp, "exp")?, "exp")?;
        let audience = texts(required(raw.aud, "aud")?, "aud")?;
        let subject = text(required(raw.sub, "sub")?, "sub")?;
        if !is_presentable(&subject) {
            return Err(CredentialRefusal::Claim("sub"));
        }
        let id = raw.jti.map(|jti| text(jti, "jti")).transpose()?;
        if id.as_ref().is_some_and(|id| !is_presentable(id)) {
            return Err(CredentialRefusal::Claim("jti"));
        }
        let optional = |claim: Option<Value>, name| claim.map(|c| date(&c, name)).transpose();
        Ok(Self {
            subject,
            id,
            expires,
            not_before: optional(raw.nbf, "nbf")?,
            issued: optional(raw.iat, "iat")?,
            audience,
            issuer: raw.iss.map(|iss| text(iss, "iss")).transpose()?,
            grants: CredentialGrants {
                groups: raw
                    .groups
                    .map(|groups| texts(groups, "groups"))
                    .transpose()?
                    .unwrap_or_default(),
                limit: limit(raw.scope, raw.ray_relay)?,
            },
        })
    }

    /// Checks them against `expected` at `now`.
    ///
    /// # Errors
    /// [`CredentialRefusal`].
    pub fn check(&self, expected: &Expectations, now: SystemTime) -> Result<(), CredentialRefusal> {
        if !self.audience.contains(&expected.audience) {
            return Err(CredentialRefusal::Audience);
        }
        let known = |iss: &String| expected.issuers.contains(iss);
        if !expected.issuers.is_empty() && !self.issuer.as_ref().is_some_and(known) {
            return Err(CredentialRefusal::Issuer);
        }
        if self.expires + expected.leeway <= now {
            return Err(CredentialRefusal::Expired);
        }
        let soon = now + expected.leeway;
        // A time of issue in the future would outlive the revocation of all current credentials of the subject.
        if self.not_before.is_some_and(|at| at > soon) || self.issued.is_some_and(|at| at > soon) {
            return Err(CredentialRefusal::NotYet);
        }
        if let Some(longest) = expected.max_lifetime {
            let issued = self.issued.ok_or(CredentialRefusal::Missing("iat"))?;
            if self.expires.duration_since(issued).unwrap_or_default() > longest {
                return Err(CredentialRefusal::Lifetime);
            }
        }
        Ok(())
    }
}

fn limit(
    scope: Option<Value>,
    selector: Option<Value>,
) -> Result<Option<GrantLimit>, CredentialRefusal> {
    if scope.is_none() && selector.is_none() {
        return Ok(None);
    }
    Ok(Some(GrantLimit {
        scopes: scope.map(scopes).transpose()?,
        selector: selector.map(read_selector).transpose()?.unwrap_or_default(),
    }))
}

/// Parses the scopes of the relay. Issuers may add others, which grant nothing here.
fn scopes(claim: Value) -> Result<Scopes, CredentialRefusal> {
    let Value::String(words) = claim else {
        return Err(CredentialRefusal::Claim("scope"));
    };
    let known = words.split([',', ' ']).filter_map(Scope::named);
    Ok(known.fold(Scopes::NONE, Scopes::with))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawNarrowing {
    #[serde(deserialize_with = "present")]
    clusters: Option<Vec<String>>,
    #[serde(deserialize_with = "present")]
    jobs: Option<Vec<String>>,
    #[serde(deserialize_with = "present")]
    namespaces: Option<Vec<String>>,
    #[serde(deserialize_with = "present")]
    tasks: Option<Vec<String>>,
    #[serde(deserialize_with = "present")]
    nodes: Option<Vec<String>>,
}

/// Parses the selector strictly: an unknown key, or a list that is empty or null and so would not narrow, refuses the
/// token.
fn read_selector(claim: Value) -> Result<BreakpointSelector, CredentialRefusal> {
    const WRONG: CredentialRefusal = CredentialRefusal::Claim("ray_relay");
    if !claim.is_object() {
        return Err(WRONG);
    }
    let raw: RawNarrowing = serde_json::from_value(claim).map_err(|_| WRONG)?;
    let patterns = |list: Option<Vec<String>>| match list {
        None => Ok(Vec::new()),
        Some(list)
            if (1..=MAX_PATTERNS).contains(&list.len())
                && list.iter().all(|p| is_presentable(p)) =>
        {
            Ok(list.into_iter().map(Pattern::new).collect())
        }
        Some(_) => Err(WRONG),
    };
    Ok(BreakpointSelector {
        clusters: patterns(raw.clusters)?,
        jobs: patterns(raw.jobs)?,
        namespaces: patterns(raw.namespaces)?,
        tasks: patterns(raw.tasks)?,
        nodes: patterns(raw.nodes)?,
    })
}

fn text(claim: Value, name: &'static str) -> Result<String, CredentialRefusal> {
    match claim {
        Value::String(text) if (1..=4 * MAX_NAME_CHARS).contains(&text.len()) => Ok(text),
        _ => Err(CredentialRefusal::Claim(name)),
    }
}

/// Parses a text or a list of texts.
fn texts(claim: Value, name: &'static str) -> Result<Vec<String>, CredentialRefusal> {
    match claim {
        Value::Array(items) if items.len() <= MAX_ENTRIES => {
            items.into_iter().map(|item| text(item, name)).collect()
        }
        Value::Array(_) => Err(CredentialRefusal::Claim(name)),
        one => Ok(vec![text(one, name)?]),
    }
}

/// Parses a NumericDate (RFC 7519 section 2): seconds, whose fraction is cut off.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn date(claim: &Value, name: &'static str) -> Result<SystemTime, CredentialRefusal> {
    let seconds = match claim {
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            (float >= 0.0 && float <= MAX_TIMESTAMP as f64).then_some(float as u64)
        }),
        _ => None,
    };
    match seconds {
        Some(seconds) if seconds <= MAX_TIMESTAMP => {
            Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        }
        _ => Err(CredentialRefusal::Claim(name)),
    }
}
