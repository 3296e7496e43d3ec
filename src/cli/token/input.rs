//! Inputs and errors of the `token` commands. Errors never contain any part of a token or key.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::cli::failure::Fails;
use ray_relay_access::identity::revocation::RevocationFileError;
use ray_relay_access::identity::{
    CannotSign, CredentialRefusal, KeyFileError, Secret, SigningKeyError,
};
use ray_relay_base::wire::watched_file::read_bounded;

/// Maximum size of a token from standard input.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

const MAX_KEY_BYTES: u64 = 64 * 1024;

/// Why a `token` command failed. Never contains any part of a token or key.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    /// A file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The files for `keygen` exist.
    #[error(
        "{} is there already, and a key is never overwritten: name another directory, or move it away",
        .0.display()
    )]
    Exists(PathBuf),
    /// The signing key cannot be used.
    #[error("{}: {source}", path.display())]
    SigningKey {
        /// The path of the private key's file.
        path: PathBuf,
        /// The error in the key.
        source: SigningKeyError,
    },
    /// The verification key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The token could not be signed.
    #[error("{0}: the system provides no random numbers")]
    Sign(#[from] CannotSign),
    /// The minted token would be useless.
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
    /// `--token` was given the token itself.
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

/// Accepts anything, because clap's error for an invalid value would quote it.
pub(super) fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// Reads the first line of standard input.
pub(super) fn token_from_stdin() -> Result<Secret, TokenError> {
    let mut text = Zeroizing::new(String::with_capacity(8 * 1024));
    let stdin = io::stdin();
    if stdin.is_terminal() {
        // If standard error is gone, nothing can be shown.
        let _ = write!(io::stderr(), "Token: ");
        stdin.read_line(&mut text).map_err(TokenError::Stdin)?;
    } else {
        let mut bounded = stdin.lock().take(MAX_TOKEN_BYTES);
        bounded
            .read_to_string(&mut text)
            .map_err(TokenError::Stdin)?;
    }
    match text.trim() {
        "" => Err(TokenError::NoToken),
        token => Ok(Secret::new(token)),
    }
}

pub(super) fn read_key_file(path: &Path) -> Result<Zeroizing<String>, TokenError> {
    File::open(path)
        .and_then(|file| read_bounded(&file, MAX_KEY_BYTES))
        .map_err(|source| TokenError::File {
            path: path.to_owned(),
            source,
        })
}
