//! Reads and checks the files of `[auth]`: for the authenticator at start, and for `config check`.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use super::key_files::{KeyFileError, KeyFiles, MAX_KEY_FILE_BYTES};
use super::keys::{SECRET_PREFIX, read_secret};
use super::revocation::{LiveRevocations, RevocationSeal};
use super::signing::random_secret;
use super::ticket::Tickets;
use crate::policy::PolicyFile;
use ray_relay_base::config::{Auth, Problem, Problems};
use ray_relay_base::key_mode::{Holds, warn_if_open};
use ray_relay_base::wire::watched_file::read_bounded;

/// The content of the files.
pub(super) struct Parts {
    pub(super) keys: KeyFiles,
    pub(super) policy: Option<PolicyFile>,
    pub(super) revocations: LiveRevocations,
    pub(super) tickets: Tickets,
    /// If other relays share the secret.
    pub(super) seal: Option<RevocationSeal>,
}

impl Parts {
    /// Reads all of them.
    ///
    /// # Errors
    /// All [`Problems`]. They quote nothing from a key file.
    pub(super) fn read(auth: &Auth) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        for path in auth.keys.iter().chain(&auth.policy_file) {
            warn_if_open(path, Holds::Trust);
        }
        let keys = KeyFiles::open(&auth.keys)
            .map_err(|errors| problems.extend(errors.iter().map(key_problem)));
        let policy = auth.policy_file.clone().map(PolicyFile::open).transpose();
        let policy = policy.map_err(|why| problems.extend(why.problems));
        let path = auth.revocations_file.as_deref();
        let revocations = LiveRevocations::open(path, SystemTime::now()).map_err(|why| {
            problems.push(problem(
                "auth.revocations_file",
                path,
                &why,
                "one revocation a line, as `ray-relay token revoke` appends them",
                "a relay that does not know all that was revoked does not start",
            ));
        });
        let tickets = tickets(auth).map_err(|why| problems.push(why));
        match (keys, policy, revocations, tickets) {
            (Ok(keys), Ok(policy), Ok(revocations), Ok((tickets, seal))) => Ok(Self {
                keys,
                policy,
                revocations,
                tickets,
                seal,
            }),
            _ => Err(Problems { problems }),
        }
    }
}

fn problem(
    key: &str,
    path: Option<&Path>,
    found: &dyn fmt::Display,
    expected: &str,
    hint: &str,
) -> Problem {
    Problem {
        key: key.to_owned(),
        place: path.map_or_else(
            || "the system".to_owned(),
            |path| path.display().to_string(),
        ),
        found: found.to_string(),
        expected: expected.to_owned(),
        hint: Some(hint.to_owned()),
    }
}

fn key_problem(error: &KeyFileError) -> Problem {
    let (path, found): (_, &dyn fmt::Display) = match error {
        KeyFileError::Io { path, source } => (path, source),
        KeyFileError::Key { path, source } => (path, source),
    };
    problem(
        "auth.keys",
        Some(path),
        found,
        "a public key in PEM, or hs256: and a secret in base64",
        "`ray-relay token keygen DIR` makes a pair: DIR/relay.pub is for the relay",
    )
}

fn tickets(auth: &Auth) -> Result<(Tickets, Option<RevocationSeal>), Problem> {
    let path = auth.ticket_key_file.as_deref();
    let wrong = |found: &dyn fmt::Display| {
        problem(
            "auth.ticket_key_file",
            path,
            found,
            "hs256: and a secret in base64",
            "`ray-relay token keygen --algorithm HS256 DIR` makes one",
        )
    };
    let Some(path) = path else {
        let secret = random_secret().map_err(|_| wrong(&"no randomness"))?;
        let own = Tickets::new(&*secret, auth.leeway).map_err(|why| wrong(&why));
        return own.map(|tickets| (tickets, None));
    };
    let file = File::open(path).map_err(|why| wrong(&why))?;
    warn_if_open(path, Holds::Secret);
    let text = read_bounded(&file, MAX_KEY_FILE_BYTES).map_err(|why| wrong(&why))?;
    let secret = text.trim_start().strip_prefix(SECRET_PREFIX);
    let secret = secret.ok_or_else(|| wrong(&"something that does not begin with hs256:"))?;
    let secret = read_secret(secret).map_err(|why| wrong(&why))?;
    let shared = Tickets::new(&secret, auth.leeway).map_err(|why| wrong(&why));
    shared.map(|tickets| (tickets, Some(RevocationSeal::new(&secret))))
}
