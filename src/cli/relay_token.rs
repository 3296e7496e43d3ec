//! The token of client commands for a relay.
//!
//! It comes from a file, a command that prints one, or the environment, never from a flag's value: all users of a
//! machine can read the arguments of its processes. A file is reread for each request, because tokens are replaced
//! while a command runs; a command is rerun before its token expires. The token is never sent where others can read it
//! on the way.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::token_command::{self, Dated};
use ray_relay_access::identity::unverified_expiry;
use ray_relay_base::wire::relay_url::{RelayUrl, is_this_machine};
use ray_relay_base::wire::text::replaced;

/// Environment variable with the token.
pub(super) const VARIABLE: &str = "RAY_RELAY_TOKEN";

/// Maximum size of a token file.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// How long before its expiry the token of a command is renewed.
pub(super) const RENEWED_BEFORE: Duration = Duration::from_secs(30);

/// Which token, and where it may go.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reaching the relay")]
pub struct RelayTokenArgs {
    /// File with the token for a relay that wants one [env: RAY_RELAY_TOKEN]
    ///
    /// The environment variable holds the token itself.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// Command that prints the token, or an ExecCredential as credential plugins of Kubernetes do; run with `sh`, and again
    /// before the token expires
    #[arg(
        long,
        hide_short_help = true,
        value_name = "COMMAND",
        env = "RAY_RELAY_TOKEN_COMMAND",
        hide_env_values = true
    )]
    #[arg(value_hint = clap::ValueHint::CommandString)]
    pub token_command: Option<String>,
    /// Send the token over http to another machine too, where each host on the way can read it
    #[arg(long, hide_short_help = true)]
    pub insecure_send_token: bool,
    /// The last output of the command.
    #[arg(skip)]
    printed: Arc<Mutex<Option<Dated>>>,
}

/// Why there is no token to send.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayTokenError {
    /// The file cannot be read.
    #[error("cannot read the token in {file}: {cause}")]
    Unreadable {
        /// Name of the file, sanitized for display.
        file: String,
        /// The operating system's error message.
        cause: std::io::Error,
    },
    /// The command prints no token.
    #[error("there is no token: the command of --token-command {0}")]
    Command(String),
    /// The text is no token.
    #[error("there is no token in {0}: one line of letters, digits and signs is wanted")]
    Malformed(String),
    /// The token would be sent to that host in clear text, where others could read it.
    #[error(
        "the token is not sent to {0} in clear text: use https, or forward the relay's port to this machine, or, on a private network, give --insecure-send-token"
    )]
    InClear(String),
}

impl RelayTokenArgs {
    /// A token in a file, or in the environment; `insecure`: it may be sent to other machines in clear text.
    pub(super) fn of_file(token_file: Option<PathBuf>, insecure: bool) -> Self {
        Self {
            token_file,
            insecure_send_token: insecure,
            ..Self::default()
        }
    }

    /// The `Authorization` header for a request to `relay`; `None` if no token is given.
    pub(super) fn authorization(
        &self,
        relay: &RelayUrl,
    ) -> Result<Option<HeaderValue>, RelayTokenError> {
        match self.dated(relay)? {
            Some(dated) => bearer(&dated.token).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a token is given, without reading it.
    pub(super) fn is_given(&self) -> bool {
        let in_environment = || std::env::var_os(VARIABLE).is_some_and(|text| !text.is_empty());
        self.token_file.is_some() || self.token_command.is_some() || in_environment()
    }

    /// Discards a refused token of a command, so that the next call runs the command again. Returns whether there was
    /// one.
    pub(super) fn renew(&self) -> bool {
        let is_command = self.token_file.is_none() && self.token_command.is_some();
        is_command && self.printed.lock().take().is_some()
    }

    /// Returns the token for `relay`, and when it expires if known; `None` if none is given. Blocks for as long as a
    /// command takes.
    pub(super) fn dated(&self, relay: &RelayUrl) -> Result<Option<Dated>, RelayTokenError> {
        let ((text, expires), source) = match (&self.token_file, &self.token_command) {
            (Some(path), _) => {
                let file = replaced(&path.display().to_string()).into_owned();
                match read(path) {
                    Ok(text) => ((text, None), file),
                    Err(cause) => return Err(RelayTokenError::Unreadable { file, cause }),
                }
            }
            (None, Some(command)) => {
                let Dated { token, expires } = self.printed(command)?;
                (
                    (token, expires),
                    "what the command of --token-command prints".to_owned(),
                )
            }
            (None, None) => match std::env::var(VARIABLE).map(Zeroizing::new) {
                Ok(text) if !text.trim().is_empty() => ((text, None), VARIABLE.to_owned()),
                Ok(_) | Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(RelayTokenError::Malformed(VARIABLE.to_owned()));
                }
            },
        };
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(RelayTokenError::Malformed(source));
        }
        if !(relay.is_https() || is_this_machine(relay.host()) || self.insecure_send_token) {
            return Err(RelayTokenError::InClear(relay.to_string()));
        }
        Ok(Some(Dated {
            expires: expires.or_else(|| unverified_expiry(token)),
            token: Zeroizing::new(token.to_owned()),
        }))
    }

