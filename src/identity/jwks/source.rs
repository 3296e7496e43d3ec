//! Where a key set is read: a file, or an address over https.
//!
//! No redirect is followed: the address that the configuration names is the one that is trusted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt;

use super::set::{self, MAX_SET, SetError};
use crate::config;
use crate::identity::SetupError;
use crate::identity::authorities::read_authorities;
use crate::identity::keys::VerificationKey;
use crate::stamp::Stamp;
use crate::wire::text::innermost_cause;

/// What came of looking.
pub(in crate::identity) enum Fetched {
    /// The set as it is now.
    Set(Vec<VerificationKey>),
    /// As at the last time.
    Unchanged,
}

/// Somewhere to read a set.
pub(in crate::identity) trait Fetch: Send + Sync + 'static {
    /// Cancel safe. The error is a cause for the log.
    fn fetch(&self) -> impl Future<Output = Result<Fetched, String>> + Send;

    /// For the log.
    fn name(&self) -> &str;
}

/// A file or an address.
pub(in crate::identity) struct Source {
    name: String,
    place: Place,
}

enum Place {
    File {
        path: PathBuf,
        seen: Mutex<Option<Stamp>>,
    },
    Web {
        uri: Uri,
        client: Box<WebClient>,
    },
}

type WebClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

impl Source {
    /// The one that `config` names, if any.
    pub(super) fn new(config: &config::Jwks) -> Result<Option<Self>, SetupError> {
        if let Some(path) = &config.file {
            return Ok(Some(Self {
                name: path.display().to_string(),
                place: Place::File {
                    path: path.clone(),
                    seen: Mutex::default(),
                },
            }));
        }
        let Some(url) = &config.url else {
            return Ok(None);
        };
        let uri: Uri = url
            .parse()
            .map_err(|_| SetupError("jwks.url is no address".to_owned()))?;
        Ok(Some(Self {
            // Without a query: people put keys into those.
            name: url.split('?').next().unwrap_or_default().to_owned(),
            place: Place::Web {
                client: Box::new(client(config, uri.scheme_str() == Some("https"))?),
                uri,
            },
        }))
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.place, Place::File { .. })
    }
}

impl Fetch for Source {
    async fn fetch(&self) -> Result<Fetched, String> {
        match &self.place {
            Place::File { path, seen } => {
                let file = tokio::fs::File::open(path).await;
                let file = file.map_err(|why| why.to_string())?;
                let meta = file.metadata().await.map_err(|why| why.to_string())?;
                let stamp = Some(Stamp::of(&meta));
                if *seen.lock() == stamp {
                    return Ok(Fetched::Unchanged);
                }
                let mut text = Vec::new();
                let read = file.take(MAX_SET as u64 + 1).read_to_end(&mut text).await;
                read.map_err(|why| why.to_string())?;
                let keys = set::parse(&text).map_err(|why| why.to_string())?;
                *seen.lock() = stamp;
                Ok(Fetched::Set(keys))
            }
            Place::Web { uri, client } => {
                let request = Request::get(uri.clone())
                    .header(ACCEPT, "application/jwk-set+json, application/json")
                    .header(USER_AGENT, concat!("ray-relay/", env!("CARGO_PKG_VERSION")))
                    .body(Empty::new())
                    .map_err(|why| why.to_string())?;
                let answer = client
                    .request(request)
                    .await
                    .map_err(|why| innermost_cause(&why))?;
                let status = answer.status();
                if status.is_redirection() {
                    return Err(format!(
                        "it leads elsewhere ({status}): name that address in jwks.url if you trust it"
                    ));
                }
                if status != StatusCode::OK {
                    return Err(format!("it answered {status}"));
                }
                let body = Limited::new(answer.into_body(), MAX_SET).collect().await;
                let body = body.map_err(|why| match why.is::<LengthLimitError>() {
                    true => SetError::TooLong.to_string(),
                    false => innermost_cause(why.as_ref()),
                })?;
                let keys = set::parse(&body.to_bytes()).map_err(|why| why.to_string())?;
                Ok(Fetched::Set(keys))
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn client(config: &config::Jwks, secure: bool) -> Result<WebClient, SetupError> {
    let unusable = |why: String| SetupError(format!("cannot verify the server of jwks.url: {why}"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(why.to_string()))?;
    let builder = match &config.ca_file {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_authorities("jwks.ca_file", path)? {
                let added = roots.add(CertificateDer::from(certificate));
                added
                    .map_err(|why| SetupError(format!("jwks.ca_file {}: {why}", path.display())))?;
            }
            builder.with_root_certificates(roots)
        }
        None if secure => builder.with_native_roots().map_err(|why| {
            unusable(format!(
                "{why}; install ca-certificates or give jwks.ca_file"
            ))
        })?,
        // A server on this machine needs no authorities: minimal images have none.
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(config.timeout));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(builder.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    // Minutes pass between fetches: a connection that is kept would be dead by then.
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::ZERO)
        .pool_max_idle_per_host(0)
        .build(connector))
}
