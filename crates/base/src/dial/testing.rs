//! Certificates and TLS clients for tests.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use crate::config;

const DAY: Duration = Duration::from_secs(86_400);

/// A certificate authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// Returns a certificate for the names of a relay under test.
    pub fn server(&self) -> Pair {
        let names = [
            SanType::DnsName("localhost".try_into().unwrap()),
            SanType::IpAddress([127, 0, 0, 1].into()),
        ];
        self.issue(&names, |_| {})
    }

    /// Returns a client certificate with the name `uri`.
    pub fn client(&self, uri: &str) -> Pair {
        self.issue(&[SanType::URI(uri.try_into().unwrap())], |_| {})
    }

    pub fn issue(&self, names: &[SanType], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.not_before = (SystemTime::now() - DAY).into();
        params.not_after = (SystemTime::now() + DAY).into();
        change(&mut params);
        Pair {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Returns a revocation list of these serial numbers, valid for `days`.
    pub fn crl(&self, revoked: &[u64], days: i64) -> String {
        let now = SystemTime::now();
        let revoked_certificate = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: (now - DAY).into(),
            reason_code: None,
            invalidity_date: None,
        };
        let next = match u32::try_from(days) {
            Ok(days) => now + days * DAY,
            Err(_) => now - DAY / 2,
        };
        CertificateRevocationListParams {
            this_update: (now - DAY).into(),
            next_update: next.into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(revoked_certificate).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        }
        .signed_by(&self.issuer)
        .unwrap()
        .pem()
        .unwrap()
    }
}

/// TLS files of a relay, deleted on drop.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new(pair: &Pair) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write_pair(pair);
        files
    }

    pub fn write_pair(&self, pair: &Pair) {
        self.write("tls.crt", &pair.cert);
        self.write("tls.key", &pair.key);
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Returns `[tls]` with these files and required TLS.
    pub fn config(&self) -> config::Tls {
        config::Tls {
            mode: config::TlsMode::Required,
            cert_file: Some(self.0.path().join("tls.crt")),
            key_file: Some(self.0.path().join("tls.key")),
            ..config::Tls::default()
        }
    }

    /// Returns the same with client certificates of `authority`.
    pub fn mutual(&self, authority: &Authority, client_auth: config::ClientAuth) -> config::Tls {
        config::Tls {
            client_auth,
            client_ca_file: Some(self.write("ca.crt", &authority.pem)),
            ..self.config()
        }
    }
}

/// TLS settings of a client under test.
#[derive(Default)]
pub struct Client<'a> {
    pub identity: Option<&'a Pair>,
    pub alpn: &'a [&'a str],
    pub version: Option<&'static SupportedProtocolVersion>,
}

impl Client<'_> {
    /// Trusts certificates of `authority` (PEM).
    pub fn trusting(&self, authority: &str) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority)).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = match self.version {
            Some(version) => builder.with_protocol_versions(&[version]),
            None => builder.with_safe_default_protocol_versions(),
        };
        let builder = builder.unwrap().with_root_certificates(roots);
        let mut config = match self.identity {
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![certificate(&pair.cert)], key)
                    .unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self
            .alpn
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        Arc::new(config)
    }
}

pub fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}
