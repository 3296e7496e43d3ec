//! Why a server is not reached.

use std::error::Error;
use std::io;

use super::proxy::ProxyError;

/// Why a server is not reached. `Display` is the cause alone.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing takes connections there, or its name has no address.
    #[error("{0}")]
    Unreachable(String),
    /// What is on the way does not lead there.
    #[error("{0}")]
    Proxy(#[from] ProxyError),
    /// A [`Forward`](super::Forward) does not lead there, and why.
    #[error("{0}")]
    Forward(#[source] Box<dyn Error + Send + Sync>),
    /// No TLS came about.
    #[error("{0}")]
    Tls(#[source] io::Error),
    /// That is no name that a certificate can be for.
    #[error("{0} is no name that a certificate can be for")]
    Unnamed(String),
}

/// The [`DialError`] behind `error`, where it is one of dialling.
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

/// What went wrong in TLS, where that is behind `error`.
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
