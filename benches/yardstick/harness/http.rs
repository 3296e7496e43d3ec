//! An HTTP client on one connection that is kept open.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST, IF_NONE_MATCH};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Result;
use crate::harness::client::MEASURE_TIMEOUT;

pub(crate) struct Http {
    sender: SendRequest<Empty<Bytes>>,
    host: String,
    token: Option<String>,
}

impl Http {
    pub(crate) async fn open(address: SocketAddr, token: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the sender.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_string(),
            token: token.map(|token| format!("Bearer {token}")),
        })
    }

    /// The whole answer; `known` is the entity tag of the one that is there already.
    pub(crate) async fn get(&mut self, path: &str, known: Option<&str>) -> Result<Response<Bytes>> {
        let answer = async {
            let (head, body) = self.begin(path, known).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Result::Ok(Response::from_parts(head, body))
        };
        timeout(MEASURE_TIMEOUT, answer)
            .await
            .map_err(|_| "no answer within the deadline")?
    }

    /// An answer whose body is still to come.
    pub(crate) async fn begin(
        &mut self,
        path: &str,
        known: Option<&str>,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::get(path).header(HOST, &self.host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(tag) = known {
            request = request.header(IF_NONE_MATCH, tag);
        }
        self.sender.ready().await?;
        let answer = self
            .sender
            .send_request(request.body(Empty::new())?)
            .await?;
        let status = answer.status();
        if !status.is_success() && status != hyper::StatusCode::NOT_MODIFIED {
            return Err(format!("GET {path}: {status}").into());
        }
        Ok(answer)
    }
}
