//! `ray-relay token mint`: creates a token, signed with a key from a file.

use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use serde_json::{Map, Value, json};

use super::input::{TokenError, read_key_file};
use crate::cli::failure::Failure;
use ray_relay_access::identity::{
    CannotSign, Claims, Expectations, Jws, MAX_TOKEN_BYTES, Secret, SigningKey,
};
use ray_relay_base::config::units::parse_duration;
use ray_relay_base::wire::human_time::{moment, span};
use ray_relay_base::wire::text::replaced;

/// `token mint`
#[derive(Debug, Args)]
pub struct MintArgs {
    /// The private key: relay.key of `token keygen`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub key: PathBuf,
    /// Who it is for: the name in lists, sessions and the audit log
    #[arg(long, value_name = "NAME")]
    pub sub: String,
    /// What is allowed: list, view, debug, attach, terminal, dashboard:read, dashboard:write,
    /// admin, terminate, node; separated by commas
    #[arg(long, value_name = "SCOPES", required_unless_present = "by_policy")]
    pub scope: Option<ray_relay_access::policy::Scopes>,
    /// Without scopes of its own: the policy file of the relay alone says what is allowed
    #[arg(long, conflicts_with = "scope")]
    pub by_policy: bool,
    /// Only this job, by its id or submission id; * stands for anything. May be given more than once
    #[arg(long, value_name = "ID")]
    pub job: Vec<String>,
    /// Only this cluster
    #[arg(long, value_name = "PATTERN")]
    pub cluster: Vec<String>,
    /// Only this Ray namespace
    #[arg(long, value_name = "PATTERN")]
    pub namespace: Vec<String>,
    /// Only this task, actor method or actor
    #[arg(long, value_name = "PATTERN")]
    pub task: Vec<String>,
    /// Only this Ray node, by its id or address; with the scope node, the one to speak for
    #[arg(long, value_name = "PATTERN")]
    pub node: Vec<String>,
    /// A group, for the relay's policy file
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,
    /// How long it is valid
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
    pub ttl: Duration,
    /// auth.audience of the relay
    #[arg(long, value_name = "NAME", default_value = "ray-relay")]
    pub audience: String,
    /// One of auth.issuer of the relay, where it has any
    #[arg(long, value_name = "NAME")]
    pub issuer: Option<String>,
    /// Print JSON: the token with its id and expiry
    #[arg(long)]
    pub json: bool,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    const MAX_TTL: Duration = Duration::from_secs(366 * 86_400);
    match parse_duration(text) {
        Ok(ttl) if (Duration::from_secs(1)..=MAX_TTL).contains(&ttl) => Ok(ttl),
        Ok(_) => Err("from 1s to 366d".to_owned()),
        Err(why) => Err(format!("{why}; write it as 30m, 8h or 7d")),
    }
}

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay token mint --key relay.key --sub ada \\
      --scope list,debug,terminal,dashboard:read --ttl 36h > ada.token
      a parked task runs on when its token ends: 36h last from a morning to the next evening
  ray-relay token mint --key relay.key --sub ci --scope list,view --job '0100*' --task 'train_*'
  ray-relay token mint --key relay.key --sub node-7 --scope node --node 10.0.0.7 --ttl 30d
  ray-relay token mint --key relay.key --sub ada --by-policy --group ml --json | jq -r .jti

The token alone is printed; what it says goes to standard error. Narrowing counts together: with --job and --task only such tasks of such jobs. Keep the id (jti) to revoke it; with --sub all of a subject's tokens can be revoked without it. A relay wants `exp`, `aud` and `sub`, which are always there; other programs may mint tokens too, with any JWT library and the claims in the documentation.";

pub(super) fn run(args: &MintArgs) -> Result<(), Failure> {
    let key = SigningKey::from_file(&read_key_file(&args.key)?);
    let key = key.map_err(|source| TokenError::SigningKey {
        path: args.key.clone(),
        source,
    })?;
    warn_if_open(&args.key);
    let now = SystemTime::now();
    let issued = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires = issued + args.ttl.as_secs();
    let id = random_id()?;
    let claims = claims(args, &id, issued, expires);
    let token = key.sign("JWT", &claims).map_err(TokenError::Sign)?;
    let read = as_a_relay(&token, args, now)?;
    let mut out = io::stdout().lock();
    if args.json {
        let mut answer =
            json!({"token": token.expose(), "jti": id, "sub": args.sub, "expires": expires});
        if let Some(scopes) = args.scope {
            answer["scope"] = json!(scopes.to_string());
        }
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    writeln!(out, "{}", token.expose())?;
    let what = match args.scope {
        Some(scopes) => scopes.to_string(),
        None => "what the policy file of the relay allows".to_owned(),
    };
    let mut about = io::stderr().lock();
    // The token ends with a line feed of its own; on a terminal the two would run together.
    let gap = if io::stdout().is_terminal() { "\n" } else { "" };
    writeln!(
        about,
        "{gap}for {} (jti {id}): {what}; expires {} (valid for {})",
        replaced(&args.sub),
        moment(read.expires, now),
        span(args.ttl),
    )?;
    Ok(())
}

fn claims(args: &MintArgs, id: &str, issued: u64, expires: u64) -> Value {
    let mut claims = json!({
        "aud": args.audience,
        "sub": args.sub,
        "jti": id,
        "iat": issued,
        "exp": expires,
    });
    if let Some(issuer) = &args.issuer {
        claims["iss"] = json!(issuer);
    }
    if let Some(scopes) = args.scope {
        // With spaces, as other issuers write it (RFC 8693 section 4.2).
        claims["scope"] = json!(scopes.to_string().replace(',', " "));
    }
    if !args.group.is_empty() {
        claims["groups"] = json!(args.group);
    }
    let mut narrowing = Map::new();
    for (name, patterns) in [
        ("clusters", &args.cluster),
        ("jobs", &args.job),
        ("namespaces", &args.namespace),
        ("tasks", &args.task),
        ("nodes", &args.node),
    ] {
        if !patterns.is_empty() {
            narrowing.insert(name.to_owned(), json!(patterns));
        }
    }
    if !narrowing.is_empty() {
        claims["ray_relay"] = narrowing.into();
    }
    claims
}

/// Reads the token like a relay with the same audience and issuer, so that no useless token is printed.
fn as_a_relay(token: &Secret, args: &MintArgs, now: SystemTime) -> Result<Claims, TokenError> {
    let expected = Expectations {
        audience: args.audience.clone(),
        issuers: args.issuer.iter().cloned().collect(),
        leeway: Duration::ZERO,
        max_lifetime: None,
    };
    let claims = Jws::parse(token.expose(), MAX_TOKEN_BYTES).and_then(|jws| Claims::of(&jws));
    let claims = claims.map_err(TokenError::Useless)?;
    claims.check(&expected, now).map_err(TokenError::Useless)?;
    Ok(claims)
}

fn random_id() -> Result<String, TokenError> {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| TokenError::Sign(CannotSign))?;
    Ok(URL_SAFE_NO_PAD.encode(id))
}

/// Warns if others can read the key: they could mint tokens too.
fn warn_if_open(path: &Path) {
    let open = std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o077 != 0);
    if open {
        let _ = writeln!(
            io::stderr(),
            "warning: others can read {}; `chmod 600` it",
            path.display()
        );
    }
}
