//! `[tls]`: TLS on the one port, and client certificates.

use std::path::PathBuf;

use crate::config::kind::{Keyword, ValueKind, choice, file_path, shown_word};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::resolver::Resolver;

settings! {
    /// `[tls]`: encryption on the one port, and client certificates.
    pub struct Tls = "tls", then follow_files {
        /// Whether the port speaks TLS; `required` if it is not set and `cert_file` or `key_file` is.
        mode: TlsMode = TlsMode::Off, choice();
        /// PEM, the relay's certificate first, then the intermediate ones. Needed unless `mode` is `off`.
        cert_file: Option<PathBuf> = None, pem_file();
        /// PEM, the private key of the first certificate, not encrypted. Needed unless `mode` is `off`.
        key_file: Option<PathBuf> = None, pem_file();
        /// The oldest accepted version.
        min_version: TlsVersion = TlsVersion::V1_2, choice();
        /// Whether clients present certificates; `required` if it is not set and `client_ca_file` is.
        client_auth: ClientAuth = ClientAuth::Off, choice();
        /// PEM, the authorities of client certificates. Needed unless `client_auth` is `off`.
        client_ca_file: Option<PathBuf> = None, pem_file();
        /// PEM, revocation lists; one of each issuing authority, none of them past its next update.
        client_crl_file: Option<PathBuf> = None, pem_file();
    }
}

words! {
    /// Whether the port speaks TLS.
    pub enum TlsMode {
        /// Plain text only.
        Off = "off",
        /// Both, distinguished by the first bytes.
        Optional = "optional",
        /// TLS only; plain text is refused in the client's own protocol.
        Required = "required",
    }
}

words! {
    /// The oldest accepted version.
    pub enum TlsVersion {
        /// TLS 1.2, with forward secrecy and authenticated encryption only.
        V1_2 = "1.2",
        /// TLS 1.3 only.
        V1_3 = "1.3",
    }
}

words! {
    /// Whether clients present certificates.
    pub enum ClientAuth {
        /// No certificate is requested.
        Off = "off",
        /// A certificate is requested; a client without one is served, a client with an invalid one is not.
        Optional = "optional",
        /// A client without a certificate is not served.
        Required = "required",
    }
}

impl Tls {
    /// Turns TLS on if certificate files are given, and plain text off.
    fn follow_files(&mut self, resolver: &mut Resolver) {
        if self.cert_file.is_some() || self.key_file.is_some() {
            follow(resolver, "mode", &mut self.mode, TlsMode::Required);
        }
        if self.client_ca_file.is_some() {
            let slot = &mut self.client_auth;
            follow(resolver, "client_auth", slot, ClientAuth::Required);
        }
    }
}

/// Sets `key` to `value` unless a source sets it.
fn follow<T: Keyword>(resolver: &mut Resolver, key: &'static str, slot: &mut T, value: T) {
    if resolver.is_given("tls", key) {
        return;
    }
    *slot = value;
    if let Some(setting) = resolver.setting("tls", key) {
        setting.value = shown_word(slot);
        setting.origin = "because of the files".to_owned();
    }
}

fn pem_file() -> ValueKind<Option<PathBuf>> {
    file_path(pem_path)
}

/// Reads a path, and rejects the contents of a PEM file, which are easily pasted in its place.
fn pem_path(value: &RawValue) -> Read<PathBuf> {
    const EXPECTED: &str = "the path of a PEM file";
    let path = read::text(value, EXPECTED)?;
    if path.contains('\n') || path.contains("-----BEGIN") {
        return Err(Wrong::expected(EXPECTED).hint("write the text to a file and name that"));
    }
    Ok(path.into())
}
