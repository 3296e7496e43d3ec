//! A port-forward to a pod of the relay, through the API server.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::answer::KubeAnswer;
use super::cluster::KubeCluster;
use super::error::{KubeError, MAX_NAME_CHARS};
use super::service::{self, RelayPod, permission};
use ray_relay_base::dial::{DIAL_STEP_TIMEOUT, Forward, Forwarding};
use ray_relay_base::wire::text::shortened;
use ray_relay_base::wire::write_through;

/// Pods that are tried for one connection.
const MAX_TRIED_PODS: usize = 3;

/// The verbs that a port-forward over a WebSocket needs: it is a GET, and Kubernetes 1.35 and later require `create`,
/// too.
const VERBS: &str = "get and create";

/// Opens port-forwards to the relay's pods. Each one picks a pod that is ready then, so a replaced pod costs one
/// connection only.
pub struct Forwarder {
    cluster: Arc<KubeCluster>,
    namespace: String,
    service: String,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("namespace", &self.namespace)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Targets the relay's Service in the cluster's namespace, or the Service of that name.
    ///
    /// # Errors
    /// [`KubeError`].
    pub async fn of(cluster: Arc<KubeCluster>, service: Option<String>) -> Result<Self, KubeError> {
        let namespace = cluster.namespace().to_owned();
        let service = match service {
            Some(name) => name,
            None => service::named(&cluster, &namespace).await?,
        };
        Ok(Self {
            cluster,
            namespace,
            service,
        })
    }

    /// The namespace of the Service.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the Service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns a pod that is ready now.
    ///
    /// # Errors
    /// [`KubeError`].
    pub async fn place(&self) -> Result<RelayPod, KubeError> {
        let (first, _) = service::ready_pods(&self.cluster, &self.namespace, &self.service).await?;
        Ok(first)
    }

    /// Connects to the relay in a ready pod.
    ///
    /// # Errors
    /// [`KubeError`].
    pub async fn open(&self) -> Result<Forwarded, KubeError> {
        let ready_pods = service::ready_pods(&self.cluster, &self.namespace, &self.service);
        let (mut target, others) = ready_pods.await?;
        let mut others = others.into_iter().take(MAX_TRIED_PODS - 1);
        loop {
            let failed = match self.to(&target).await {
                // The pod is ready on a lost node, or was deleted just now.
                Err(error @ KubeError::NotForwarded { .. }) => error,
                opened => return opened,
            };
            target = others.next().ok_or(failed)?;
        }
    }

    async fn to(&self, target: &RelayPod) -> Result<Forwarded, KubeError> {
        let RelayPod { pod, port, .. } = target;
        let not_forwarded = |why: String| KubeError::NotForwarded {
            namespace: self.namespace.clone(),
            pod: pod.clone(),
            why,
        };
        let permission = permission(VERBS, "pods/portforward", &self.namespace);
        let opened = self.cluster.ask(&permission, |client| async {
            let pods: Api<Pod> = Api::namespaced(client, &self.namespace);
            match pods.portforward(pod, &[*port]).await {
                Ok(forwarder) => Ok(Ok(forwarder)),
                Err(kube::Error::UpgradeConnection(why)) => Ok(Err(not_forwarded(shortened(
                    &why.to_string(),
                    MAX_NAME_CHARS,
                )))),
                Err(kube::Error::Api(status)) if status.code == 404 || status.code >= 500 => {
                    Ok(Err(not_forwarded(
                        KubeAnswer::of(status.code, &status.reason).to_string(),
                    )))
                }
                Err(error) => Err(error),
            }
        });
        let mut forwarder = opened.await??;
        let (stream, failure) = (forwarder.take_stream(*port), forwarder.take_error(*port));
        match (stream, failure) {
            (Some(stream), Some(failure)) => Ok(Forwarded {
                pod: pod.clone(),
                stream,
                failure: Some(Box::pin(failure)),
                forwarder: Some(forwarder),
            }),
            _ => Err(not_forwarded("it has no stream".to_owned())),
        }
    }
}

impl Forward for Forwarder {
    fn forward(&self) -> Forwarding<'_> {
        Box::pin(async {
            match self.open().await {
                Ok(forwarded) => Ok(Box::new(forwarded) as _),
                Err(why) => Err(why.into()),
            }
        })
    }
}

/// The kubelet's error, if it could not connect.
type KubeletError = Pin<Box<dyn Future<Output = Option<String>> + Send + Sync>>;

/// The bytes of a port-forward. It cannot be half-closed: a side that has sent everything has also received
/// everything.
pub struct Forwarded {
    pod: String,
    stream: DuplexStream,
    failure: Option<KubeletError>,
    forwarder: Option<Portforwarder>,
}

impl Forwarded {
    /// The name of the pod.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Returns the kubelet's error, if it has sent one.
    fn failed(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        let Poll::Ready(error) = self.failure.as_mut()?.as_mut().poll(cx) else {
            return None;
        };
        self.failure = None;
        let error = error?;
        Some(io::Error::other(format!(
            "the port-forward has failed: {}",
            shortened(&error, MAX_NAME_CHARS)
        )))
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                read?;
                let is_over = buf.filled().len() == before && buf.remaining() > 0;
                match is_over.then(|| this.failed(cx)).flatten() {
                    Some(failed) => Poll::Ready(Err(failed)),
                    None => Poll::Ready(Ok(())),
                }
            }
            Poll::Pending => match this.failed(cx) {
                Some(failed) => Poll::Ready(Err(failed)),
                None => Poll::Pending,
            },
        }
    }
}

write_through!([] Forwarded { Self { stream, .. } => stream });

impl Drop for Forwarded {
    /// Sends the remaining output, and gives the API server a bounded time to answer.
    fn drop(&mut self) {
        if let (Some(forwarder), Ok(runtime)) = (self.forwarder.take(), Handle::try_current()) {
            runtime.spawn(async move {
                sleep(DIAL_STEP_TIMEOUT).await;
                forwarder.abort();
            });
        }
    }
}
