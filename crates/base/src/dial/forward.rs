//! A path to a server other than the network from here, such as a port-forward through an API server.

use std::error::Error;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// Makes connections to one server.
pub trait Forward: Send + Sync {
    /// Opens a connection, within a deadline of its own.
    fn forward(&self) -> Forwarding<'_>;
}

/// The future of [`Forward::forward`]. Only the implementation knows the type of its error.
pub type Forwarding<'f> = Pin<
    Box<dyn Future<Output = Result<Box<dyn Forwarded>, Box<dyn Error + Send + Sync>>> + Send + 'f>,
>;

/// The bytes of such a connection.
pub trait Forwarded: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Forwarded for S {}
