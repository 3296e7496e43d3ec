//! TLS to a relay: trusted authorities, and the client's certificate.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use super::relay_client::RelayError;
use ray_relay_base::dial::http::{Roots, trusting};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::text::replaced;

/// Whom to trust, and what to show.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reaching the relay")]
pub struct RelayTlsArgs {
    /// PEM file of the authorities, or the certificate itself, to trust for https, instead of the
    /// system's
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        env = "RAY_RELAY_CA_FILE",
        hide_env_values = true
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
    /// PEM file of the certificate by which the relay knows you, with those between it and its
    /// authority behind it
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        env = "RAY_RELAY_CLIENT_CERT",
        hide_env_values = true
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub client_cert: Option<PathBuf>,
    /// PEM file of its private key, where it is not in the file of --client-cert
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        env = "RAY_RELAY_CLIENT_KEY",
        hide_env_values = true
    )]
    #[arg(value_hint = ValueHint::FilePath, requires = "client_cert")]
    pub client_key: Option<PathBuf>,
}

impl RelayTlsArgs {
    /// The TLS configuration for a connection to `relay`.
    ///
    /// # Errors
    /// [`RelayError::Untrusted`], [`RelayError::Identity`].
    pub(super) fn config(&self, relay: &RelayUrl) -> Result<ClientConfig, RelayError> {
        let untrusted = |cause: String| RelayError::Untrusted {
            relay: relay.to_string(),
            cause,
        };
        let builder = self.roots(relay).and_then(trusting).map_err(untrusted)?;
        self.identified(builder)
    }

    /// Completes `builder` with the client certificate, if there is one.
    ///
    /// # Errors
    /// [`RelayError::Identity`].
    pub(super) fn identified(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, RelayError> {
        let Some(cert_file) = &self.client_cert else {
            return Ok(builder.with_no_client_auth());
        };
        let key_file = self.client_key.as_ref().unwrap_or(cert_file);
        let of = |file: &Path, cause: String| RelayError::Identity {
            file: replaced(&file.display().to_string()).into_owned(),
            cause,
        };
        let chain = certificates(cert_file).map_err(|cause| of(cert_file, cause))?;
        let key = PrivateKeyDer::from_pem_file(key_file);
        let key = key.map_err(|error| of(key_file, no_key(&error)))?;
        let config = builder.with_client_auth_cert(chain, key);
        config.map_err(|error| of(key_file, format!("is no key of that certificate: {error}")))
    }

    fn roots(&self, relay: &RelayUrl) -> Result<Roots, String> {
        match &self.ca_file {
            Some(path) => authorities(path)
                .map(Roots::Given)
                .map_err(|why| format!("{} {why}", replaced(&path.display().to_string()))),
            None if relay.is_https() => Ok(Roots::System),
            None => Ok(Roots::None),
        }
    }
}

/// Loads the authorities in a PEM file, or returns what is wrong with it.
fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("holds a certificate that is not understood: {error}"))?;
    }
    Ok(roots)
}

/// Loads the certificates in a PEM file, at least one, or returns what is wrong with it.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
    let found: Vec<_> = found
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(&error))?;
    match found.is_empty() {
        true => Err("holds no certificate".to_owned()),
        false => Ok(found),
    }
}

fn unreadable(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        error => format!("is not PEM text: {error}"),
    }
}

/// Never contains any part of the key.
fn no_key(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => {
            "holds no private key; name the file that does with --client-key FILE".to_owned()
        }
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        _ => "is not PEM text".to_owned(),
    }
}
