//! Visits, with workers on real sockets whose part the test plays.
#![allow(clippy::unwrap_used)]

mod debugpy;
mod limits;

use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::audit::kept::Kept;
use crate::audit::{Action, Audit};
use crate::config::Config;
use crate::dap::testing::paused;
use crate::identity::fixed::somebody;
use crate::identity::revocation::{Revocation, RevocationList, Revoked};
use crate::identity::{Authenticator, Principal};
use crate::policy::{Handling, Rule};
use crate::registry::{Breakpoint, Kind, Registered, Registry};
use crate::shutdown::Shutdown;
use crate::telemetry::Metrics;

const PATIENCE: Duration = Duration::from_secs(10);
/// With a paused clock: beyond every deadline of the relay's.
const DAY: Duration = Duration::from_secs(86_400);

struct Relay {
    context: Arc<Context>,
    revoked: watch::Sender<Arc<RevocationList>>,
    kept: Kept,
}

/// The tokens are `token-of-NAME`.
fn relay(auth: bool, adapt: impl FnOnce(&mut Config)) -> Relay {
    let revoked = watch::Sender::default();
    let person = |name: &str, scopes: &str| {
        let rule = Rule {
            scopes: scopes.parse().unwrap(),
            handling: Handling {
                record: name == "mia",
                session_limit: (name == "sue").then_some(Duration::from_secs(20 * 60)),
                idle_limit: (name == "ida").then_some(Duration::from_secs(100)),
                ..Handling::default()
            },
            ..Rule::default()
        };
        (
            format!("token-of-{name}"),
            somebody(name, &format!("jti-{name}"), [rule], &revoked),
        )
    };
    let people: Vec<(String, Principal)> = vec![
        person("ann", "list,terminal"),
        person("lou", "list,debug"),
        person("eve", "dashboard:write"),
        person("mia", "list,terminal"),
        person("sue", "list,terminal"),
        person("ida", "list,terminal"),
    ];
    let auth = match auth {
        true => Authenticator::fixed(people),
        false => Authenticator::open(),
    };
    let mut config = Config::default();
    config.dap.connect_timeout = Duration::from_millis(500);
    adapt(&mut config);
    let registry = Registry::offline(&["default"], &config.registry);
    let (audit, kept) = Audit::kept(true);
    let context = Context::new(
        Arc::new(config),
        auth,
        audit,
        registry,
        Metrics::new().unwrap(),
        5678,
        Shutdown::default(),
    );
    Relay {
        context: Arc::new(context),
        revoked,
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let registered = Registered {
            key: "RAY_PDB_84ccee9342eb4d10a70c5c08b7a0424e".to_owned(),
        };
        let breakpoint = Breakpoint {
            kind: Kind::Pdb,
            pid: 0,
            node_ip: address.ip(),
            port: address.port(),
            registered: Some(Arc::new(registered)),
            ..paused("outer", 1)
        };
        Self {
            listener,
            breakpoint,
        }
    }

    /// Somebody entered.
    async fn entered(&self) -> TcpStream {
        let accepted = timeout(PATIENCE, self.listener.accept()).await;
        let (mut stream, _) = accepted.expect("the relay dials").unwrap();
        stream
            .write_all(b"> job.py(8)outer()\r\n-> x = x + 0\r\n(Pdb) ")
            .await
            .unwrap();
        stream
    }

    fn heard_nothing(self) {
        let listener = self.listener.into_std().unwrap();
        let heard = listener.accept();
        assert!(
            heard.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
            "it was dialled"
        );
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
    fn connect(relay: &Relay) -> Self {
        let (stream, accepted) = duplex(1 << 16);
        let peer = ([127, 0, 0, 1], 40_000).into();
        let context = relay.context.clone();
        let session = context.sessions.open(peer);
        let ended = tokio::spawn(async move {
            serve(&context, session, accepted, Arrival::plain(peer)).await;
        });
        Self {
            stream,
            seen: String::new(),
            ended,
            patience: PATIENCE,
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

    /// Everything until the relay closes.
    async fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        timeout(self.patience, self.stream.read_to_end(&mut bytes))
            .await
            .expect("the relay closes")
            .unwrap();
        drop(self.stream);
        timeout(self.patience, self.ended)
            .await
            .expect("the session ends")
            .unwrap();
        self.seen + &String::from_utf8_lossy(&bytes)
    }
}

async fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let mut bytes = [0; 1024];
        let read = timeout(PATIENCE, stream.read(&mut bytes)).await;
        let read = read
            .unwrap_or_else(|_| panic!("no {wanted:?} in {seen:?}"))
            .unwrap();
        assert!(read > 0, "closed without {wanted:?}: {seen:?}");
        seen += &String::from_utf8_lossy(&bytes[..read]);
    }
    seen
}

