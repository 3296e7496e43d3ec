//! Terminal sessions, with workers on real sockets whose part the test plays.
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
/// With a paused clock: beyond every deadline of the relay's.
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
    kept: AuditSpy,
}

impl Relay {
    /// The last thing on record is a session that ended in this way.
    fn assert_ended(&self, outcome: &str) {
        let ends = self.kept.take().pop().unwrap();
        assert_eq!(ends.action, EntryKind::SessionEnded);
        assert_eq!(ends.details["outcome"], outcome);
    }
}

/// Knows the people of [`POLICY`] by the tokens of [`token_of`].
fn relay(auth: bool, adapt: impl FnOnce(&mut Config)) -> Relay {
    let auth = match auth {
        true => authenticator(POLICY),
        false => Authenticator::open(),
    };
    let mut config = Config::default();
    // As long as a step of a test may take: only what is about this time has a shorter one.
    config.dap.connect_timeout = TEST_TIMEOUT;
    adapt(&mut config);
    let (audit, kept) = spied(true);
    Relay {
        context: Context::offline(config, auth, audit),
        kept,
    }
}

/// A legacy prompt whose part the test plays.
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

    /// One that is in the list of `relay`.
    async fn listed(relay: &Relay) -> Self {
        let pdb = Self::listen().await;
        relay.context.registry.insert(pdb.breakpoint.clone());
        pdb
    }

    /// A client entered.
    async fn entered(&self) -> TcpStream {
        let accepted = timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (mut stream, _) = accepted.expect("the relay dials").unwrap();
        stream
            .write_all(b"> job.py(8)outer()\r\n-> x = x + 0\r\n(Pdb) ")
            .await
            .unwrap();
        stream
    }

    fn heard_nothing(self) {
        assert_not_dialled(self.listener);
    }
}

/// A person with `nc`; in memory, because a paused clock runs ahead of sockets.
struct Person {
    stream: DuplexStream,
    seen: String,
    ended: JoinHandle<()>,
    patience: Duration,
}

impl Person {
    /// The client's end of a connection, and what serves it.
    fn served(relay: &Relay) -> (DuplexStream, impl Future<Output = ()> + use<>) {
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
        let (stream, serving) = Self::served(relay);
        Self {
            stream,
            seen: String::new(),
            ended: tokio::spawn(serving),
            patience: TEST_TIMEOUT,
        }
    }

    async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `wanted` is there, and gives everything up to it.
    async fn until(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut bytes = [0; 4096];
            let read = timeout(self.patience, self.stream.read(&mut bytes)).await;
            let read = read
                .unwrap_or_else(|_| panic!("no {wanted:?} in {:?}", self.seen))
                .unwrap();
            assert!(read > 0, "closed without {wanted:?}: {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    /// Everything until the relay closes, whatever becomes of the session.
    async fn rest_of_it(&mut self) -> String {
        let mut bytes = Vec::new();
        timeout(self.patience, self.stream.read_to_end(&mut bytes))
            .await
            .expect("the relay closes")
            .unwrap();
        std::mem::take(&mut self.seen) + &String::from_utf8_lossy(&bytes)
    }

    /// Everything until the relay closes.
    async fn rest(mut self) -> String {
        let rest = self.rest_of_it().await;
        drop(self.stream);
        let ended = timeout(self.patience, self.ended).await;
        ended.expect("the session ends").unwrap();
        rest
    }
}

/// A relay that wants no token, a breakpoint, a person who has picked it, and its prompt, which both have shown.
async fn at_the_prompt() -> (Relay, Pdb, Person, TcpStream) {
    let relay = relay(false, |_| {});
    let (pdb, person, prompt) = picked(&relay, "0\n").await;
    (relay, pdb, person, prompt)
}

/// A breakpoint, a person who has picked it by saying this, and its prompt, which both have shown.
async fn picked(relay: &Relay, said: &str) -> (Pdb, Person, TcpStream) {
    let pdb = Pdb::listed(relay).await;
    let mut person = Person::connect(relay);
    person.say(said).await;
    let prompt = pdb.entered().await;
    person.until("(Pdb) ").await;
    (pdb, person, prompt)
}

async fn over(session: JoinHandle<()>) {
    let ended = timeout(TEST_TIMEOUT, session).await;
    ended.expect("the session ends").unwrap();
}

async fn until(stream: &mut TcpStream, wanted: &str) -> String {
    String::from_utf8(bytes_until(stream, wanted).await).unwrap()
}

async fn bytes_until(stream: &mut (impl AsyncRead + Unpin), wanted: &str) -> Vec<u8> {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let read = timeout(TEST_TIMEOUT, stream.read_buf(&mut seen)).await;
        let text = String::from_utf8_lossy(&seen);
        let read = read.unwrap_or_else(|_| panic!("no {wanted:?} in {text:?}"));
        assert!(read.unwrap() > 0, "closed without {wanted:?}: {text:?}");
    }
    seen
}
