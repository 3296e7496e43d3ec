//! The relay's key pair, and tokens of it.

use std::process::Command;

/// A directory with a key pair, and with whatever else a guarded relay needs.
pub(crate) struct Issuer(tempfile::TempDir);

impl Issuer {
    pub(crate) fn new() -> Self {
        let issuer = Self(tempfile::tempdir().unwrap());
        issuer.token(&["keygen", issuer.0.path().to_str().unwrap()]);
        issuer
    }

    /// `ray-relay token ARGS`.
    pub(crate) fn token(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        let output = command.arg("token").args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "token {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A file of that name in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A file of that name with `text` in it.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A token for `subject`, good for an hour.
    pub(crate) fn mint(&self, subject: &str, more: &[&str]) -> String {
        self.mint_for("1h", subject, more)
    }

    /// The same, good for as long as `ttl` says.
    pub(crate) fn mint_for(&self, ttl: &str, subject: &str, more: &[&str]) -> String {
        let key = self.path("relay.key");
        let mut args = vec!["mint", "--key", &key, "--sub", subject, "--ttl", ttl];
        args.extend(more);
        self.token(&args)
    }
}