#[tokio::test]
async fn nothing_is_said_to_nobody_and_three_wrong_tokens_are_enough() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut person = Person::connect(&relay);
    for _ in 0..3 {
        let asked = person.until("token: ").await;
        assert!(!asked.contains("outer"), "{asked}");
        person.say("0\n").await;
    }
    let rest = person.rest().await;
    assert!(!rest.contains("outer"), "{rest}");
    let refused = relay.kept.take();
    assert_eq!(refused.len(), 3);
    assert!(
        refused
            .iter()
            .all(|e| e.action == Action::Authentication && e.details["protocol"] == "terminal")
    );
    assert!(relay.context.sessions.is_empty());
    pdb.heard_nothing();
}

#[tokio::test(start_paused = true)]
async fn silence_costs_a_minute_and_nothing_else() {
    for auth in [true, false] {
        let relay = relay(auth, |_| {});
        let pdb = Pdb::listen().await;
        relay.context.registry.insert(pdb.breakpoint.clone());
        let mut person = Person::connect(&relay);
        person.patience = DAY;
        let began = tokio::time::Instant::now();
        let said = person.rest().await;
        assert!(
            began.elapsed() <= Duration::from_secs(65),
            "{:?}",
            began.elapsed()
        );
        assert!(said.contains("this connection is closed"), "{said}");
        assert_eq!(said.contains("outer"), !auth);
        pdb.heard_nothing();
    }
}

#[tokio::test]
async fn who_may_not_enter_sees_the_list_and_no_more() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut lou = Person::connect(&relay);
    lou.say("token-of-lou\n0\nq\n").await;
    let rest = lou.rest().await;
    assert!(
        rest.contains("outer") && rest.contains("permission `terminal`"),
        "{rest}"
    );
    let mut eve = Person::connect(&relay);
    eve.say(&format!("enter {}\ntoken-of-eve\n", pdb.breakpoint.id))
        .await;
    let rest = eve.rest().await;
    assert!(
        rest.contains("no paused worker has the id") && !rest.contains("outer"),
        "{rest}"
    );
    assert!(relay.context.registry.snapshot().live[0].is_paused());
    pdb.heard_nothing();
}

#[tokio::test]
async fn a_legacy_prompt_is_relayed_and_a_client_that_drops_lets_the_task_run_on() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut ann = Person::connect(&relay);
    ann.until("token: ").await;
    ann.say("token-of-ann\r\n").await;
    ann.until("q leaves): ").await;
    ann.say("0\r\n").await;
    let mut prompt = pdb.entered().await;
    ann.until("-> x = x + 0\r\n(Pdb) ").await;
    ann.say("p x\r\n").await;
    until(&mut prompt, "p x\r\n").await;
    prompt.write_all(b"1\r\n(Pdb) ").await.unwrap();
    ann.until("1\r\n(Pdb) ").await;
    // Half a line is no command.
    ann.say("q").await;
    drop(ann.stream);
    let said = until(&mut prompt, "c\n").await;
    assert_eq!(said, "c\n");
    drop(prompt);
    timeout(PATIENCE, ann.ended)
        .await
        .expect("the session ends")
        .unwrap();
    let actions: Vec<_> = relay
        .kept
        .take()
        .into_iter()
        .map(|e| (e.action, e.details.get("command").cloned()))
        .collect();
    assert_eq!(actions[0].0, Action::SessionBegan);
    assert_eq!(actions[1], (Action::Command, Some("p x".into())));
    assert_eq!(actions.last().unwrap().0, Action::SessionEnded);
    assert!(relay.context.sessions.is_empty());
}

