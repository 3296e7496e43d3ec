//! The GCS of a cluster over gRPC (port 6379), for information that the head's port 8265 lacks.
//!
//! Used for the breakpoints of Ray's legacy debugger, which exist only as keys in the GCS's key-value store. HTTP/2,
//! in cleartext or, with certificates, over TLS ([`tls`]); with Ray's own token if the cluster requires one. Every
//! call has a deadline and a size limit.

pub(super) mod entry;
pub(super) mod messages;
pub(super) mod poller;
mod tls;

pub use self::tls::{GivenTls, TlsPems};

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::http::uri::{PathAndQuery, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use tower_service::Service;

use self::messages::{KeysReply, KeysRequest, MultiGetReply, MultiGetRequest};
use self::tls::{GcsTls, GcsTlsError};
use crate::ray::head::HeadClient;
use ray_relay_base::config::{self, Gcs};
use ray_relay_base::dial::Stream;
use ray_relay_base::wire::text::{innermost_cause, one_line};

/// Largest response.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Keys that are read at most. Ray leaves one behind for every session that was to continue in another task and did
/// not: more than a head sees in its life.
const MAX_KEYS: usize = 20_000;

/// Values per request.
const VALUES_PER_REQUEST: usize = 1000;

/// Default port of a head's GCS.
const DEFAULT_PORT: u16 = 6379;

/// gRPC method that lists keys.
const KEYS: &str = "/ray.rpc.InternalKVGcsService/InternalKVKeys";

const NAMESPACE: &[u8] = b"ray_pdb";
const PREFIX: &[u8] = b"RAY_PDB_";
/// Prefix of the mark that a session continues in another task; not a breakpoint.
const CONTINUE_PREFIX: &[u8] = b"RAY_PDB_CONTINUE_";

/// A client of one cluster's GCS. Cheap to clone.
#[derive(Clone)]
pub(super) struct GcsClient {
    endpoint: Endpoint,
    /// `None`: cleartext.
    tls: Option<GcsTls>,
    channel: Arc<Mutex<Channel>>,
    /// The client of the cluster's dashboard, which has Ray's token.
    head: HeadClient,
    address: String,
    patience: Duration,
    /// Whether it is configured, so that its failure is worth a warning.
    named: bool,
}

/// The reason why the GCS gave no response. `Display` is a sentence with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GcsError {
    #[error(
        "cannot reach the GCS at {address}: {cause}; is port 6379 of the head open to the relay (`gcs_address`), and does Ray speak TLS there (`gcs_ca_file`)?"
    )]
    Unreachable { address: String, cause: String },
    #[error(
        "the GCS at {address} refuses the relay's token: name the file with Ray's own in `token_file`"
    )]
    Token { address: String },
    #[error("the GCS at {address} answers {what}")]
    Strange { address: String, what: String },
}

