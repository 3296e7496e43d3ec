//! `ray-relay token`: the keys and tokens of a relay, without any server.
//!
//! `keygen` and `mint` need no relay and no network; `inspect` shows what a token says without showing it; `revoke`
//! appends to the file that relays watch. Tokens come on standard input where that is possible: the arguments of a
//! process are for everybody to see.

mod inspect;
mod keygen;
mod mint;
mod revoke;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use zeroize::Zeroizing;

use super::failure::{Fails, Failure};
use crate::config::units::parse_duration;
use crate::identity::keys::Algorithm;
use crate::identity::revocation::RevocationFileError;
use crate::identity::{CannotSign, CredentialRefusal, KeyFileError, Secret, SigningKeyError};
use crate::wire::watched_file::read_bounded;

/// Longest token that is read from standard input.
const LONGEST_TOKEN: u64 = 64 * 1024;

/// Longest key file.
const LONGEST_KEY: u64 = 64 * 1024;

pub(super) const AFTER_HELP: &str = "\
A relay that wants tokens, from nothing:
  ray-relay token keygen ~/relay-keys
      relay.key signs tokens: keep it. relay.pub is for the relay.
  ray-relay serve --auth-key ~/relay-keys/relay.pub
      nobody is served without a token from now on, so any --listen address is allowed; tokens
      travel in clear there unless the relay has a certificate
  ray-relay token mint --key ~/relay-keys/relay.key --sub ada --scope list,debug --ttl 8h > ada.token
      give ada.token to Ada
  RAY_RELAY_TOKEN=$(cat ada.token) ray-relay list --relay http://relay.example.com:5678
      or as \"rayRelay\": {\"token\": ...} in a debug configuration, RAY_AUTH_TOKEN for Ray's own tools
  ray-relay token revoke --sub ada --file /var/lib/ray-relay/revoked.jsonl
      ends all that Ada has, live sessions too, where that file is auth.revocations_file

Scopes:
  list             see breakpoints in lists and events
  view             attach a debugger and look: threads, stack, variables, source
  debug            attach a debugger and do everything but end the process; includes view
  terminal         the prompt of a terminal on a breakpoint
  dashboard:read   read the Ray dashboard and its API
  dashboard:write  submit and stop jobs through it; includes dashboard:read
  admin            everybody's sessions; narrowed by nothing also the relay itself: metrics,
                   revocation
  terminate        end a worker process from a debugger; in no other scope
  node             speak for Ray nodes as their agent (`ray-relay node`): those that --node names, or
                   the one from whose address it connects";

/// `token`
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The commands of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a key pair: one half signs tokens, the other is for the relay
    #[command(after_help = keygen::AFTER_HELP)]
    Keygen(KeygenArgs),
    /// Print a new token
    #[command(after_help = mint::AFTER_HELP)]
    Mint(MintArgs),
    /// Show what a token says and whether a relay would take it; never the token itself
    #[command(after_help = inspect::AFTER_HELP)]
    Inspect(InspectArgs),
    /// Revoke a token, or all that somebody has
    #[command(after_help = revoke::AFTER_HELP)]
    Revoke(RevokeArgs),
}

/// `token keygen`
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// Directory for relay.key and relay.pub; made if it is not there
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Kind of key
    #[arg(long, value_enum, default_value = "EdDSA", ignore_case = true)]
    pub algorithm: KeyKind,
}

/// Values of `--algorithm`, as in the header of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyKind {
    /// Ed25519
    #[value(name = "EdDSA", alias = "Ed25519")]
    EdDsa,
    /// ECDSA on P-256
    #[value(name = "ES256")]
    Es256,
    /// RSA with 3072 bits
    #[value(name = "RS256")]
    Rs256,
    /// A secret that signs and verifies: whoever verifies can also sign. Also for auth.ticket_key_file
    #[value(name = "HS256")]
    Hs256,
}

impl From<KeyKind> for Algorithm {
    fn from(kind: KeyKind) -> Self {
        match kind {
            KeyKind::EdDsa => Self::EdDsa,
            KeyKind::Es256 => Self::Es256,
            KeyKind::Rs256 => Self::Rs256,
            KeyKind::Hs256 => Self::Hs256,
        }
    }
}

