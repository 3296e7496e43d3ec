//! `ray-relay token revoke`: appends a line to the file that relays watch.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::input::{TokenError, secret, token_from_stdin};
use crate::cli::failure::Failure;
use ray_relay_access::identity::revocation::{Revocation, Revoked, append};
use ray_relay_access::identity::{Claims, Jws, Secret, is_presentable};
use ray_relay_base::wire::human_time::moment;
use ray_relay_base::wire::text::replaced;

/// `token revoke`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct RevokeArgs {
    /// One token by its id, or a certificate by its fingerprint
    #[arg(long, value_name = "ID", group = "what")]
    pub jti: Option<String>,
    /// All that this person has now; a token that is issued later is good
    #[arg(long, value_name = "NAME", group = "what")]
    pub sub: Option<String>,
    /// One token itself: - reads it from standard input
    #[arg(long, value_name = "-", group = "what", value_parser = secret)]
    pub token: Option<Secret>,
    /// auth.revocations_file of the relay; made if it is not there
    #[arg(
        long,
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath,
        env = "RAY_RELAY_AUTH_REVOCATIONS_FILE"
    )]
    pub file: PathBuf,
}

/// Longer than any relay reads.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Maximum of `auth.leeway`: until then a relay could still accept an expired token.
const MAX_LEEWAY: Duration = Duration::from_secs(300);

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay token revoke --token - --file revoked.jsonl < ada.token
  ray-relay token revoke --jti 3wq1yJb5nV0mSg2eCkPp7A --file revoked.jsonl
  ray-relay token revoke --sub ada --file revoked.jsonl
      all that Ada has now, for good; a token that is issued to her from the next second on is good

FILE is auth.revocations_file of the relays, which look at it four times a second: sessions end within a second. One JSON object a line is appended, and may be removed by hand once the token has expired:
  {\"jti\": \"3wq1yJb5nV0mSg2eCkPp7A\", \"until\": 1790000000}
  {\"sub\": \"ada\", \"at\": 1780000000}
Client certificates and Kubernetes users have no time of issue: they are revoked as long as the line is there. Without access to that file, POST /relay/v1/revocations does the same: for one's own, or with scope admin that nothing narrows.";

pub(super) fn run(args: RevokeArgs) -> Result<(), Failure> {
    let now = SystemTime::now();
    let (what, until) = match (args.jti, args.sub, args.token) {
        (Some(id), ..) => (Revoked::CredentialId(id), None),
        (None, Some(subject), _) => (Revoked::Subject { subject, at: now }, None),
        (None, None, Some(token)) if token.expose() != "-" => {
            return Err(TokenError::InArguments.into());
        }
        (None, None, _) => of_token(now)?,
    };
    let (Revoked::CredentialId(name) | Revoked::Subject { subject: name, .. }) = &what;
    if !is_presentable(name) {
        return Err(TokenError::NoName.into());
    }
    let sentence = match &what {
        Revoked::CredentialId(id) => format!("revoked: {}", replaced(id)),
        Revoked::Subject { subject, .. } => {
            format!(
                "revoked: all credentials of {} until now",
                replaced(subject)
            )
        }
    };
    let revocation = Revocation { what, until };
    append(&args.file, &[revocation]).map_err(TokenError::Revocations)?;
    writeln!(io::stdout(), "{sentence}")?;
    Ok(())
}

fn of_token(now: SystemTime) -> Result<(Revoked, Option<SystemTime>), TokenError> {
    let token = token_from_stdin()?;
    let jws = Jws::parse(token.expose(), MAX_TOKEN_BYTES).map_err(TokenError::Refused)?;
    // Parsed like a relay does: a token that it refuses anyway needs no revocation.
    let claims = Claims::of(&jws).map_err(TokenError::Refused)?;
    let until = claims.expires + MAX_LEEWAY;
    if until <= now {
        let _ = writeln!(
            io::stderr(),
            "note: it has expired already ({})",
            moment(claims.expires, now)
        );
    }
    let id = claims.id.unwrap_or_else(|| jws.derived_id());
    Ok((Revoked::CredentialId(id), Some(until)))
}
