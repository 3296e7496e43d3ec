//! `ray-relay token inspect`: shows a token's claims, and whether a relay would accept it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};

use super::input::{TokenError, secret, token_from_stdin};
use crate::cli::failure::Failure;
use ray_relay_access::identity::{Claims, CredentialRefusal, Expectations, Jws, KeyFiles, Secret};
use ray_relay_access::policy::Pattern;
use ray_relay_base::wire::human_time::moment;
use ray_relay_base::wire::text::replaced;

/// `token inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The token; without it, or with -, it is read from standard input, where no other process sees
    /// it
    #[arg(value_name = "TOKEN", value_parser = secret, hide_possible_values = true)]
    pub token: Option<Secret>,
    /// Verify it with this key, as the relay does; may be given more than once
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub key: Vec<PathBuf>,
    /// auth.audience of the relay
    #[arg(long, value_name = "NAME", default_value = "ray-relay")]
    pub audience: String,
    /// auth.issuer of the relay; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub issuer: Vec<String>,
    /// Print JSON: header, claims and what is wrong
    #[arg(long)]
    pub json: bool,
}

/// Default of `auth.leeway`.
const LEEWAY: Duration = Duration::from_secs(30);

/// Longer than any relay reads.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay token inspect < ada.token
  echo \"$RAY_RELAY_TOKEN\" | ray-relay token inspect --key relay.pub
  ray-relay token inspect --json < ada.token | jq .claims.exp

Without --key the signature is not checked: anyone could have written this token. The relay's list of revocations and its policy file are not looked at.
Exit code 0: a relay with these keys and this audience would take it. 1: it would not.";

pub(super) fn run(args: InspectArgs) -> Result<(), Failure> {
    let token = match args.token {
        Some(token) if token.expose() != "-" => token,
        _ => token_from_stdin()?,
    };
    let keys = KeyFiles::open(&args.key).map_err(first)?;
    let expected = Expectations {
        audience: args.audience,
        issuers: args.issuer,
        leeway: LEEWAY,
        max_lifetime: None,
    };
    let now = SystemTime::now();
    let jws = Jws::parse(token.expose(), MAX_TOKEN_BYTES).map_err(TokenError::Refused)?;
    let signature = match args.key.is_empty() {
        true => None,
        false => Some(verify(&keys, &jws)),
    };
    let claims = Claims::of(&jws);
    let problem = match (&signature, &claims) {
        (Some(Err(refusal)), _) | (_, Err(refusal)) => Err(*refusal),
        (_, Ok(claims)) => claims.check(&expected, now),
    };
    let mut out = io::stdout().lock();
    if args.json {
        let details = json!({
            "header": {"alg": jws.algorithm.name(), "kid": jws.kid},
            "claims": jws.claims::<Value>().unwrap_or(Value::Null),
            "id": id(&jws, claims.as_ref().ok()),
            "verified": signature.map(|verified| verified.is_ok()),
            "problem": problem.err().map(|refusal| refusal.to_string()),
        });
        writeln!(out, "{details:#}")?;
    } else {
        write!(
            out,
            "{}",
            description(&jws, claims.as_ref().ok(), signature, now)
        )?;
    }
    problem.map_err(TokenError::Refused)?;
    Ok(())
}

fn first(errors: Vec<ray_relay_access::identity::KeyFileError>) -> TokenError {
    match errors.into_iter().next() {
        Some(error) => error.into(),
        None => TokenError::NoToken,
    }
}

fn verify(keys: &KeyFiles, jws: &Jws<'_>) -> Result<(), CredentialRefusal> {
    let (message, signature) = jws.to_verify();
    let fitting = keys.fitting(jws.kid.as_deref(), jws.algorithm);
    match fitting.iter().any(|key| key.verifies(message, signature)) {
        true => Ok(()),
        false if fitting.is_empty() => Err(CredentialRefusal::Key),
        false => Err(CredentialRefusal::Signature),
    }
}

fn id(jws: &Jws<'_>, claims: Option<&Claims>) -> String {
    let explicit = claims.and_then(|claims| claims.id.clone());
    explicit.unwrap_or_else(|| jws.derived_id())
}

fn description(
    jws: &Jws<'_>,
    claims: Option<&Claims>,
    signature: Option<Result<(), CredentialRefusal>>,
    now: SystemTime,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("{name:<11}{}\n", replaced(value));
        }
    };
    let key = jws.kid.as_ref().map(|kid| format!(", key {kid}"));
    let signed = match signature {
        None => "not checked: give --key FILE",
        Some(Ok(())) => "right",
        Some(Err(_)) => "WRONG",
    };
    line(
        "signed",
        &format!("{}{}", jws.algorithm, key.unwrap_or_default()),
    );
    line("signature", signed);
    let Some(claims) = claims else {
        return text;
    };
    line("subject", &claims.subject);
    line("id (jti)", &id(jws, Some(claims)));
    line("groups", &claims.grants.groups.join(", "));
    let limit = claims.grants.limit.as_ref();
    match limit.and_then(|limit| limit.scopes) {
        Some(scopes) if scopes.is_empty() => line("scope", "none: it allows nothing"),
        Some(scopes) => line("scope", &scopes.to_string()),
        None => line("scope", "what the policy file of the relay allows"),
    }
    let only = limit.map(|limit| narrowed(&limit.selector));
    line("only", &only.unwrap_or_default());
    line("audience", &claims.audience.join(", "));
    line("issuer", claims.issuer.as_deref().unwrap_or_default());
    for (name, time) in [
        ("issued", claims.issued),
        ("not before", claims.not_before),
        ("expires", Some(claims.expires)),
    ] {
        line(
            name,
            &time.map(|time| moment(time, now)).unwrap_or_default(),
        );
    }
    text
}

fn narrowed(selector: &ray_relay_access::policy::BreakpointSelector) -> String {
    let words = selector
        .lists()
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| {
            let patterns: Vec<_> = list.iter().map(Pattern::as_str).collect();
            format!("{name} {}", patterns.join(" or "))
        });
    words.collect::<Vec<_>>().join("; ")
}