/// `token mint`
#[derive(Debug, Args)]
pub struct MintArgs {
    /// The private key: relay.key of `token keygen`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub key: PathBuf,
    /// Who it is for: the name in lists, sessions and the audit log
    #[arg(long, value_name = "NAME")]
    pub sub: String,
    /// What is allowed: list, view, debug, terminal, dashboard:read, dashboard:write, admin,
    /// terminate, node; separated by commas
    #[arg(long, value_name = "SCOPES", required_unless_present = "by_policy")]
    pub scope: Option<crate::policy::Scopes>,
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

/// Takes anything: what clap says of a wrong value quotes it.
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

fn lifetime(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(366 * 86_400);
    match parse_duration(text) {
        Ok(ttl) if (Duration::from_secs(1)..=LONGEST).contains(&ttl) => Ok(ttl),
        Ok(_) => Err("from 1s to 366d".to_owned()),
        Err(why) => Err(format!("{why}; write it as 30m, 8h or 7d")),
    }
}

/// Why a command of `token` failed. Never with anything of a token or key.
#[derive(Debug, thiserror::Error)]
enum TokenError {
    /// A file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of that file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// `keygen` finds its files there.
    #[error(
        "{} is there already, and a key is never overwritten: name another directory, or move it away",
        .0.display()
    )]
    Exists(PathBuf),
    /// No key to sign with.
    #[error("{}: {source}", path.display())]
    SigningKey {
        /// The path of the private key's file.
        path: PathBuf,
        /// What is wrong with the key.
        source: SigningKeyError,
    },
    /// No key to verify with.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The token could not be signed.
    #[error("{0}: the system has no randomness")]
    Sign(#[from] CannotSign),
    /// A token that would be of no use.
    #[error("not made, because a relay would refuse it: {0}")]
    Useless(CredentialRefusal),
    /// A token that a relay would refuse; the details were printed.
    #[error("a relay would refuse this token: {0}")]
    Refused(CredentialRefusal),
    /// There is no token.
    #[error(
        "there is no token on standard input: pipe it in (`ray-relay token inspect < FILE`), or paste it and press Enter"
    )]
    NoToken,
    /// `--token` with a token after it.
    #[error(
        "give `--token -` and the token on standard input: other processes can see arguments, so consider this one known"
    )]
    InArguments,
    /// Standard input cannot be read.
    #[error("cannot read the token from standard input: {0}")]
    Stdin(io::Error),
    /// An id or name that no credential can have.
    #[error(
        "no token or person can have that name: 1 to 256 characters that can be printed, without space around them"
    )]
    NoName,
    /// The list of revocations could not be read or written.
    #[error(transparent)]
    Revocations(#[from] RevocationFileError),
}

impl Fails for TokenError {}

pub(super) fn run(args: TokenArgs) -> Result<(), Failure> {
    match args.command {
        TokenCommand::Keygen(args) => keygen::run(&args),
        TokenCommand::Mint(args) => mint::run(&args),
        TokenCommand::Inspect(args) => inspect::run(args),
        TokenCommand::Revoke(args) => revoke::run(args),
    }
}

/// The first line of standard input.
fn token_from_stdin() -> Result<Secret, TokenError> {
    let mut text = Zeroizing::new(String::with_capacity(8 * 1024));
    let stdin = io::stdin();
    if stdin.is_terminal() {
        // Nobody is left to tell where standard error is gone.
        let _ = write!(io::stderr(), "Token: ");
        stdin.read_line(&mut text).map_err(TokenError::Stdin)?;
    } else {
        let mut bounded = stdin.lock().take(LONGEST_TOKEN);
        bounded
            .read_to_string(&mut text)
            .map_err(TokenError::Stdin)?;
    }
    match text.trim() {
        "" => Err(TokenError::NoToken),
        token => Ok(Secret::new(token)),
    }
}

fn read_key_file(path: &Path) -> Result<Zeroizing<String>, TokenError> {
    File::open(path)
        .and_then(|file| read_bounded(&file, LONGEST_KEY))
        .map_err(|source| TokenError::File {
            path: path.to_owned(),
            source,
        })
}