#[tokio::test]
async fn leaving_a_legacy_prompt_with_q_has_to_be_said_twice() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut person = Person::connect(&relay);
    person.say("0\n").await;
    let mut prompt = pdb.entered().await;
    person.until("(Pdb) ").await;
    person.say("q\n").await;
    person.until("makes the task fail").await;
    person.say("q\n").await;
    assert_eq!(until(&mut prompt, "q\n").await, "q\n");
    drop(prompt);
    person.until("No task waits").await;
}

#[tokio::test]
async fn a_session_that_goes_on_in_another_task_is_followed() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut person = Person::connect(&relay);
    person.say("0\n").await;
    let mut prompt = pdb.entered().await;
    person.until("(Pdb) ").await;
    person.say("remote\n").await;
    until(&mut prompt, "remote\n").await;
    drop(prompt);
    person.until("Waiting for the session to go on").await;
    // The same key, elsewhere.
    let next = Pdb::listen().await;
    relay.context.registry.insert(Breakpoint {
        stop: 2,
        ..next.breakpoint.clone()
    });
    let mut prompt = next.entered().await;
    person.until("(Pdb) ").await;
    person.say("c\n").await;
    until(&mut prompt, "c\n").await;
    drop(prompt);
    person.until("No task waits").await;
}

#[tokio::test]
async fn a_session_that_goes_on_nowhere_is_back_at_the_list_by_rays_word() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut person = Person::connect(&relay);
    person.say("0\n").await;
    let mut prompt = pdb.entered().await;
    person.until("(Pdb) ").await;
    person.say("remote\n").await;
    until(&mut prompt, "remote\n").await;
    drop(prompt);
    person.until("Waiting for the session to go on").await;
    relay.context.registry.exit(&pdb.breakpoint);
    person.until("*** it goes on in no other task").await;
    person.until("No task waits").await;
    person.say("q\n").await;
    person.rest().await;
}

#[tokio::test]
async fn a_prompt_on_a_nodes_own_loopback_is_not_dialled() {
    let relay = relay(false, |config| {
        config.clusters[0].ray_address = "http://10.0.0.1:8265".to_owned();
    });
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut person = Person::connect(&relay);
    person.say("0\nq\n").await;
    let rest = person.rest().await;
    assert!(rest.contains("--ray-debugger-external"), "{rest}");
    pdb.heard_nothing();
}

#[tokio::test]
async fn revoking_a_token_ends_the_session_and_not_the_task() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut ann = Person::connect(&relay);
    ann.say("token-of-ann\n0\n").await;
    let mut prompt = pdb.entered().await;
    ann.until("(Pdb) ").await;
    let mut list = RevocationList::default();
    let what = Revoked::Subject {
        subject: "ann".to_owned(),
        at: SystemTime::now(),
    };
    list.add(Revocation { what, until: None }).unwrap();
    relay.revoked.send_replace(Arc::new(list));
    let began = std::time::Instant::now();
    assert!(until(&mut prompt, "c\n").await.ends_with("c\n"));
    drop(prompt);
    let rest = ann.rest().await;
    assert!(rest.contains("your token was revoked"), "{rest}");
    assert!(began.elapsed() < Duration::from_secs(2));
    let ends = relay.kept.take().pop().unwrap();
    assert_eq!(
        (ends.action, ends.details["outcome"].as_str()),
        (Action::SessionEnded, Some("revoked"))
    );
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen() {
    let relay = relay(false, |_| {});
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    relay.kept.refuse(Action::SessionBegan);
    let mut person = Person::connect(&relay);
    person.say("0\nq\n").await;
    let rest = person.rest().await;
    assert!(rest.contains("audit log"), "{rest}");
    pdb.heard_nothing();
}

