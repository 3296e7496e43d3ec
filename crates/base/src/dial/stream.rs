//! A connection to a server, with or without TLS.

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::forward::Forwarded;
use crate::wire::prefixed::Prefixed;
use crate::wire::{read_through, write_through};

/// A connection to a server.
pub enum Stream {
    Plain(Carrier),
    Tls(Box<TlsStream<Carrier>>),
}

/// The transport of a connection.
pub enum Carrier {
    /// A connection, directly or through a proxy.
    Tcp(Prefixed<TcpStream>),
    /// A path other than the network from here.
    Forwarded(Box<dyn Forwarded>),
}

impl Stream {
    /// The TCP connection below, if it is one of this process.
    pub fn tcp(&self) -> Option<&TcpStream> {
        let carrier = match self {
            Self::Plain(carrier) => carrier,
            Self::Tls(stream) => stream.get_ref().0,
        };
        match carrier {
            Carrier::Tcp(stream) => Some(stream.get_ref()),
            Carrier::Forwarded(_) => None,
        }
    }
}

read_through!([] Carrier { Self::Tcp(stream) => stream, Self::Forwarded(stream) => stream });
write_through!([] Carrier { Self::Tcp(stream) => stream, Self::Forwarded(stream) => stream });

read_through!([] Stream { Self::Plain(stream) => stream, Self::Tls(stream) => stream });
write_through!([] Stream { Self::Plain(stream) => stream, Self::Tls(stream) => stream });

/// hyper treats it like any other connection.
impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
