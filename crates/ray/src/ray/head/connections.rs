//! Connections to one head, each driven by the request that waits for a response on it.
//!
//! A connection has no task of its own: its request polls it until the head of the response is there, and then while
//! the response's body is read. So a response passes through the relay within one task, is read from the head no faster
//! than it is consumed, and dropping it closes the connection. A connection whose response has ended is pooled for the
//! next request: at most [`MAX_IDLE_CONNECTIONS`], for [`IDLE_TIMEOUT`]. A task closes pooled connections; it ends with
//! the last of them, or with the [`Connections`].

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service as _;

use crate::ray::head::{RequestBody, StreamedBodyError};
use ray_relay_base::dial::Connector;
use ray_relay_base::dial::http::MAX_BUFFER;

/// Ray's web server (aiohttp) drops idle connections after 75 s; closing earlier avoids the race.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that are pooled for the next request.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// The connection pool of one head.
pub(super) struct Connections {
    connector: Connector,
    /// Scheme and authority of the head.
    to: Uri,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The most recently used connection comes last.
    pool: Vec<(Instant, PooledConnection)>,
    /// Runs while there are any.
    closing: Option<AbortOnDropHandle<()>>,
}

/// One connection to the head, which requests use one after another.
struct PooledConnection {
    requests: SendRequest<RequestBody>,
    /// `None`: it has ended.
    driver: Option<Driver>,
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The body of a response, which drives its connection.
pub struct HeadBody {
    body: Incoming,
    /// `None`: it is back in the pool, or cannot be reused.
    connection: Option<PooledConnection>,
    home: Weak<Connections>,
}

impl Connections {
    pub(super) fn new(connector: Connector, to: Uri) -> Arc<Self> {
        let idle = Mutex::default();
        Arc::new(Self {
            connector,
            to,
            idle,
        })
    }

    /// Sends `request`, and returns the response as soon as its head is there. If a pooled connection turns out to be
    /// closed, the request is sent on another. Cancelling it closes the connection.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<HeadBody>, StreamedBodyError> {
        loop {
            let (mut connection, is_reused) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.dial().await?, false),
            };
            let mut error = match connection.exchange(request).await {
                Ok(answer) => return Ok(self.answer(connection, answer)),
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if is_reused => request = unsent,
                _ => return Err(error.into_error().into()),
            }
        }
    }

    async fn dial(&self) -> Result<PooledConnection, StreamedBodyError> {
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await?;
        let stream = connector.call(self.to.clone()).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_BUFFER);
        let (requests, driver) = builder.handshake(stream).await?;
        Ok(PooledConnection {
            requests,
            driver: Some(Box::pin(driver.with_upgrades())),
        })
    }

    fn answer(
        self: &Arc<Self>,
        connection: PooledConnection,
        answer: Response<Incoming>,
    ) -> Response<HeadBody> {
        let home = Arc::downgrade(self);
        answer.map(|body| {
            let mut body = HeadBody {
                body,
                connection: Some(connection),
                home,
            };
            if body.body.is_end_stream() {
                body.return_to_pool();
            }
            body
        })
    }

    /// The most recently pooled connection that is still usable.
    fn take(&self) -> Option<PooledConnection> {
        let mut idle = self.idle.lock();
        while let Some((since, connection)) = idle.pool.pop() {
            if since.elapsed() >= IDLE_TIMEOUT {
                // The others are older.
                idle.pool.clear();
            } else if connection.requests.is_ready() {
                // If the head has closed it meanwhile, the request comes back.
                return Some(connection);
            }
        }
        None
    }

    #[expect(clippy::disallowed_methods, reason = "owned by the connections")]
    fn keep(self: &Arc<Self>, connection: PooledConnection) {
        let mut idle = self.idle.lock();
        if idle.pool.len() >= MAX_IDLE_CONNECTIONS {
            idle.pool.remove(0);
        }
        idle.pool.push((Instant::now(), connection));
        if idle.closing.is_none() {
            let closing = tokio::spawn(close_idle(Arc::downgrade(self)));
            idle.closing = Some(AbortOnDropHandle::new(closing));
        }
    }

    /// Closes connections that were idle for too long. Returns the time of the next check; `None`: the pool is empty.
    fn close_idle(&self) -> Option<Instant> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.pool
            .retain(|(since, _)| now.duration_since(*since) < IDLE_TIMEOUT);
        let next = idle.pool.first().map(|(since, _)| *since + IDLE_TIMEOUT);
        if next.is_none() {
            idle.closing = None;
        }
        next
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

async fn close_idle(of: Weak<Connections>) {
    let mut at = Instant::now() + IDLE_TIMEOUT;
    loop {
        sleep_until(at).await;
        match of.upgrade().and_then(|of| of.close_idle()) {
            Some(next) => at = next,
            None => return,
        }
    }
}

impl PooledConnection {
    /// Polls the connection.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && driver.as_mut().poll(cx).is_ready()
        {
            // The task that waits for the response or its body gets the error.
            self.driver = None;
        }
    }

    /// Whether the next request may be sent on it.
    fn is_ready(&mut self) -> bool {
        // No task waits for it: this only checks its state.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.requests.is_ready()
    }

    async fn exchange(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let mut answer = pin!(self.requests.try_send_request(request));
        let answer = poll_fn(|cx| {
            self.drive(cx);
            poll_behind(self.driver.is_some(), cx, |cx| answer.as_mut().poll(cx))
        })
        .await?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            // The end of the connection hands the stream over.
            poll_fn(|cx| {
                self.drive(cx);
                match self.driver {
                    Some(_) => Poll::Pending,
                    None => Poll::Ready(()),
                }
            })
            .await;
        }
        Ok(answer)
    }
}

/// Polls for input from a connection that has just been driven. The connection wakes the task: another wake for the
/// same input would poll everything twice.
fn poll_behind<T>(
    driven: bool,
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    match driven {
        true => poll(&mut Context::from_waker(Waker::noop())),
        false => poll(cx),
    }
}

impl HeadBody {
    /// Returns the connection to the pool, after the end of the response.
    fn return_to_pool(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && let Some(home) = self.home.upgrade()
            && connection.is_ready()
        {
            home.keep(connection);
        }
    }
}

impl Body for HeadBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut body = Pin::new(&mut this.body);
        let mut frame = match &this.connection {
            // It must be requested first.
            Some(_) => poll_behind(true, cx, |cx| body.as_mut().poll_frame(cx)),
            None => Poll::Pending,
        };
        if frame.is_pending() {
            let driven = this.connection.as_mut().is_some_and(|connection| {
                connection.drive(cx);
                connection.driver.is_some()
            });
            frame = poll_behind(driven, cx, |cx| body.as_mut().poll_frame(cx));
        }
        match &frame {
            Poll::Ready(Some(Ok(_))) if !this.body.is_end_stream() => {}
            Poll::Ready(Some(Ok(_)) | None) => this.return_to_pool(),
            Poll::Ready(Some(Err(_))) => this.connection = None,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