impl fmt::Debug for GcsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GcsClient")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl GcsClient {
    /// A client for the GCS of `cluster`, whose dashboard is `head`. Connects on first use. `None`: it is switched
    /// off, or no address is configured and none follows from that of the dashboard.
    pub(super) fn of(
        cluster: &config::Cluster,
        head: &HeadClient,
        patience: Duration,
    ) -> Option<Self> {
        Self::by(cluster, GcsTls::of(cluster), head, patience)
    }

    /// The same for a discovered cluster, with the certificates `tls`, if it has any.
    pub(super) fn of_found(
        cluster: &config::Cluster,
        tls: Option<GivenTls>,
        head: &HeadClient,
        patience: Duration,
    ) -> Option<Self> {
        Self::by(cluster, tls.map(GcsTls::Given), head, patience)
    }

    fn by(
        cluster: &config::Cluster,
        tls: Option<GcsTls>,
        head: &HeadClient,
        patience: Duration,
    ) -> Option<Self> {
        match &cluster.gcs_address {
            Gcs::Off => None,
            Gcs::At(address) => Self::new(address, true, tls, head, patience),
            Gcs::Auto => {
                // Behind https there is another service, such as an ingress, which has no GCS.
                let uri: Uri = cluster.ray_address.parse().ok()?;
                let plain = uri.scheme_str() == Some("http");
                let host = uri.host().filter(|_| plain)?;
                let named = tls.is_some();
                Self::new(
                    &format!("{host}:{DEFAULT_PORT}"),
                    named,
                    tls,
                    head,
                    patience,
                )
            }
        }
    }

    fn new(
        address: &str,
        named: bool,
        tls: Option<GcsTls>,
        head: &HeadClient,
        patience: Duration,
    ) -> Option<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
        let endpoint = endpoint
            .ok()?
            .connect_timeout(patience)
            .tcp_keepalive(Some(Duration::from_secs(15)));
        Some(Self {
            channel: Arc::new(Mutex::new(channel(&endpoint, tls.as_ref(), patience))),
            endpoint,
            tls,
            head: head.clone(),
            address: address.to_owned(),
            patience,
            named,
        })
    }

    /// The address of the GCS, for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Whether the address is configured, and not guessed from the dashboard's.
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    /// Whether a GCS responds there, with any response.
    pub(super) async fn is_there(&self) -> bool {
        let request = KeysRequest {
            prefix: PREFIX.to_vec(),
            namespace: NAMESPACE.to_vec(),
        };
        let answer = self.call::<_, KeysReply>(KEYS, request).await;
        !matches!(answer, Err(GcsError::Unreachable { .. }))
    }

    /// Key and value of every legacy breakpoint: `RAY_PDB_…` in the namespace `ray_pdb`.
    pub(super) async fn breakpoints(&self) -> Result<Vec<(String, Vec<u8>)>, GcsError> {
        let request = KeysRequest {
            prefix: PREFIX.to_vec(),
            namespace: NAMESPACE.to_vec(),
        };
        let reply: KeysReply = self.call(KEYS, request).await?;
        self.good(reply.status.as_ref())?;
        let mut keys = reply.keys;
        keys.retain(|key| !key.starts_with(CONTINUE_PREFIX));
        keys.truncate(MAX_KEYS);
        let mut entries = Vec::new();
        for keys in keys.chunks(VALUES_PER_REQUEST) {
            let request = MultiGetRequest {
                keys: keys.to_vec(),
                namespace: NAMESPACE.to_vec(),
            };
            let reply: MultiGetReply = self
                .call("/ray.rpc.InternalKVGcsService/InternalKVMultiGet", request)
                .await?;
            self.good(reply.status.as_ref())?;
            let text = |key: Vec<u8>| String::from_utf8(key).ok();
            let found = reply.found.into_iter();
            entries.extend(found.filter_map(|one| Some((text(one.key)?, one.value))));
        }
        Ok(entries)
    }

    async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, GcsError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let answer = tokio::time::timeout(self.patience, self.ask(path, message)).await;
        let answer = answer.unwrap_or_else(|_| {
            // A head that has moved, or a middlebox that has forgotten the connection, stays silent for a quarter of
            // an hour: no keepalive probes are sent while a request is pending.
            *self.channel.lock() = channel(&self.endpoint, self.tls.as_ref(), self.patience);
            Err(GcsError::Unreachable {
                address: self.address.clone(),
                cause: format!("no answer within {:?}", self.patience),
            })
        });
        if let (Err(GcsError::Unreachable { .. }), Some(tls)) = (&answer, &self.tls) {
            tls.has_failed();
        }
        answer
    }

    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A, GcsError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let channel = self.channel.lock().clone();
        let mut client = Grpc::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        client
            .ready()
            .await
            .map_err(|error| GcsError::Unreachable {
                address: self.address.clone(),
                cause: innermost_cause(&error),
            })?;
        let mut request = Request::new(message);
        // The GCS accepts `authorization` only, not `x-ray-authorization` (2.52 to 2.60).
        if let Some(token) = self.head.authorization().await
            && let Ok(mut value) = MetadataValue::try_from(token.as_bytes())
        {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        let codec = ProstCodec::<Q, A>::default();
        let answer = client
            .unary(request, PathAndQuery::from_static(path), codec)
            .await;
        answer.map(tonic::Response::into_inner).map_err(|status| {
            let address = self.address.clone();
            match status.code() {
                Code::Unauthenticated => GcsError::Token { address },
                // A broken connection, as after a rejected certificate, has a source error; a response has none.
                code if code == Code::Unavailable || status.source().is_some() => {
                    GcsError::Unreachable {
                        address,
                        cause: innermost_cause(&status),
                    }
                }
                code => GcsError::Strange {
                    address,
                    what: format!("{code:?}: {}", one_line(status.message())),
                },
            }
        })
    }

    fn good(&self, status: Option<&messages::Status>) -> Result<(), GcsError> {
        match status {
            Some(status) if status.code != 0 => Err(GcsError::Strange {
                address: self.address.clone(),
                what: format!("status {}: {}", status.code, one_line(&status.message)),
            }),
            _ => Ok(()),
        }
    }
}

/// A channel to `endpoint` that connects on first use.
fn channel(endpoint: &Endpoint, tls: Option<&GcsTls>, patience: Duration) -> Channel {
    match tls {
        Some(tls) => {
            let tls = tls.clone();
            endpoint.connect_with_connector_lazy(Secured { tls, patience })
        }
        None => endpoint.connect_lazy(),
    }
}

/// The connector for TLS connections that tonic needs.
struct Secured {
    tls: GcsTls,
    patience: Duration,
}

impl Service<Uri> for Secured {
    type Response = TokioIo<Stream>;
    type Error = GcsTlsError;
    type Future = BoxFuture<'static, Result<TokioIo<Stream>, GcsTlsError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), GcsTlsError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.tls.clone().connect(uri, self.patience))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// The connection to a head that has moved stays open for a quarter of an hour without a peer.
    #[tokio::test]
    async fn unanswered_connection_is_not_reused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cluster = config::Cluster {
            name: "default".to_owned(),
            ray_address: format!("http://{address}"),
            gcs_address: Gcs::At(address),
            ..config::Cluster::default()
        };
        let timeout_limit = Duration::from_millis(100);
        let head = HeadClient::new(&cluster, timeout_limit, false).unwrap();
        let gcs = GcsClient::of(&cluster, &head, timeout_limit).unwrap();
        let mut unanswered = Vec::new();
        for _ in 0..3 {
            let (result, accepted) = tokio::join!(
                gcs.breakpoints(),
                timeout(Duration::from_secs(10), listener.accept())
            );
            assert!(matches!(result, Err(GcsError::Unreachable { .. })));
            unanswered.push(accepted.unwrap().unwrap());
        }
    }
}
