//! TLS to a GCS (`RAY_USE_TLS=1`), which requires a client certificate: the configured one, or the one that KubeRay
//! created.
//!
//! Certificates are read anew for each connection, so that a renewed one needs no restart.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use zeroize::Zeroizing;

use ray_relay_base::config;
use ray_relay_base::dial::http::{Roots, trusting};
use ray_relay_base::dial::{Connector, Proxies, Stream};
use ray_relay_base::wire::watched_file::read_bytes;

/// Largest PEM file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// How long a connection waits for the first certificates.
const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

/// A name in every certificate that KubeRay's authority of a RayCluster issues, and that authority issues no others.
/// The address by which the relay connects to a head is in none.
const NAME_BY_KUBERAY: &str = "localhost";

/// The reason why there is no connection. `Display` is the cause alone.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct GcsTlsError(String);

/// Authorities, certificate and key, as PEM.
pub struct TlsPems {
    /// The authorities for verifying the GCS.
    pub ca: Zeroizing<Vec<u8>>,
    /// The client certificate.
    pub cert: Zeroizing<Vec<u8>>,
    /// Its key.
    pub key: Zeroizing<Vec<u8>>,
}

/// Certificates from a source that replaces them when a connection has failed.
#[derive(Clone)]
pub struct GivenTls(Arc<GivenState>);

struct GivenState {
    pems: watch::Sender<Option<Arc<TlsPems>>>,
    failed: Notify,
}

/// The source of certificates.
#[derive(Clone)]
pub(super) enum GcsTls {
    Files {
        ca: PathBuf,
        cert: PathBuf,
        key: PathBuf,
    },
    Given(GivenTls),
}

impl GivenTls {
    /// No certificates yet.
    pub fn new() -> Self {
        Self(Arc::new(GivenState {
            pems: watch::Sender::default(),
            failed: Notify::new(),
        }))
    }

    /// Uses `pems` for connections from now on.
    pub fn give(&self, pems: TlsPems) {
        self.0.pems.send_replace(Some(Arc::new(pems)));
    }

    /// Whether both are the same instance, whatever their certificates.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Resolves when a connection has failed since this last resolved. Cancel safe.
    pub async fn failed(&self) {
        self.0.failed.notified().await;
    }

    async fn pems(&self) -> Option<Arc<TlsPems>> {
        let mut pems = self.0.pems.subscribe();
        let first = pems.wait_for(Option::is_some);
        let first = timeout(FIRST_TIMEOUT, first).await.ok()?.ok()?;
        Option::clone(&first)
    }
}

impl Default for GivenTls {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for GivenTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenTls").finish_non_exhaustive()
    }
}

impl GcsTls {
    /// The configured files; `None`: the GCS of `cluster` uses cleartext.
    pub(super) fn of(cluster: &config::Cluster) -> Option<Self> {
        Some(Self::Files {
            ca: cluster.gcs_ca_file.clone()?,
            cert: cluster.gcs_cert_file.clone()?,
            key: cluster.gcs_key_file.clone()?,
        })
    }

    /// Reports a failed connection: the certificates may be outdated.
    pub(super) fn has_failed(&self) {
        if let Self::Given(given) = self {
            given.0.failed.notify_one();
        }
    }

    /// Connects to the GCS at `uri`, within `patience` for TCP.
    ///
    /// # Errors
    /// [`GcsTlsError`], at a deadline at the latest.
    pub(super) async fn connect(
        self,
        uri: Uri,
        patience: Duration,
    ) -> Result<TokioIo<Stream>, GcsTlsError> {
        let connector = |pems: &TlsPems| {
            let config = pems.client_config().map_err(GcsTlsError)?;
            Ok(Connector::new(config, patience, Proxies::none()))
        };
        let connector = match &self {
            Self::Files { ca, cert, key } => connector(&TlsPems {
                ca: read("gcs_ca_file", ca)?,
                cert: read("gcs_cert_file", cert)?,
                key: read("gcs_key_file", key)?,
            })?,
            Self::Given(given) => {
                let none = || GcsTlsError("its Secret gives no certificates".to_owned());
                let pems = given.pems().await.ok_or_else(none)?;
                let name = ServerName::try_from(NAME_BY_KUBERAY);
                let name = name.map_err(|error| GcsTlsError(error.to_string()))?;
                connector(&pems)?.named(name)
            }
        };
        let stream = connector.connect(&uri).await;
        stream
            .map(TokioIo::new)
            .map_err(|error| GcsTlsError(error.to_string()))
    }
}

impl TlsPems {
    /// # Errors
    /// The unusable part.
    fn client_config(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.ca) {
            let certificate = certificate.map_err(|why| format!("its authorities: {why}"))?;
            let added = roots.add(certificate);
            added.map_err(|why| format!("its authorities: {why}"))?;
        }
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.cert).collect();
        let chain = chain.map_err(|why| format!("the client certificate: {why}"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|why| format!("the key of the client certificate: {why}"))?;
        let config = trusting(Roots::Given(roots))?.with_client_auth_cert(chain, key);
        let mut config = config.map_err(|why| format!("the client certificate: {why}"))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn read(key: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, GcsTlsError> {
    let read = File::open(path).and_then(|file| read_bytes(&file, MAX_FILE_BYTES));
    read.map_err(|why| GcsTlsError(format!("cannot read {key} {}: {why}", path.display())))
}
