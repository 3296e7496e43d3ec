//! A relay as agents see it: real sockets, and fake agents that misbehave on demand.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use super::serve_connection;
use ray_relay_access::audit::testing::{AuditSpy, spied};
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::Authenticator;
use ray_relay_access::identity::testing::{authenticator, token_of};
use ray_relay_base::config::Config;
use ray_relay_base::wire::tunnel::messages::{
    Announce, FromAgent, FromRelay, Open, PostMortem, StreamGreeting, StreamId,
};
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_base::wire::tunnel::{self, LINK_PATH, LINK_PROTOCOL, SECRET_HEADER, STREAM_PATH};
use ray_relay_session::agents::testing::{announcement, node};
use ray_relay_session::context::Context;

/// Time limit for everything that a test waits for.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Policy for nodes: `agent` speaks for the named ones, `local` for its own address, `person` for none.
pub const POLICY: &str = r#"
[[rule]]
subjects = ["agent", "double"]
nodes = ["a1", "b2"]
scopes = ["node"]

[[rule]]
subjects = ["local"]
scopes = ["node"]

[[rule]]
subjects = ["person", "other"]
scopes = ["list", "debug", "terminal"]

[[rule]]
subjects = ["elsewhere"]
jobs = ["ff000000"]
scopes = ["list", "debug"]

[[rule]]
subjects = ["taped"]
scopes = ["list", "debug"]
record = true
"#;

/// A relay with the nodes `a1` at 10.0.0.1 and `c3` at this machine's loopback address.
pub struct Scene {
    pub context: Arc<Context>,
    pub record: AuditSpy,
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Scene {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(adapt: impl FnOnce(&mut Config)) -> Self {
        Self::of(authenticator(POLICY), adapt).await
    }

    /// The same, with the users of `auth`.
    pub async fn of(auth: Arc<Authenticator>, adapt: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.dap.connect_timeout = Duration::from_secs(5);
        config.park.r#for = Duration::ZERO;
        adapt(&mut config);
        let (audit, record) = spied(false);
        let context = Context::offline(config, auth, audit);
        Self::serving(context, record).await
    }

    /// The same, with `context`.
    pub async fn serving(context: Arc<Context>, record: AuditSpy) -> Self {
        context
            .registry
            .set_nodes(&[node("a1", "10.0.0.1"), node("c3", "127.0.0.1")]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let agents = Arc::clone(&context.peers.agents);
        tasks.spawn(async move { agents.share(CancellationToken::new()).await });
        let served = Arc::clone(&context);
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let info = ConnectionInfo::plain(peer);
                let shutdown = CancellationToken::new();
                open.spawn(serve_connection(
                    stream,
                    info,
                    Arc::clone(&served),
                    shutdown,
                ));
            }
        });
        Self {
            context,
            record,
            address,
            _tasks: tasks,
        }
    }

    pub fn request(&self, path: &str, subject: &str, protocol: &str) -> Request {
        let url = format!("ws://{}{path}", self.address);
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        let bearer = format!("Bearer {}", token_of(subject));
        headers.insert("authorization", bearer.parse().unwrap());
        headers.insert("sec-websocket-protocol", protocol.parse().unwrap());
        request
    }

    pub async fn opened(&self, request: Request) -> Result<WebSocketStream<TcpStream>, StatusCode> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        match client_async_with_config(request, stream, Some(tunnel::link_config())).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => Err(response.status()),
            Err(other) => panic!("{other}"),
        }
    }

    /// Opens the link of an agent of `subject`, unannounced.
    pub async fn dial(&self, subject: &str) -> Result<StandIn, StatusCode> {
        let request = self.request(LINK_PATH, subject, LINK_PROTOCOL);
        let mut agent = StandIn {
            socket: self.opened(request).await?,
            nonce: Hex([0; 16]),
            post_mortem: None,
        };
        match agent.hear().await {
            Ok(FromRelay::Hello { nonce, .. }) => agent.nonce = nonce,
            other => panic!("{other:?}"),
        }
        Ok(agent)
    }

    /// The same, announced as `node_id` by the process `instance`.
    pub async fn linked(&self, subject: &str, node_id: &str, instance: u8) -> StandIn {
        let mut agent = self.dial(subject).await.unwrap();
        agent.announce(node_id, instance).await;
        match agent.hear().await {
            Ok(FromRelay::Welcome { .. }) => agent,
            other => panic!("{other:?}"),
        }
    }

    /// Opens the stream that was requested from an agent of `subject`.
    pub async fn stream(
        &self,
        subject: &str,
        open: &Open,
    ) -> Result<WebSocketStream<TcpStream>, StatusCode> {
        self.stream_for(subject, &open.stream, &open.secret).await
    }

    /// The same by its name and secret.
    pub async fn stream_for(
        &self,
        subject: &str,
        stream: &StreamId,
        secret: &Hex<16>,
    ) -> Result<WebSocketStream<TcpStream>, StatusCode> {
        let path = format!("{STREAM_PATH}{}", stream.digits());
        let mut request = self.request(&path, subject, tunnel::STREAM_PROTOCOL);
        let secret = secret.digits().parse().unwrap();
        request.headers_mut().insert(SECRET_HEADER, secret);
        self.opened(request).await
    }

    /// Audit entries about agents: outcome and reason.
    pub fn recorded(&self) -> Vec<String> {
        let lines = self.record.lines();
        let of_agents = lines
            .iter()
            .filter(|line| line.action == ray_relay_access::audit::EntryKind::Agent);
        let entries = of_agents.map(|line| {
            let text = |key: &str| line.details[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}", text("outcome"), text("why"))
        });
        entries.collect()
    }
}