    fn printed(&self, command: &str) -> Result<Dated, RelayTokenError> {
        let mut printed = self.printed.lock();
        let soon = SystemTime::now() + RENEWED_BEFORE;
        let good = |dated: &&Dated| dated.expires.is_none_or(|at| at > soon);
        if let Some(dated) = printed.as_ref().filter(good) {
            return Ok(dated.clone());
        }
        let dated = token_command::run(command).map_err(RelayTokenError::Command)?;
        Ok(printed.insert(dated).clone())
    }
}

/// The `Authorization` header with `token`.
///
/// # Errors
/// [`RelayTokenError::Malformed`].
pub(super) fn bearer(token: &str) -> Result<HeaderValue, RelayTokenError> {
    let header = Zeroizing::new(format!("Bearer {token}"));
    let header = HeaderValue::from_str(&header);
    let mut header = header.map_err(|_| RelayTokenError::Malformed("it".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

fn read(path: &Path) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let mut file = File::open(path)?.take(MAX_FILE_BYTES + 1);
    file.read_to_string(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(std::io::Error::other("it is longer than 64 KiB")),
        false => Ok(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sent(file: &[u8], relay: &str, insecure: bool) -> Result<String, RelayTokenError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, file).unwrap();
        let args = RelayTokenArgs::of_file(Some(path), insecure);
        let header = args.authorization(&relay.parse().unwrap())?.unwrap();
        assert!(header.is_sensitive());
        Ok(header.to_str().unwrap().to_owned())
    }

    #[test]
    fn token_is_sent_over_tls_or_loopback_only() {
        for relay in [
            "https://relay.example.com",
            "http://127.0.0.1:5678",
            "http://127.9.9.9",
            "http://[::1]",
            "http://localhost",
            "LOCALHOST:7000",
            "http://a.localhost",
        ] {
            assert_eq!(
                sent(b"abc\n", relay, false).unwrap(),
                "Bearer abc",
                "{relay}"
            );
        }
        for relay in [
            "http://relay",
            "http://10.0.0.1",
            "http://0.0.0.0",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
            "http://[fd88::1]",
        ] {
            let error = sent(b"abc", relay, false).unwrap_err();
            assert!(matches!(error, RelayTokenError::InClear(_)), "{relay}");
            assert!(!error.to_string().contains("abc"));
            assert!(sent(b"abc", relay, true).is_ok());
        }
    }

    #[test]
    fn token_command_reruns_on_expiry_or_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().join("count");
        let args_with_expiry = |expires: &str| RelayTokenArgs {
            token_command: Some(format!(
                r#"echo x >> {0}; n=$(wc -l < {0}); echo "{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"t$((n))\"{expires}}}}}""#,
                count.display(),
            )),
            ..RelayTokenArgs::default()
        };
        let relay = "http://localhost".parse().unwrap();
        let dated = |args: &RelayTokenArgs| args.dated(&relay).unwrap().unwrap();
        let token = |args: &RelayTokenArgs| dated(args).token.to_string();
        let permanent = args_with_expiry("");
        assert_eq!([token(&permanent), token(&permanent)], ["t1", "t1"]);
        assert!(permanent.renew());
        assert_eq!(token(&permanent), "t2");
        let expired = args_with_expiry(r#",\"expirationTimestamp\":\"2001-01-01T00:00:00Z\""#);
        assert_eq!([token(&expired), token(&expired)], ["t3", "t4"]);
        assert!(dated(&expired).expires.is_some());
        let failing = RelayTokenArgs {
            token_command: Some("exit 7".to_owned()),
            ..RelayTokenArgs::default()
        };
        assert!(matches!(
            failing.dated(&relay),
            Err(RelayTokenError::Command(_))
        ));
    }

    #[test]
    fn malformed_token_is_neither_sent_nor_shown() {
        for file in [&b""[..], b" \n", b"a b", b"a\nb", "ä".as_bytes()] {
            let error = sent(file, "http://localhost", false).unwrap_err();
            assert!(matches!(error, RelayTokenError::Malformed(_)), "{file:?}");
        }
        let too_long = vec![b'a'; 70_000];
        assert!(sent(&too_long, "http://localhost", false).is_err());
        assert!(sent(b"\xff", "http://localhost", false).is_err());
    }
}
