//! Certificate authorities from configured files, for servers whose answers are trusted.

use std::fs::File;
use std::path::Path;

use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use zeroize::Zeroizing;

use super::SetupError;
use ray_relay_base::dial::http::{self, Roots};
use ray_relay_base::wire::watched_file::read_bytes;

/// Largest file of certificates, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads the certificates in the PEM file at `path`, in DER. `key` is its configuration key.
///
/// # Errors
/// [`SetupError`] if it cannot be read or contains none.
pub(super) fn read_authorities(key: &str, path: &Path) -> Result<Vec<Vec<u8>>, SetupError> {
    let text = read_bounded(key, path)?;
    let blocks = pem::parse_many(text)
        .map_err(|why| SetupError(format!("{key} {}: {why}", path.display())))?;
    let certificates: Vec<_> = blocks
        .into_iter()
        .filter(|block| block.tag() == "CERTIFICATE")
        .map(pem::Pem::into_contents)
        .collect();
    match certificates.is_empty() {
        true => Err(SetupError(format!(
            "{key} {} holds no certificate in PEM",
            path.display()
        ))),
        false => Ok(certificates),
    }
}

/// Begins a TLS configuration for the server of the configuration key `address`. It trusts the authorities of
/// `ca_file` (key `ca_key`), or the system's. `secure`: the server uses HTTPS.
///
/// # Errors
/// [`SetupError`] if the authorities cannot be read.
pub fn trusting(
    address: &str,
    secure: bool,
    ca_key: &str,
    ca_file: Option<&Path>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, SetupError> {
    let roots = match ca_file {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_authorities(ca_key, path)? {
                let added = roots.add(CertificateDer::from(certificate));
                added.map_err(|why| SetupError(format!("{ca_key} {}: {why}", path.display())))?;
            }
            Roots::Given(roots)
        }
        None if secure => Roots::System,
        // A server on this machine needs no authorities: minimal images have none.
        None => Roots::None,
    };
    http::trusting(roots).map_err(|why| {
        SetupError(format!(
            "cannot verify the server of {address}: {why}; install ca-certificates or give {ca_key}"
        ))
    })
}

/// Reads a file of the configuration key `key`, at most 1 MiB.
///
/// # Errors
/// [`SetupError`].
pub fn read_bounded(key: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, SetupError> {
    File::open(path)
        .and_then(|file| read_bytes(&file, MAX_FILE_BYTES))
        .map_err(|why| SetupError(format!("cannot read {key} {}: {why}", path.display())))
}
