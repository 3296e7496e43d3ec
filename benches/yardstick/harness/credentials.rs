//! Keys, tokens and a certificate, as the relay's own commands make them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::Result;

pub(crate) struct Credentials {
    /// The public key that verifies tokens.
    pub(crate) public_key: PathBuf,
    /// A token that may attach.
    pub(crate) debug: String,
    /// A token with the scope `view`.
    pub(crate) view: String,
    /// The relay's certificate and its key.
    pub(crate) certificate: PathBuf,
    pub(crate) certificate_key: PathBuf,
    /// Both in one file, for HAProxy.
    pub(crate) pem: PathBuf,
    /// Trusts the certificate and nothing else.
    pub(crate) connector: TlsConnector,
}

impl Credentials {
    pub(crate) fn new(program: &Path, directory: &Path) -> Result<Self> {
        let run = |arguments: &[&str]| -> Result<String> {
            let mut command = Command::new(program);
            let output = command
                .args(arguments)
                .env_clear()
                .current_dir(directory)
                .output()?;
            match output.status.success() {
                true => Ok(String::from_utf8(output.stdout)?),
                false => Err(String::from_utf8_lossy(&output.stderr).into()),
            }
        };
        run(&["token", "keygen", "keys"])?;
        run(&["config", "self-signed", "--out", "tls"])?;
        let token = |scope| -> Result<String> {
            let key = ["token", "mint", "--key", "keys/relay.key"];
            let rest = ["--sub", "yardstick", "--ttl", "8h", "--scope", scope];
            Ok(run(&[key.as_slice(), &rest].concat())?.trim().to_owned())
        };
        let (debug, view) = (token("list,view,debug")?, token("list,view")?);
        let certificate = directory.join("tls/cert.pem");
        let certificate_key = directory.join("tls/key.pem");
        let pem = directory.join("tls/both.pem");
        let both = [&certificate, &certificate_key].map(std::fs::read_to_string);
        let [first, second] = both;
        std::fs::write(&pem, first? + &second?)?;
        Ok(Self {
            public_key: directory.join("keys/relay.pub"),
            debug,
            view,
            connector: connector(&certificate)?,
            certificate,
            certificate_key,
            pem,
        })
    }
}

fn connector(certificate: &Path) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
