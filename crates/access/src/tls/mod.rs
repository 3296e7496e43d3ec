//! TLS on the one port, and client certificates.
//!
//! The listener passes every connection that begins with a ClientHello to the acceptor of [`Tls`], and detects the
//! protocol again inside. [`Material`] is the content of the files, `server` builds the rustls configuration, and
//! `reload` watches the files. [`Certificate`] is the identity in a client's certificate. The port has one certificate,
//! whatever server name a client requests. [`Pin`] is for clients that trust one relay's key.

mod certificate;
mod material;
mod pin;
mod reload;
mod server;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use certificate::{Certificate, NobodyNamed};
pub use material::Material;
pub use pin::{BadPin, Pin};

use self::reload::WatchedFiles;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Reload;
use ray_relay_base::config::{self, Fault, TlsMode};

/// How often the files are checked. Changed files are used at the second check that finds them the same, so that a
/// certificate and a key written one after the other are not read in between.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The TLS state of the port. One for the process.
pub struct Tls {
    config: config::Tls,
    files: Mutex<WatchedFiles>,
    current: RwLock<Option<Current>>,
}

/// The configuration of new connections.
struct Current {
    server: Arc<ServerConfig>,
    expires: SystemTime,
}

impl Tls {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// All unusable files; at least one.
    pub fn new(config: &config::Tls) -> Result<Arc<Self>, Vec<Fault>> {
        let tls = Self {
            config: config.clone(),
            // Before the files are read: the next check finds a change in between.
            files: Mutex::new(WatchedFiles::new(config)),
            current: RwLock::new(None),
        };
        if config.mode != TlsMode::Off {
            tls.put(Material::load(config)?);
        }
        Ok(Arc::new(tls))
    }

    /// Returns whether plain text, TLS or both are served.
    pub fn mode(&self) -> TlsMode {
        self.config.mode
    }

    /// Returns a TLS acceptor for one connection, with the current certificate. `None` if TLS is off.
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        let current = self.current.read();
        Some(TlsAcceptor::from(current.as_ref()?.server.clone()))
    }

    /// Watches the files until `shutdown`.
    pub async fn run(self: Arc<Self>, metrics: Arc<Metrics>, shutdown: CancellationToken) {
        if self.config.mode == TlsMode::Off {
            return shutdown.cancelled().await;
        }
        self.record(&metrics);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let tls = self.clone();
            match tokio::task::spawn_blocking(move || tls.reload_if_changed()).await {
                Ok(Some(reload)) => {
                    metrics.tls_reload(reload);
                    self.record(&metrics);
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "cannot look after the TLS files"),
            }
        }
    }

    /// Loads the files if they have changed. Blocks.
    fn reload_if_changed(&self) -> Option<Reload> {
        let settled = self.files.lock().settled();
        settled.then(|| match Material::load(&self.config) {
            Ok(material) => {
                self.put(material);
                Reload::Ok
            }
            Err(faults) => {
                for fault in faults {
                    warn!("the changed TLS files are not used, those from before stay: {fault}");
                }
                Reload::Refused
            }
        })
    }

    fn put(&self, material: Material) {
        let (names, until) = (material.names(), material.valid_until());
        info!(mode = ?self.config.mode, client_auth = ?self.config.client_auth, %names, %until, "TLS certificate");
        if let Some(trouble) = material.validity_problem() {
            warn!("the TLS certificate {trouble}: clients will refuse it");
        }
        let expires = material.expires();
        let server = material.into_server();
        let mut current = self.current.write();
        *current = Some(Current { server, expires });
    }

    fn record(&self, metrics: &Metrics) {
        let current = self.current.read();
        if let Some(current) = current.as_ref() {
            metrics.tls_certificate(current.expires);
        }
    }
}

#[cfg(test)]
mod tests;
