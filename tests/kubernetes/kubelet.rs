//! A stand-in for the kubelet's port-forward endpoint.
//!
//! There are no nodes behind the API server of these tests. It is the real one that takes the port-forward, decides whether
//! somebody may have it, finds the pod's node, and passes the connection on to what is here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use crate::api::Api;

/// A node with nothing but its kubelet, which has nothing but the end of port-forwards.
pub(crate) struct Kubelet {
    pods: Pods,
    cut: watch::Sender<()>,
    opened: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// The address of each pod's listener.
type Pods = Arc<Mutex<HashMap<String, SocketAddr>>>;

impl Kubelet {
    /// Of a new node called `node`.
    pub(crate) async fn start(api: &Api, node: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let path = "/api/v1/nodes";
        let made = api.post(path, &json!({"metadata": {"name": node}})).await;
        made.unwrap();
        let status = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
        let path = format!("{path}/{node}/status");
        api.patch(&path, &json!({"status": status})).await.unwrap();
        let (pods, cut) = (Pods::default(), watch::Sender::new(()));
        let mut tasks = JoinSet::new();
        let (known, watched) = (Arc::clone(&pods), cut.subscribe());
        let opened = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&opened);
        tasks.spawn(async move {
            let acceptor = acceptor();
            let mut served = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, known) = (acceptor.clone(), Arc::clone(&known));
                let mut watched = watched.clone();
                counted.fetch_add(1, Ordering::Relaxed);
                watched.mark_unchanged();
                served.spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    tokio::select! {
                        () = serve(stream, &known) => {}
                        _ = watched.changed() => {}
                    }
                });
            }
        });
        Self {
            pods,
            cut,
            opened,
            _tasks: tasks,
        }
    }

    /// In `pod` listens what is at `address`; `None`: nothing does.
    pub(crate) fn listens(&self, pod: &str, address: Option<SocketAddr>) {
        let mut pods = self.pods.lock();
        match address {
            Some(address) => drop(pods.insert(pod.to_owned(), address)),
            None => drop(pods.remove(pod)),
        }
    }

    /// Port-forwards that there were so far.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Cuts all port-forwards without a word, as a kubelet that is started anew does.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(());
    }
}

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["kubelet".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

async fn serve(stream: TlsStream<TcpStream>, pods: &Pods) {
    let mut path = String::new();
    #[allow(clippy::result_large_err)]
    let answer = |request: &Request, mut response: Response| {
        path = request.uri().to_string();
        let known = "v4.channel.k8s.io";
        let offered = request.headers()["sec-websocket-protocol"].to_str();
        assert!(offered.unwrap().contains(known));
        let protocol = known.parse().unwrap();
        response
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, answer).await.unwrap();
    let (path, query) = path.split_once('?').unwrap();
    let port: u16 = query.strip_prefix("port=").unwrap().parse().unwrap();
    let [low, high] = port.to_le_bytes();
    // Of the data, and of what goes wrong.
    for channel in [0, 1] {
        let begun = Message::binary(vec![channel, low, high]);
        socket.send(begun).await.unwrap();
    }
    let pod = path.rsplit('/').next().unwrap();
    let address = pods.lock().get(pod).copied();
    match address {
        Some(address) => pass(socket, TcpStream::connect(address).await.unwrap()).await,
        None => {
            let text =
                format!("error forwarding port {port} to pod {pod}: connect: connection refused");
            let text = [b"\x01", text.as_bytes()].concat();
            socket.send(Message::binary(text)).await.unwrap();
            let _ = socket.close(None).await;
        }
    }
}

async fn pass(mut socket: WebSocketStream<TlsStream<TcpStream>>, mut pod: TcpStream) {
    let mut bytes = vec![0; 32 * 1024];
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Binary(message))) if message[0] == 0 => {
                    if pod.write_all(&message[1..]).await.is_err() {
                        return;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            read = pod.read(&mut bytes) => match read {
                Ok(0) | Err(_) => {
                    let _ = socket.close(None).await;
                    return;
                }
                Ok(read) => {
                    let message = [b"\0", &bytes[..read]].concat();
                    if socket.send(Message::binary(message)).await.is_err() {
                        return;
                    }
                }
            },
        }
    }
}
