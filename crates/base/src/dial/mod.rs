//! Connections from this process to a server: TCP, through a proxy if the environment names one, TLS, and HTTP or a
//! WebSocket inside.
//!
//! [`Proxies`] chooses the route to a server. A [`Connector`] connects along it, with a deadline for each step, or
//! through a [`Forward`]. [`http`] pools its connections, [`websocket`] opens one at a relay. Trust and credentials
//! are up to the callers.

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
pub use self::limits::DIAL_STEP_TIMEOUT;

pub use self::proxy::{DialRoute, Proxies, ProxyError};
pub use self::stream::Stream;
