//! How this process reaches a server: TCP, through a proxy where the environment names one, TLS, and HTTP or a WebSocket
//! inside.
//!
//! [`Proxies`] says by which way a server is reached, a [`Connector`] goes it, with a deadline for each step; one in a
//! Kubernetes cluster also by a port-forward of its API server ([`kube`]). [`http`] keeps its connections for the next request,
//! [`websocket`] opens one at a relay. Whom to trust, and what to show, is the callers'.

mod connector;
pub(crate) mod http;
pub(crate) mod kube;
mod no_proxy;
mod proxy;
mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod websocket;

use std::io;

pub(crate) use self::connector::{Connector, STEP};

pub(crate) use self::proxy::{DialRoute, Proxies, ProxyError};
pub(crate) use self::stream::Stream;

/// Why a server is not reached. `Display` is the cause alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Nothing takes connections there, or its name has no address.
    #[error("{0}")]
    Unreachable(String),
    /// What is on the way does not lead there.
    #[error("{0}")]
    Proxy(#[from] ProxyError),
    /// The API server of its cluster makes no way there.
    #[error("{0}")]
    Kube(#[from] Box<kube::KubeError>),
    /// No TLS came about.
    #[error("{0}")]
    Tls(#[source] io::Error),
    /// That is no name that a certificate can be for.
    #[error("{0} is no name that a certificate can be for")]
    Unnamed(String),
}

/// The [`DialError`] behind `error`, where it is one of dialling.
pub(crate) fn behind<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e DialError> {
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
pub(crate) fn tls_error<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e rustls::Error> {
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
