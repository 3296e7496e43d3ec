//! Terminal sessions. The tests play the workers on real sockets.
#![allow(clippy::unwrap_used)]

mod all;
mod authenticate;
mod debugpy;
mod following;
mod legacy;
mod limits;
mod list;
mod parking;
mod restored;
mod running;
mod session;

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::lineproto::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::audit::testing::{AuditSpy, spied};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::testing::{authenticator, revoke, token_of};
use ray_relay_access::identity::{Authenticator, Principal};
use ray_relay_base::config::Config;
use ray_relay_ray::ray::registry::{Breakpoint, Kind};
use ray_relay_ray::ray::testing::{assert_not_dialled, listening, paused, paused_in_pdb};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// On a paused clock, this is longer than every deadline of the relay.
const DAY: Duration = Duration::from_secs(86_400);

/// The policy: permissions by user.
const POLICY: &str = r#"
[[rule]]
subjects = ["ann", "mia", "sue", "ida", "zoe"]
scopes = ["list", "terminal"]
[[rule]]
subjects = ["lou"]
scopes = ["list", "debug"]
[[rule]]
subjects = ["adm"]
scopes = ["list", "terminal", "debug", "admin"]
[[rule]]
subjects = ["ed"]
scopes = ["list", "terminal", "debug"]
[[rule]]
subjects = ["zoe"]
scopes = ["terminal"]
park = "0s"
[[rule]]
subjects = ["eve"]
scopes = ["dashboard:write"]
[[rule]]
subjects = ["mia"]
scopes = ["terminal"]
record = true
[[rule]]
subjects = ["sue"]
scopes = ["terminal"]
session_limit = "20m"
[[rule]]
subjects = ["ida"]
scopes = ["terminal"]
idle_limit = "100s"
"#;

struct Relay {
    context: Arc<Context>,
    spy: AuditSpy,
}

impl Relay {
    /// Expects that the last audit entry is the end of a session with this outcome.
    fn assert_ended(&self, outcome: &str) {
        let entry = self.spy.take().pop().unwrap();
        assert_eq!(entry.action, EntryKind::SessionEnded);
        assert_eq!(entry.details["outcome"], outcome);
    }
}

/// Creates a relay. With `auth`, it authenticates the users of [`POLICY`] by the tokens of [`token_of`].
fn relay(auth: bool, adapt: impl FnOnce(&mut Config)) -> Relay {
    let auth = match auth {
        true => authenticator(POLICY),
        false => Authenticator::open(),
    };
    let mut config = Config::default();
    // As long as a step of a test may take: only what is about this time has a shorter one.
    config.dap.connect_timeout = TEST_TIMEOUT;
    adapt(&mut config);
    let (audit, spy) = spied(true);
    Relay {
        context: Context::offline(config, auth, audit),
        spy,
    }
}

/// A legacy prompt played by the test.
struct Pdb {
    listener: TcpListener,
    breakpoint: Breakpoint,
}

impl Pdb {
    async fn listen() -> Self {
        let (listener, breakpoint) = listening(paused_in_pdb("outer", 1)).await;
        Self {
            listener,
            breakpoint,
        }
    }

    /// Creates a prompt that is listed at `relay`.
    async fn listed(relay: &Relay) -> Self {
        let pdb = Self::listen().await;
        relay.context.registry.insert(pdb.breakpoint.clone());
        pdb
    }

    /// Accepts the connection of a client that enters, and shows the prompt.
    async fn accept(&self) -> TcpStream {
        let accepted = timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (mut stream, _) = accepted.expect("the relay dials").unwrap();
        stream
            .write_all(b"> job.py(8)outer()\r\n-> x = x + 0\r\n(Pdb) ")
            .await
            .unwrap();
        stream
    }

    fn expect_not_dialled(self) {
        assert_not_dialled(self.listener);
    }
}

