//! A connection to a server, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::wire::prefixed::Prefixed;
use crate::wire::write_through;

/// See the module.
pub(crate) enum Stream {
    Plain(Prefixed<TcpStream>),
    Tls(Box<TlsStream<Prefixed<TcpStream>>>),
}

impl Stream {
    /// What it goes over.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream.get_ref(),
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

write_through!([] Stream { Self::Plain(stream) => stream, Self::Tls(stream) => stream });

/// To hyper: one like any other.
impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
