//! The rustls server configuration: versions, cipher suites, protocols, and verification of client certificates.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite};

use ray_relay_base::config::TlsVersion;

/// The cipher suites that are served: every one has forward secrecy and authenticated encryption. Listed explicitly,
/// so that a later version of the library adds none unnoticed.
static SUITES: [SupportedCipherSuite; 9] = [
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: SUITES.to_vec(),
        ..aws_lc_rs::default_provider()
    })
}

/// Combines `chain` with its key.
///
/// # Errors
/// `InconsistentKeys` if they do not match, others if the key is not supported.
pub(super) fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    CertifiedKey::from_der(chain, key, &provider())
}

/// Accepts certificates of `roots`. If there are revocation lists, one that is not past its next update has to cover
/// a client's own certificate.
///
/// # Errors
/// An invalid list.
pub(super) fn client_verifier(
    roots: RootCertStore,
    lists: Vec<CertificateRevocationListDer<'static>>,
    required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    if !lists.is_empty() {
        verifier = verifier
            .with_crls(lists)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    if !required {
        verifier = verifier.allow_unauthenticated();
    }
    verifier.build()
}

/// Builds the configuration of new connections.
///
/// # Errors
/// If the system has no randomness.
pub(super) fn config(
    key: CertifiedKey,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    oldest: TlsVersion,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let versions: &[_] = match oldest {
        TlsVersion::V1_2 => &[&TLS13, &TLS12],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let builder =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions)?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    // A debugger client offers none, and is recognised by its first bytes.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    // A ticket carries the client's certificate past its verification. The tickets' key is created here and so ends
    // with the next change of the files. The certificate's expiry is checked for each connection.
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(Arc::new(config))
}
