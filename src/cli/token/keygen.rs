//! `ray-relay token keygen`: creates a key pair in two files.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::super::cert::write_new;
use super::input::TokenError;
use crate::cli::failure::Failure;
use ray_relay_access::identity::Generated;
use ray_relay_access::identity::keys::Algorithm;

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
    /// A secret that signs and verifies: a verifier can also sign. Also for auth.ticket_key_file
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

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay token keygen ~/relay-keys
      ~/relay-keys/relay.key (for you alone) and ~/relay-keys/relay.pub
  ray-relay token keygen --algorithm HS256 /etc/ray-relay/tickets
      one secret, relay.key, that every replica reads as auth.ticket_key_file

Files that are there already are never overwritten. Every key is PKCS#8 or SPKI in PEM, as openssl writes them too; a secret is \"hs256:\" and base64.

Next: `ray-relay serve --auth-key DIR/relay.pub`, and
`ray-relay token mint --key DIR/relay.key --sub NAME --scope list,debug`.";

pub(super) fn run(args: &KeygenArgs) -> Result<(), Failure> {
    let algorithm = Algorithm::from(args.algorithm);
    let (private, public) = (args.dir.join("relay.key"), args.dir.join("relay.pub"));
    for path in [&private, &public] {
        if fs::symlink_metadata(path).is_ok() {
            return Err(TokenError::Exists(path.clone()).into());
        }
    }
    let made = Generated::new(algorithm).map_err(TokenError::Sign)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TokenError::File { path, source }
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&args.dir)
        .map_err(failed(&args.dir))?;
    write_new(&private, &made.private, 0o600).map_err(failed(&private))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", private.display())?;
    let verifies = match &made.public {
        None => &private,
        Some(text) => {
            write_new(&public, text, 0o644).map_err(|source| {
                // Half a pair is useless, and would be in the way next time.
                let _ = fs::remove_file(&private);
                failed(&public)(source)
            })?;
            writeln!(out, "{}", public.display())?;
            &public
        }
    };
    let mut about = io::stderr().lock();
    writeln!(
        about,
        "
{algorithm}: {} signs tokens. With it any token can be made: keep it secret.
Next:
  ray-relay serve --auth-key {}
  ray-relay token mint --key {} --sub NAME --scope list,debug,terminal --ttl 36h",
        private.display(),
        verifies.display(),
        private.display(),
    )?;
    Ok(())
}