/// A client like `nc`, connected in memory because a paused clock runs ahead of sockets.
struct Client {
    stream: DuplexStream,
    buffer: String,
    ended: JoinHandle<()>,
    timeout: Duration,
}

impl Client {
    /// Returns the client's end of a connection, and the future that serves it.
    fn unspawned(relay: &Relay) -> (DuplexStream, impl Future<Output = ()> + use<>) {
        let (stream, accepted) = duplex(1 << 16);
        let peer = ([127, 0, 0, 1], 40_000).into();
        let context = relay.context.clone();
        let session = context.sessions.table.open(&Summary::new(peer));
        let serving = async move {
            serve(&context, session, accepted, ConnectionInfo::plain(peer)).await;
        };
        (stream, serving)
    }

    fn connect(relay: &Relay) -> Self {
        let (stream, serving) = Self::unspawned(relay);
        Self {
            stream,
            buffer: String::new(),
            ended: tokio::spawn(serving),
            timeout: TEST_TIMEOUT,
        }
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `expected` arrives, and returns everything up to it.
    async fn until(&mut self, expected: &str) -> String {
        loop {
            if let Some(index) = self.buffer.find(expected) {
                let rest = self.buffer.split_off(index + expected.len());
                return std::mem::replace(&mut self.buffer, rest);
            }
            let mut bytes = [0; 4096];
            let read = timeout(self.timeout, self.stream.read(&mut bytes)).await;
            let read = read
                .unwrap_or_else(|_| panic!("no {expected:?} in {:?}", self.buffer))
                .unwrap();
            assert!(read > 0, "closed without {expected:?}: {:?}", self.buffer);
            self.buffer += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    /// Reads until the relay closes the connection, without waiting for the session's end.
    async fn read_to_close(&mut self) -> String {
        let mut bytes = Vec::new();
        timeout(self.timeout, self.stream.read_to_end(&mut bytes))
            .await
            .expect("the relay closes")
            .unwrap();
        std::mem::take(&mut self.buffer) + &String::from_utf8_lossy(&bytes)
    }

    /// Reads until the relay closes the connection and the session has ended.
    async fn read_all(mut self) -> String {
        let output = self.read_to_close().await;
        drop(self.stream);
        let ended = timeout(self.timeout, self.ended).await;
        ended.expect("the session ends").unwrap();
        output
    }
}

/// Creates a relay without authentication, and a client at the prompt of a breakpoint.
async fn at_the_prompt() -> (Relay, Pdb, Client, TcpStream) {
    let relay = relay(false, |_| {});
    let (pdb, client, prompt) = at_prompt_of(&relay, "0\n").await;
    (relay, pdb, client, prompt)
}

/// Creates a breakpoint, and a client that selects it with `input` and sees its prompt.
async fn at_prompt_of(relay: &Relay, input: &str) -> (Pdb, Client, TcpStream) {
    let pdb = Pdb::listed(relay).await;
    let mut client = Client::connect(relay);
    client.send(input).await;
    let prompt = pdb.accept().await;
    client.until("(Pdb) ").await;
    (pdb, client, prompt)
}

async fn expect_session_end(session: JoinHandle<()>) {
    let ended = timeout(TEST_TIMEOUT, session).await;
    ended.expect("the session ends").unwrap();
}

async fn read_until(stream: &mut TcpStream, expected: &str) -> String {
    String::from_utf8(read_bytes_until(stream, expected).await).unwrap()
}

async fn read_bytes_until(stream: &mut (impl AsyncRead + Unpin), expected: &str) -> Vec<u8> {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(expected) {
        let read = timeout(TEST_TIMEOUT, stream.read_buf(&mut received)).await;
        let text = String::from_utf8_lossy(&received);
        let read = read.unwrap_or_else(|_| panic!("no {expected:?} in {text:?}"));
        assert!(read.unwrap() > 0, "closed without {expected:?}: {text:?}");
    }
    received
}
