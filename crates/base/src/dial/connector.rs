//! Connects to a server, step by step.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Uri;
use hyper::http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::forward::Forward;
use super::limits::DIAL_STEP_TIMEOUT;
use super::proxy::{DialRoute, Proxies, Proxy, host};
use super::stream::Carrier;
use super::{DialError, ProxyError, Stream};
use crate::wire::prefixed::Prefixed;
use crate::wire::tcp::tune;
use crate::wire::text::innermost_cause;

/// A peer that vanishes silently is noticed after twice this time, also while its answer is pending.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Connects to servers, with TLS if their scheme is `https`. Cheap to clone; clones share TLS session resumption.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    /// The deadline of the TCP connect, including the DNS lookup.
    patience: Duration,
    tls: TlsConnector,
    proxies: Proxies,
    /// Carries all connections, if the network from here does not lead to the server.
    forward: Option<Arc<dyn Forward>>,
    /// The name in the server's certificate, if it differs from the name in the address.
    name: Option<ServerName<'static>>,
}

impl Connector {
    /// Creates a connector that waits for TCP for at most `connect`, for each address family of a name.
    pub fn new(tls: ClientConfig, connect: Duration, proxies: Proxies) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect));
        Self {
            tcp,
            patience: connect.max(DIAL_STEP_TIMEOUT),
            tls: TlsConnector::from(Arc::new(tls)),
            proxies,
            forward: None,
            name: None,
        }
    }

    /// Connects through `forward`, which leads to a single server.
    pub fn by(mut self, forward: Arc<dyn Forward>) -> Self {
        self.forward = Some(forward);
        self
    }

    /// Expects `name` in the servers' certificates.
    pub fn named(mut self, name: ServerName<'static>) -> Self {
        self.name = Some(name);
        self
    }

    /// Connects to the server of `uri`.
    ///
    /// # Errors
    /// [`DialError`], at the deadline at the latest.
    pub async fn connect(&self, uri: &Uri) -> Result<Stream, DialError> {
        let carrier = match &self.forward {
            Some(forward) => {
                let forwarded = forward.forward().await;
                Carrier::Forwarded(forwarded.map_err(DialError::Forward)?)
            }
            None => Carrier::Tcp(match self.proxies.towards(uri).await? {
                Some(proxy) => self.tunnel(&proxy, uri).await?,
                None => {
                    let stream = self.tcp(uri.clone()).await;
                    Prefixed::new(Bytes::new(), stream.map_err(DialError::Unreachable)?)
                }
            }),
        };
        self.secured(uri, carrier).await
    }

    /// Connects by `route`.
    ///
    /// # Errors
    /// As [`Self::connect`].
    #[expect(
        clippy::disallowed_methods,
        reason = "the address is one that the name of the server has, which this process was started with"
    )]
    pub async fn connect_by(&self, route: DialRoute, uri: &Uri) -> Result<Stream, DialError> {
        let DialRoute::Direct(address) = route else {
            return self.connect(uri).await;
        };
        let unreachable = |cause: io::Error| DialError::Unreachable(cause.to_string());
        let stream = timeout(self.patience, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| DialError::Unreachable(self.late()))?;
        let stream = stream.map_err(unreachable)?;
        tune(&stream, KEEPALIVE).map_err(unreachable)?;
        let stream = Prefixed::new(Bytes::new(), stream);
        self.secured(uri, Carrier::Tcp(stream)).await
    }

    /// Opens a tunnel through `proxy` to the server of `uri`.
    ///
    /// # Errors
    /// [`ProxyError`], at the deadline at the latest.
    pub async fn tunnel(
        &self,
        proxy: &Proxy,
        uri: &Uri,
    ) -> Result<Prefixed<TcpStream>, ProxyError> {
        let stream = self.tcp(proxy.uri()).await;
        let stream = stream.map_err(|cause| proxy.unreachable(cause))?;
        proxy.through(stream, uri).await
    }

    async fn tcp(&self, uri: Uri) -> Result<TcpStream, String> {
        let connecting = Box::pin(self.tcp.clone().call(uri));
        match timeout(self.patience, connecting).await {
            Ok(Ok(stream)) => {
                let stream = stream.into_inner();
                tune(&stream, KEEPALIVE).map_err(|cause| cause.to_string())?;
                Ok(stream)
            }
            Ok(Err(error)) => Err(innermost_cause(&error)),
            Err(_) => Err(self.late()),
        }
    }

    fn late(&self) -> String {
        format!("no answer within {} s", self.patience.as_secs())
    }

    async fn secured(&self, uri: &Uri, carrier: Carrier) -> Result<Stream, DialError> {
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Ok(Stream::Plain(carrier));
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let host = host(uri).to_owned();
                let name = ServerName::try_from(host.clone());
                name.map_err(|_| DialError::Unnamed(host))?
            }
        };
        match timeout(DIAL_STEP_TIMEOUT, Box::pin(self.tls.connect(name, carrier))).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(DialError::Tls(error)),
            Err(_) => {
                let late = format!("no TLS handshake within {} s", DIAL_STEP_TIMEOUT.as_secs());
                Err(DialError::Tls(io::Error::new(
                    io::ErrorKind::TimedOut,
                    late,
                )))
            }
        }
    }
}

/// The interface that hyper's clients need.
impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map(TokioIo::new) })
    }
}
