//! Sources of a key set: a file, or an address over HTTPS.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use parking_lot::Mutex;

use super::set::{self, MAX_KEY_SET_BYTES, SetError};
use crate::identity::SetupError;
use crate::identity::authorities::trusting;
use crate::identity::keys::VerificationKey;
use ray_relay_base::config;
use ray_relay_base::dial::http::{self, HttpClient, ReadBodyError};
use ray_relay_base::dial::{Connector, Proxies};
use ray_relay_base::wire::text::innermost_cause;
use ray_relay_base::wire::watched_file::WatchedFile;

/// The result of a fetch.
pub(in crate::identity) enum Fetched {
    /// The current set.
    Set(Vec<VerificationKey>),
    /// No change since the last fetch.
    Unchanged,
}

/// A source of a key set.
pub(in crate::identity) trait Fetch: Send + Sync + 'static {
    /// Fetches the set. Cancel safe. The error is a cause for the log.
    fn fetch(&self) -> impl Future<Output = Result<Fetched, String>> + Send;

    /// The source's name, for the log.
    fn name(&self) -> &str;
}

/// A file or an address.
pub(in crate::identity) struct Source {
    name: String,
    location: JwksLocation,
}

enum JwksLocation {
    /// A file, in the version of the last usable set.
    File(Mutex<WatchedFile>),
    Web {
        uri: Uri,
        client: Box<HttpClient<Empty<Bytes>>>,
    },
}

impl Source {
    /// Builds the source that `config` names, if any.
    pub(super) fn new(config: &config::Jwks) -> Result<Option<Self>, SetupError> {
        if let Some(path) = &config.file {
            return Ok(Some(Self {
                name: path.display().to_string(),
                location: JwksLocation::File(Mutex::new(WatchedFile::new(
                    path.clone(),
                    MAX_KEY_SET_BYTES as u64,
                ))),
            }));
        }
        let Some(url) = &config.url else {
            return Ok(None);
        };
        let uri: Uri = url
            .parse()
            .map_err(|_| SetupError("jwks.url is no address".to_owned()))?;
        Ok(Some(Self {
            // Without the query, which may hold an API key.
            name: url.split('?').next().unwrap_or_default().to_owned(),
            location: JwksLocation::Web {
                client: Box::new(client(config, uri.scheme_str() == Some("https"))?),
                uri,
            },
        }))
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.location, JwksLocation::File(_))
    }
}

impl Fetch for Source {
    async fn fetch(&self) -> Result<Fetched, String> {
        match &self.location {
            JwksLocation::File(file) => {
                let watched = file.lock().clone();
                let found = watched.look().await.map_err(|why| why.to_string())?;
                let Some((version, text)) = found else {
                    return Ok(Fetched::Unchanged);
                };
                let keys = set::parse(text.as_bytes()).map_err(|why| why.to_string())?;
                *file.lock() = version;
                Ok(Fetched::Set(keys))
            }
            JwksLocation::Web { uri, client } => {
                let request = Request::get(uri.clone())
                    .header(ACCEPT, "application/jwk-set+json, application/json")
                    .header(USER_AGENT, http::USER_AGENT)
                    .body(Empty::new())
                    .map_err(|why| why.to_string())?;
                let answer = client
                    .request(request)
                    .await
                    .map_err(|why| innermost_cause(&why))?;
                let status = answer.status();
                if status.is_redirection() {
                    return Err(format!(
                        "it redirects ({status}): name that address in jwks.url if you trust it"
                    ));
                }
                if status != StatusCode::OK {
                    return Err(format!("it answered {status}"));
                }
                let body = http::whole(answer.into_body(), MAX_KEY_SET_BYTES).await;
                let body = body.map_err(|why| match why {
                    ReadBodyError::TooLong(_) => SetError::TooLong.to_string(),
                    ReadBodyError::Broken(cause) => cause,
                })?;
                let keys = set::parse(&body).map_err(|why| why.to_string())?;
                Ok(Fetched::Set(keys))
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn client(config: &config::Jwks, secure: bool) -> Result<HttpClient<Empty<Bytes>>, SetupError> {
    let ca_file = config.ca_file.as_deref();
    let tls = trusting("jwks.url", secure, "jwks.ca_file", ca_file)?;
    // Fetches are minutes apart: a kept connection would be dead by then.
    let proxies = Proxies::from_env();
    let connector = Connector::new(tls.with_no_client_auth(), config.timeout, proxies);
    Ok(http::client(connector, Duration::ZERO))
}
