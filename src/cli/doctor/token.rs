//! Checks the token for the relay: its claims, and the relay's answer to it.
//!
//! Only the relay knows whether the signature is valid and the token not revoked, and its refusal does not say which.
//! The claims are read without verifying the signature, to name the likely cause.

use std::time::{Duration, SystemTime};

use crate::cli::RelayArgs;
use crate::cli::relay_client::RelayError;
use crate::cli::relay_token::VARIABLE;
use ray_relay_access::identity::{Claims, Jws};
use ray_relay_base::wire::human_time::moment;
use ray_relay_base::wire::text::{replaced, shortened};
use ray_relay_view::doctor::{ChainLink, Fault, Finding};

/// Longer than any relay reads.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// A token that expires sooner gets a warning.
const EXPIRY_WARNING: Duration = Duration::from_secs(600);

/// The credential for the relay.
pub(super) struct PresentedToken {
    /// Source of the token; `None`: there is none.
    source: Option<String>,
    /// Its claims; `None`: it cannot be parsed.
    claims: Option<Claims>,
    /// Whether it is, or would be, a Kubernetes token.
    of_kubernetes: bool,
    /// Whether there is a client certificate.
    certificate: bool,
    now: SystemTime,
}

/// Returns the token that the other commands would send.
///
/// # Errors
/// [`RelayError::Token`].
pub(super) async fn presented(
    args: &RelayArgs,
    now: SystemTime,
) -> Result<PresentedToken, RelayError> {
    let token = args.shown_token().await?;
    let of_kubernetes = args.by_kubernetes();
    let source = token
        .as_ref()
        .map(|_| match (of_kubernetes, &args.token.token_file) {
            (Some(reached), _) => reached.source(),
            (None, Some(path)) => replaced(&path.display().to_string()).into_owned(),
            (None, None) => VARIABLE.to_owned(),
        });
    // Claims signed by Kubernetes tell nothing about the relay's permissions.
    let claims = token.as_ref().filter(|_| of_kubernetes.is_none());
    let claims = claims.and_then(|token| {
        let jws = Jws::parse(token, MAX_TOKEN_BYTES).ok()?;
        Claims::of(&jws).ok()
    });
    Ok(PresentedToken {
        source,
        claims,
        of_kubernetes: of_kubernetes.is_some(),
        certificate: args.tls.client_cert.is_some(),
        now,
    })
}

impl PresentedToken {
    /// Findings if the relay accepts the token.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let Some(source) = &self.source else {
            return vec![match self.certificate {
                true => Finding::ok(ChainLink::Token, "the relay takes the client certificate"),
                false => Finding::ok(ChainLink::Token, "the relay asks for no token here"),
            }];
        };
        let Some(claims) = &self.claims else {
            let says = format!("the relay takes the token of {source}");
            return vec![Finding::ok(ChainLink::Token, says)];
        };
        let permits = match claims.grants.limit.as_ref().and_then(|limit| limit.scopes) {
            Some(scopes) => format!("at most {}", shortened(&scopes.to_string(), 200)),
            None => "what the relay's policy file says".to_owned(),
        };
        let (subject, expires) = (replaced(&claims.subject), moment(claims.expires, self.now));
        let says = format!(
            "the relay takes the token of {source}: {subject}, who may do {permits}; it expires {expires}"
        );
        let remaining = claims.expires.duration_since(self.now).unwrap_or_default();
        vec![match remaining < EXPIRY_WARNING {
            true => Finding::warning(ChainLink::Token, says).next(ANOTHER),
            false => Finding::ok(ChainLink::Token, says),
        }]
    }

    /// The finding if the relay refuses the token with `error`.
    pub(super) fn refused(&self, error: &RelayError) -> Finding {
        let wrong = |says: String| Finding::error(ChainLink::Token, Fault::NotPermitted, says);
        let denied = matches!(error, RelayError::Refused { status, .. } if status.as_u16() == 403);
        match (&self.source, &self.claims) {
            // The relay has authenticated the user, and names the missing permission.
            _ if denied => wrong(error.to_string())
                .next("ask the issuer of your token for one that permits it"),
            (Some(source), _) if self.of_kubernetes => wrong(format!(
                "the relay refuses the token of {source}: it is for another audience, or the relay takes none of Kubernetes (`kubernetes.enabled`)"
            ))
            .next(BY_ACCOUNT),
            (None, _) if self.of_kubernetes => wrong(
                "the relay wants a token, and the kubeconfig has none: its user is known by a certificate".to_owned(),
            )
            .next(BY_ACCOUNT),
            (None, _) => wrong("the relay wants a token, and none is given".to_owned())
                .next("give one with --token-file FILE or RAY_RELAY_TOKEN"),
            (Some(source), Some(claims)) if claims.expires <= self.now => {
                let expired = moment(claims.expires, self.now);
                wrong(format!("the token of {source} expired {expired}")).next(ANOTHER)
            }
            (Some(source), Some(claims)) if claims.not_before > Some(self.now) => wrong(format!(
                "the token of {source} is not valid yet, by the clock of this machine"
            ))
            .next("is the clock of this machine right, and the issuer's?"),
            (Some(source), Some(_)) => wrong(format!(
                "the relay refuses the token of {source}: it is revoked, for another audience, or signed with a key that the relay does not know"
            ))
            .next("is it of this relay's issuer? `ray-relay token inspect` shows what it says"),
            (Some(source), None) => wrong(format!(
                "the relay refuses what {source} holds, which is no token of ray-relay's"
            ))
            .next("is it Ray's own token? The relay wants one of its own: --token-file FILE or RAY_RELAY_TOKEN"),
        }
    }
}

const BY_ACCOUNT: &str = "show it one that is made for it, of a ServiceAccount that may debug: --as-service-account NAME (`kubectl get serviceaccounts`)";

const ANOTHER: &str = "get a new one from its issuer (`ray-relay token mint`)";
