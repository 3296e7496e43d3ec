//! The webhook: its address, the signature of a notice, and the meaning of its answers.
//!
//! The address is a secret: that of a Slack channel lets its holder write there. Errors and logs contain only its host,
//! and only the status of its answers.

use std::path::Path;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Request, StatusCode, Uri};
use tokio::time::timeout;

use super::delivery::{Outcome, Post};
use super::message::Notice;
use ray_relay_access::audit::chain::hmac_key;
use ray_relay_access::identity::{read_bounded, trusting};
use ray_relay_base::config::{self, Fault, RawValue, web_address};
use ray_relay_base::dial::http::{self, HttpClient};
use ray_relay_base::dial::{Connector, Proxies};
use ray_relay_base::wire::text::{hex, innermost_cause};

/// Time limit of an attempt, up to the status of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with the id of a notice, the same on each attempt.
pub(super) const ID: &str = "x-ray-relay-notice";

/// Header with the time of posting, and the HMAC-SHA-256 of that time, a dot and the body: `t=SECONDS,v1=HEX`.
pub(super) const SIGNATURE: &str = "x-ray-relay-signature";

/// A webhook.
pub(super) struct Target {
    uri: Uri,
    key: Option<hmac::Key>,
    client: HttpClient<Full<Bytes>>,
}

impl Target {
    /// Loads the webhook whose address is in `url_file`, with the other files of `config`. Blocks.
    ///
    /// # Errors
    /// Every [`Fault`].
    pub(super) fn load(config: &config::Notice, url_file: &Path) -> Result<Self, Vec<Fault>> {
        let uri = address(url_file);
        let key = config.key_file.as_deref().map(signing_key).transpose();
        let secure = uri
            .as_ref()
            .is_ok_and(|uri| uri.scheme_str() == Some("https"));
        let ca_file = config.ca_file.as_deref();
        let tls = trusting("notice.url_file", secure, "notice.ca_file", ca_file);
        let tls = tls.map_err(|why| Fault {
            key: "notice.ca_file",
            found: why.to_string(),
            expected: "a PEM file with the certificate authorities of the webhook, or nothing",
            hint: "leave it out where the system's authorities are enough".to_owned(),
        });
        match (uri, key, tls) {
            (Ok(uri), Ok(key), Ok(tls)) => Ok(Self {
                uri,
                key,
                // Minutes pass between notices: a pooled connection would be dead by then.
                client: http::client(
                    Connector::new(
                        tls.with_no_client_auth(),
                        REQUEST_TIMEOUT,
                        Proxies::from_env(),
                    ),
                    Duration::ZERO,
                ),
            }),
            (uri, key, tls) => {
                let faults = [uri.err(), key.err(), tls.err()];
                Err(faults.into_iter().flatten().collect())
            }
        }
    }

    /// The part of the address that is not secret.
    pub(super) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    fn request(&self, notice: &Notice) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, http::USER_AGENT)
            .header(ID, &notice.id);
        if let Some(key) = &self.key {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.unwrap_or_default().as_secs();
            let mut signed = format!("{now}.").into_bytes();
            signed.extend_from_slice(&notice.body);
            let signature = hex(hmac::sign(key, &signed).as_ref());
            request = request.header(SIGNATURE, format!("t={now},v1={signature}"));
        }
        request.body(Full::new(notice.body.clone()))
    }
}

impl Post for Target {
    async fn post(&self, notice: &Notice) -> Outcome {
        let again = |why: String| Outcome::Again { why, after: None };
        let request = match self.request(notice) {
            Ok(request) => request,
            Err(why) => return again(why.to_string()),
        };
        let answer = match timeout(REQUEST_TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return again(innermost_cause(&why)),
            Err(_) => return again(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())),
        };
        let status = answer.status();
        if status.is_success() {
            return Outcome::Delivered;
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Outcome::Again {
                why: format!("it answered {status}"),
                after: retry_after(answer.headers()),
            };
        }
        Outcome::Refused(status)
    }
}

/// Parses `Retry-After` in seconds. A date is ignored, because it depends on the server's clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    seconds.ok().map(Duration::from_secs)
}

fn address(path: &Path) -> Result<Uri, Fault> {
    let wrong = |found: String| Fault {
        key: "notice.url_file",
        found,
        expected: "a file with the address of a webhook: https, or http to this machine",
        hint: "the address alone, on one line, as Slack shows it for an incoming webhook"
            .to_owned(),
    };
    let text = read_bounded("notice.url_file", path).map_err(|why| wrong(why.to_string()))?;
    let address = str::from_utf8(&text)
        .ok()
        .and_then(|text| web_address(&RawValue::Text(text.to_owned())).ok());
    let uri = address.and_then(|address| address.parse().ok());
    uri.ok_or_else(|| wrong(format!("something else in {} (not shown)", path.display())))
}

fn signing_key(path: &Path) -> Result<hmac::Key, Fault> {
    let wrong = |found: String| Fault {
        key: "notice.key_file",
        found,
        expected: "a file with a secret of 32 bytes or more",
        hint: "`openssl rand -hex 32` makes one; the receiver checks signatures with the same"
            .to_owned(),
    };
    let secret = read_bounded("notice.key_file", path).map_err(|why| wrong(why.to_string()))?;
    hmac_key(&secret).map_err(|why| wrong(format!("{}: {why}", path.display())))
}