/// A fake agent.
pub struct StandIn {
    pub socket: WebSocketStream<TcpStream>,
    pub nonce: Hex<16>,
    /// Post-mortem settings that the relay sent.
    pub post_mortem: Option<PostMortem>,
}

impl StandIn {
    pub async fn say(&mut self, message: &FromAgent) {
        let text = tunnel::messages::written(message);
        self.socket.send(Message::text(text)).await.unwrap();
    }

    pub async fn announce(&mut self, node_id: &str, instance: u8) {
        let announce = Announce {
            nonce: self.nonce,
            instance: Hex([instance; 16]),
            ..announcement(Some(node_id), &[])
        };
        self.say(&FromAgent::Announce(announce)).await;
    }

    /// The next message, or the reason of the link's end.
    pub async fn hear(&mut self) -> Result<FromRelay, String> {
        let next = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => match tunnel::messages::read(&text).unwrap() {
                        // Sent to each agent after its welcome.
                        FromRelay::PostMortem(wanted) => self.post_mortem = Some(wanted),
                        message => return Ok(message),
                    },
                    Some(Ok(Message::Close(frame))) => {
                        return Err(frame.map(|f| f.reason.to_string()).unwrap_or_default());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err("gone".to_owned()),
                }
            }
        };
        timeout(TEST_TIMEOUT, next)
            .await
            .expect("something in time")
    }

    /// The next requested stream.
    pub async fn asked(&mut self) -> Open {
        match self.hear().await {
            Ok(FromRelay::Open(open)) => open,
            other => panic!("{other:?}"),
        }
    }

    /// The reason of the refusal.
    pub async fn refused(&mut self) -> String {
        match self.hear().await {
            Ok(FromRelay::Refused { reason }) => reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the end of the link, and returns its reason.
    pub async fn ends(&mut self) -> String {
        loop {
            if let Err(why) = self.hear().await {
                return why;
            }
        }
    }
}

/// Reports on a stream that the debugger is connected.
pub async fn dialled(stream: &mut WebSocketStream<TcpStream>) {
    let dialled = tunnel::messages::written(&StreamGreeting::Dialled);
    stream.send(Message::text(dialled)).await.unwrap();
}

/// The bytes of the next message.
pub async fn bytes(stream: &mut WebSocketStream<TcpStream>) -> Option<Bytes> {
    loop {
        match timeout(TEST_TIMEOUT, stream.next()).await.expect("in time") {
            Some(Ok(Message::Binary(bytes))) => return Some(bytes),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            Some(Ok(_)) => {}
        }
    }
}
