//! Constants of every connection to a server.

use std::time::Duration;

use hyper::header::HeaderValue;

/// The deadline of each step: TCP to all addresses of a name, the answer of a proxy, the handshake of TLS.
pub const DIAL_STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The relay as a client. Ray 2.9's dashboard answers 500 to requests without a `User-Agent`.
pub const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("ray-relay/", env!("CARGO_PKG_VERSION")));

/// Size of the read buffer in bytes: each response in progress holds one, and its caller may not read it.
pub const MAX_BUFFER: usize = 32 * 1024;