#[tokio::test]
async fn secrets_in_the_output_are_masked_where_that_is_on() {
    let relay = relay(false, |config| config.masking.enabled = true);
    let pdb = Pdb::listen().await;
    relay.context.registry.insert(pdb.breakpoint.clone());
    let mut person = Person::connect(&relay);
    person.say("0\n").await;
    let mut prompt = pdb.entered().await;
    person.until("(Pdb) ").await;
    prompt
        .write_all("{'password': 'hunter2', 'größe': 1}\r\n(Pdb) ".as_bytes())
        .await
        .unwrap();
    let shown = person.until("(Pdb) ").await;
    assert!(
        shown.contains("masked") && shown.contains("größe") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[tokio::test]
async fn telnet_gets_no_echo_of_a_token() {
    let relay = relay(true, |_| {});
    let mut person = Person::connect(&relay);
    person.stream.write_all(b"\xff\xfb\x1f\r\n").await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"token: ") {
        let mut bytes = [0; 256];
        let read = timeout(PATIENCE, person.stream.read(&mut bytes))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0);
        seen.extend_from_slice(&bytes[..read]);
    }
    // Of the test's own making: nothing is read before the connection is served.
    let hidden = seen.windows(3).filter(|w| *w == telnet::ECHO_OFF).count();
    assert!(hidden <= 2);
    person.say("token-of-ann\r\n").await;
    let mut all = seen;
    while !String::from_utf8_lossy(&all).contains("q leaves") {
        let mut bytes = [0; 256];
        let read = timeout(PATIENCE, person.stream.read(&mut bytes))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0);
        all.extend_from_slice(&bytes[..read]);
    }
    let has = |wanted: &[u8]| all.windows(wanted.len()).any(|w| w == wanted);
    assert!(has(&telnet::ECHO_OFF) && has(&telnet::ECHO_ON));
    assert!(has(b"No task waits at a breakpoint.\r\n"));
}

#[tokio::test]
async fn a_session_that_is_to_be_recorded_is_or_does_not_happen() {
    let dir = tempfile::tempdir().unwrap();
    for recorded in [false, true] {
        let relay = relay(true, |config| {
            config.recording.dir = recorded.then(|| dir.path().to_owned());
            config.masking.enabled = true;
        });
        let pdb = Pdb::listen().await;
        relay.context.registry.insert(pdb.breakpoint.clone());
        let mut mia = Person::connect(&relay);
        mia.say("token-of-mia\n0\n").await;
        if !recorded {
            mia.until("cannot record it").await;
            pdb.heard_nothing();
            continue;
        }
        let mut prompt = pdb.entered().await;
        mia.until("(Pdb) ").await;
        mia.say("p password\n").await;
        until(&mut prompt, "p password\n").await;
        prompt
            .write_all(b"password='hunter2'\r\n(Pdb) ")
            .await
            .unwrap();
        mia.until("(Pdb) ").await;
        drop(prompt);
        mia.until("q leaves").await;
        mia.say("q\n").await;
        mia.rest().await;
    }
    let entry = std::fs::read_dir(dir.path()).unwrap().next().unwrap();
    let recording = std::fs::read_to_string(entry.unwrap().path()).unwrap();
    assert!(
        recording.contains("p password") && recording.contains("(Pdb) "),
        "{recording}"
    );
    assert!(
        !recording.contains("hunter2") && !recording.contains("token-of"),
        "{recording}"
    );
}
