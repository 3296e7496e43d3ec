//! `[tls]`: encryption on the one port, and client certificates.

use std::path::PathBuf;

/// `[tls]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// `mode`, default `off`; `required` where it is not given and `cert_file` or `key_file` is.
    pub mode: TlsMode,
    /// `cert_file`: PEM, the relay's certificate first, then the intermediate ones. Needed unless `mode` is `off`.
    pub cert_file: Option<PathBuf>,
    /// `key_file`: PEM, the private key of the first certificate, not encrypted. Needed unless `mode` is `off`.
    pub key_file: Option<PathBuf>,
    /// `min_version`, default `1.2`.
    pub min_version: TlsVersion,
    /// `client_auth`, default `off`; `required` where it is not given and `client_ca_file` is.
    pub client_auth: ClientAuth,
    /// `client_ca_file`: PEM, the authorities of client certificates. Needed unless `client_auth` is `off`.
    pub client_ca_file: Option<PathBuf>,
    /// `client_crl_file`: PEM, revocation lists; one of each issuing authority, none of them past its next update.
    pub client_crl_file: Option<PathBuf>,
}

/// Whether the port speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Plain text alone.
    #[default]
    Off,
    /// Both, told apart by the first bytes.
    Optional,
    /// TLS alone; plain text is refused in its protocol's own words.
    Required,
}

/// The oldest version that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2, with forward secrecy and authenticated encryption only.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Whether clients present certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// None is asked for.
    #[default]
    Off,
    /// One is asked for; a client without is served, one with a wrong one is not.
    Optional,
    /// Nobody is served without.
    Required,
}
