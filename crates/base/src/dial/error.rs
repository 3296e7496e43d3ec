//! Errors of connecting to a server.

use std::error::Error;
use std::io;

use super::proxy::ProxyError;

/// The reason why a server cannot be reached. `Display` is the cause alone.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing listens there, or the name has no address.
    #[error("{0}")]
    Unreachable(String),
    /// The proxy on the way does not lead there.
    #[error("{0}")]
    Proxy(#[from] ProxyError),
    /// A [`Forward`](super::Forward) failed, with its cause.
    #[error("{0}")]
    Forward(#[source] Box<dyn Error + Send + Sync>),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(#[source] io::Error),
    /// No certificate can be issued for this name.
    #[error("{0} is no name that a certificate can be for")]
    Unnamed(String),
}

/// The [`DialError`] in the chain of `error`, if there is one.
pub fn behind<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e DialError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// The TLS error in the chain of `error`, if there is one.
pub fn tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = match error.downcast_ref::<std::io::Error>() {
            // The `source` of an I/O error leaves out the error that it holds.
            Some(error) => error
                .get_ref()
                .map(|held| held as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}
