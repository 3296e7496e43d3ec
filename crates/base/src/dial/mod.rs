//! How this process reaches a server: TCP, through a proxy where the environment names one, TLS, and HTTP or a WebSocket
//! inside.
//!
//! [`Proxies`] says by which way a server is reached, a [`Connector`] goes it, with a deadline for each step, or has a [`Forward`]
//! go it. [`http`] keeps its connections for the next request, [`websocket`] opens one at a relay. Whom to trust, and what to
//! show, is the callers'.

mod connector;
mod error;
mod forward;
pub mod http;
mod limits;
mod no_proxy;
mod proxy;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod websocket;

pub use self::connector::Connector;
pub use self::error::{DialError, behind, tls_error};
pub use self::forward::{Forward, Forwarded, Forwarding};
pub use self::limits::STEP;

pub use self::proxy::{DialRoute, Proxies, ProxyError};
pub use self::stream::Stream;
