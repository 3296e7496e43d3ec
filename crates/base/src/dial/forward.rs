//! A way to a server that is not the network from here, such as a port-forward through an API server.

use std::error::Error;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// Makes connections to one server.
pub trait Forward: Send + Sync {
    /// A connection, at a deadline of its own at the latest.
    fn forward(&self) -> Forwarding<'_>;
}

/// What [`Forward::forward`] returns: why there is no connection is known to who made the [`Forward`].
pub type Forwarding<'f> = Pin<
    Box<dyn Future<Output = Result<Box<dyn Forwarded>, Box<dyn Error + Send + Sync>>> + Send + 'f>,
>;

/// The bytes of such a connection.
pub trait Forwarded: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Forwarded for S {}
