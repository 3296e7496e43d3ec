//! HTTP/1.1 as a client: trusted authorities, the connection pool, and the limit of a response's size.
//!
//! Deadlines of whole requests belong to the callers, each of which waits for something else. Redirects are not
//! followed: only the configured address is trusted.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use hyper_rustls::ConfigBuilderExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use super::Connector;
pub use super::limits::{MAX_BUFFER, USER_AGENT};
use crate::wire::text::innermost_cause;

/// Idle connections to one server that are pooled.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// A client for `http` and `https` with request bodies `B`. Cheap to clone.
pub type HttpClient<B> = Client<Connector, B>;

/// Certificate authorities that servers are verified with.
pub enum Roots {
    /// The given authorities.
    Given(RootCertStore),
    /// The system's authorities: reading takes milliseconds, and a minimal image has none.
    System,
    /// None: for servers that are reached without TLS.
    None,
}

/// Begins a TLS configuration that trusts `roots`.
///
/// # Errors
/// The cause, if the system's authorities cannot be read.
pub fn trusting(roots: Roots) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(match roots {
        Roots::Given(roots) => builder.with_root_certificates(roots),
        Roots::System => builder
            .with_native_roots()
            .map_err(|error| error.to_string())?,
        Roots::None => builder.with_root_certificates(RootCertStore::empty()),
    })
}

/// Creates a client that connects with `connector` and pools connections for `idle`; with zero, each request has a
/// connection of its own.
pub fn client<B>(connector: Connector, idle: Duration) -> HttpClient<B>
where
    B: Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(if idle.is_zero() {
            0
        } else {
            MAX_IDLE_CONNECTIONS
        })
        .http1_max_buf_size(MAX_BUFFER)
        .build(connector)
}

/// The reason why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// The body is longer than this many bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// The connection broke, or the response is not HTTP: the innermost cause.
    #[error("{0}")]
    Broken(String),
}

/// Reads all of `body`, at most `limit` bytes.
///
/// # Errors
/// [`ReadBodyError`].
pub async fn whole<B>(body: B, limit: usize) -> Result<Bytes, ReadBodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ReadBodyError::TooLong(limit)),
        Err(error) => Err(ReadBodyError::Broken(innermost_cause(error.as_ref()))),
    }
}
