//! Runs a command that prints a token: the token alone, or the output of a Kubernetes credential plugin.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use chrono::DateTime;
use serde::Deserialize;
use zeroize::Zeroizing;

use ray_relay_access::identity::unverified_expiry;

/// Time limit for a command: it may ask a user to log in.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Poll interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// Input that Kubernetes plugins expect, without details of any cluster.
const EXEC_INFO: &str = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#;

/// A token, and when it expires if known. `Debug` never shows the token.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Dated {
    pub(super) token: Zeroizing<String>,
    pub(super) expires: Option<SystemTime>,
}

impl std::fmt::Debug for Dated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dated")
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Output of a Kubernetes credential plugin.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    token: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Runs `command` in the shell, and parses the token from its output. Its standard error is that of this process.
/// Blocks for as long as it takes, at most 2 minutes.
///
/// # Errors
/// Why there is no token, as the end of a sentence without any part of the output.
pub(super) fn run(command: &str) -> Result<Dated, String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env("KUBERNETES_EXEC_INFO", EXEC_INFO)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let (done, printed) = mpsc::sync_channel(1);
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = Zeroizing::new(String::new());
            let read = output.take(MAX_OUTPUT_BYTES + 1).read_to_string(&mut text);
            // The caller may have given up.
            let _ = done.send(read.map(|_| text));
        });
    }
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("has not ended within 2 minutes".to_owned());
            }
            Err(error) => return Err(format!("cannot be waited for: {error}")),
        }
    };
    if !status.success() {
        return Err(format!("has failed ({status})"));
    }
    let remaining = deadline.saturating_duration_since(Instant::now());
    match printed.recv_timeout(remaining) {
        Ok(Ok(text)) if text.len() as u64 > MAX_OUTPUT_BYTES => {
            Err("prints more than 64 KiB".to_owned())
        }
        Ok(Ok(text)) => parse_output(&text),
        Ok(Err(error)) => Err(format!("prints what cannot be read: {error}")),
        Err(_) => Err("does not close its output".to_owned()),
    }
}

fn parse_output(output: &str) -> Result<Dated, String> {
    let text = output.trim();
    if !text.starts_with('{') {
        let token = Zeroizing::new(text.to_owned());
        let expires = unverified_expiry(&token);
        return Ok(Dated { token, expires });
    }
    // The text of a JSON error may quote the content.
    let credential: ExecCredential = serde_json::from_str(text)
        .map_err(|_| "prints JSON that is no ExecCredential".to_owned())?;
    let version = credential.api_version;
    let known = ["v1", "v1beta1"]
        .iter()
        .any(|one| version.strip_prefix("client.authentication.k8s.io/") == Some(*one));
    if credential.kind != "ExecCredential" || !known {
        return Err(
            "prints JSON that is no ExecCredential of client.authentication.k8s.io/v1".to_owned(),
        );
    }
    let status = credential.status;
    let until = status
        .as_ref()
        .and_then(|of| of.expiration_timestamp.clone());
    let Some(token) = status.and_then(|of| of.token).map(Zeroizing::new) else {
        return Err("prints an ExecCredential without a token".to_owned());
    };
    let expires = match until {
        Some(until) => Some(
            DateTime::parse_from_rfc3339(&until)
                .map_err(|_| "prints an expirationTimestamp that is no time".to_owned())?
                .into(),
        ),
        None => unverified_expiry(&token),
    };
    Ok(Dated { token, expires })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    #[test]
    fn token_is_read_plain_or_from_an_exec_credential() {
        let plain = run("echo abc").unwrap();
        assert_eq!((&**plain.token, plain.expires), ("abc", None));
        let jwt = format!(
            "e30.{}.c2ln",
            URL_SAFE_NO_PAD.encode(r#"{"exp":1700000000}"#)
        );
        let with_expiry = run(&format!("printf %s {jwt}")).unwrap();
        let expiry = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(
            (&**with_expiry.token, with_expiry.expires),
            (&*jwt, Some(expiry))
        );
        for version in ["v1", "v1beta1"] {
            let credential = format!(
                r#"{{"apiVersion":"client.authentication.k8s.io/{version}","kind":"ExecCredential","status":{{"token":"abc","expirationTimestamp":"2023-11-14T22:13:20Z"}}}}"#
            );
            let with_expiry = run(&format!("echo '{credential}'")).unwrap();
            assert_eq!(
                (&**with_expiry.token, with_expiry.expires),
                ("abc", Some(expiry))
            );
        }
        let result = run("echo $KUBERNETES_EXEC_INFO | grep -q ExecCredential && echo abc");
        assert!(result.is_ok());
    }

    #[test]
    fn command_output_is_in_no_error() {
        for command in [
            "echo secret; exit 3",
            "echo '{secret'",
            r#"echo '{"apiVersion":"v9","kind":"secret"}'"#,
            r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret","expirationTimestamp":"secret"}}'"#,
            r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{}}'"#,
            "head -c 70000 /dev/zero | tr '\\0' s",
        ] {
            let error = run(command).unwrap_err();
            assert!(
                !error.contains("secret") && !error.contains("sss"),
                "{error}"
            );
        }
        assert!(!format!("{:?}", run("echo secret").unwrap()).contains("secret"));
    }
}
