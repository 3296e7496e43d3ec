//! A client's connection, plain or over TLS, as one type for all protocols.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_base::wire::write_through;
use ray_relay_session::connect::ArrivedStream;

/// Bytes of the protocol. The TLS state is on the heap: otherwise every connection would reserve most of its size.
#[derive(Debug)]
pub(super) enum ClientWire {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<Prefixed<TcpStream>>>),
    /// Within another connection: through a link, whose transports change, or a terminal of the page.
    Linked(ArrivedStream),
}

impl ClientWire {
    /// The TCP connection below, if it was accepted here and never changes.
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Encrypted(stream) => Some(stream.get_ref().0.get_ref()),
            Self::Linked(_) => None,
        }
    }
}

/// Sends close_notify however the session ended, without waiting: a TLS client treats a bare end as an error.
impl Drop for ClientWire {
    fn drop(&mut self) {
        let Self::Encrypted(stream) = self else {
            return;
        };
        let (below, session) = stream.get_mut();
        session.send_close_notify();
        let mut now = Now(below.get_ref());
        while session.wants_write() && session.write_tls(&mut now).is_ok_and(|sent| sent > 0) {}
    }
}

/// Writes as much as possible without blocking.
struct Now<'a>(&'a TcpStream);

impl io::Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for ClientWire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Encrypted(stream) => match ready!(Pin::new(stream).poll_read(cx, buf)) {
                // Closed without close_notify, as many clients do. Each protocol here delimits its messages, so an
                // attacker who cuts the connection cannot forge a complete one.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => Poll::Ready(read),
            },
            Self::Linked(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl PeerStream for ClientWire {
    fn source(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Encrypted(_) | Self::Linked(_) => None,
        }
    }

    fn doubt(&self, doubted: bool) {
        match self {
            Self::Linked(Either::Left(stream)) => stream.doubt(doubted),
            // A terminal pings its browser all the time.
            Self::Linked(Either::Right(_)) => {}
            _ => self.tcp().into_iter().for_each(|tcp| tcp.doubt(doubted)),
        }
    }

    fn has_answered(&self) -> Option<bool> {
        match self {
            Self::Linked(stream) => stream.has_answered(),
            Self::Plain(_) | Self::Encrypted(_) => None,
        }
    }
}

write_through!([] ClientWire {
    Self::Plain(stream) => stream,
    Self::Encrypted(stream) => stream,
    Self::Linked(stream) => stream });
