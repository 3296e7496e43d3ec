//! A client that attaches to one worker and ends its session in every possible way.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use socket2::SockRef;

use super::scene::Scene;

/// How long the relay may take to end a session by itself, or to accept the attach, on a slow machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The client's connection ends in order.
    Close,
    /// The client ends its half alone.
    HalfClose,
    /// The client's connection is reset.
    Reset,
    /// The client stays, in the middle of a message, and says nothing more, until its policy's idle limit.
    Silence,
    /// `disconnect`, and the end right behind it.
    GoodbyeAndClose,
    /// `disconnect`, and behind it the rest of what configures a session, as Neovim does it.
    GoodbyeAmidst,
    /// The client's token expires.
    Expiry,
    /// The client's token is revoked.
    Revocation,
    /// The client does nothing, until its policy's idle limit.
    Idle,
    /// The relay shuts down.
    Drain,
    /// The session cannot be recorded any further.
    Recording,
    /// Ctrl-C of `ray-relay exec`.
    Exec,
    /// Ctrl-C of `ray-relay debug`.
    Debug,
    /// Ctrl-C of `nc`.
    Nc,
    /// Ctrl-C of `ray-relay dap`.
    Dap,
}

pub(super) const KINDS: [Kind; 15] = [
    Kind::Close,
    Kind::GoodbyeAndClose,
    Kind::Exec,
    Kind::GoodbyeAmidst,
    Kind::Reset,
    Kind::Expiry,
    Kind::HalfClose,
    Kind::Dap,
    Kind::Silence,
    Kind::Debug,
    Kind::Revocation,
    Kind::Recording,
    Kind::Nc,
    Kind::Idle,
    Kind::Drain,
];

/// One of them, and at which moment.
#[derive(Debug)]
pub(super) struct Departure {
    kind: Kind,
    /// How much of the exchange is sent before the end, from 0 to 1.
    part: f64,
    /// Between the last byte and the end.
    delay: Duration,
    /// Whether the task is resumed before.
    resumes: bool,
}

impl Departure {
    pub(super) fn by_chance(kind: Kind, leaver: &Leaver<'_>) -> Self {
        let mut chance = leaver.chance.borrow_mut();
        // The dangerous moments are the first 0.3 s after `attach`.
        let delay = match chance.random_range(0..4) {
            0 => 0,
            1 => chance.random_range(0..1000),
            _ => chance.random_range(0..300),
        };
        let part = match chance.random_bool(0.5) {
            true => chance.random_range(0.0..1.0),
            false => 1.0,
        };
        Self {
            kind,
            part,
            delay: Duration::from_millis(delay),
            resumes: chance.random_bool(0.4),
        }
    }
}

/// The state of the worker in the list.
pub(super) enum Look {
    /// The id of its breakpoint.
    Waits(String),
    /// It is attached, or not listed.
    Busy(String),
    /// Its debugger's port is closed.
    Gone(String),
    /// Its actor has returned.
    Ended,
}

pub(super) struct Leaver<'a> {
    scene: &'a Scene,
    name: String,
    pid: u64,
    token: String,
    chance: RefCell<StdRng>,
}

impl<'a> Leaver<'a> {
    pub(super) fn new(scene: &'a Scene, name: &str, pid: u64, seed: u64) -> Self {
        Self {
            scene,
            name: name.to_owned(),
            pid,
            token: scene.mint("drill", "2h"),
            chance: RefCell::new(StdRng::seed_from_u64(seed)),
        }
    }

    pub(super) fn chance(&self, below: usize) -> usize {
        self.chance.borrow_mut().random_range(0..below)
    }

    pub(super) fn look(&self) -> Look {
        if self.scene.has_ended(&self.name) {
            return Look::Ended;
        }
        let answer = self.http(self.scene.address(), "GET", "/relay/v1/breakpoints", None);
        let rows = answer["breakpoints"].as_array().cloned();
        let row = rows.unwrap_or_default().into_iter();
        let Some(row) = row.into_iter().find(|row| row["pid"] == self.pid) else {
            return Look::Busy(format!("not listed: {}", answer["clusters"]));
        };
        match row["state"].as_str() {
            Some("paused") => Look::Waits(row["id"].as_str().unwrap().to_owned()),
            Some("unreachable") => Look::Gone(row.to_string()),
            _ => Look::Busy(row.to_string()),
        }
    }

    /// Returns the state of the worker according to Ray.
    pub(super) fn state_in_ray(&self) -> Value {
        let path = "/api/v0/workers?detail=1&limit=1000";
        let mut answer = self.http(self.scene.address(), "GET", path, None);
        let rows = answer["data"]["result"]["result"].take();
        let rows = rows.as_array().cloned().unwrap_or_default();
        let mut rows = rows.into_iter();
        rows.find(|row| row["pid"] == self.pid).unwrap_or_default()
    }

    /// The relay's answer.
    pub(super) fn release(&self, id: &str) -> Value {
        let body = json!({"ids": [id]});
        let to = self.scene.address();
        self.http(to, "POST", "/relay/v1/release", Some(&body))
    }

    /// An answer as JSON; null where there is none.
    fn http(&self, to: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let mut answer = String::new();
        if let Ok(mut stream) = connect(to) {
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        let json = answer
            .find('{')
            .zip(answer.rfind('}'))
            .map(|(a, z)| &answer[a..=z]);
        json.and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default()
    }

    /// Attaches to the breakpoint `id`, and leaves it so.
    pub(super) fn leave(&self, id: &str, departure: &Departure) {
        if departure.kind == Kind::Drain {
            let mut relay = self.scene.relay.write().unwrap();
            let mut client = Client::connect(relay.address());
            client.say(&self.opening(id, &self.token), departure);
            std::thread::sleep(departure.delay);
            self.scene.replace(&mut relay);
            return;
        }
        let relay = self.scene.relay.read().unwrap();
        let to = relay.address();
        match departure.kind {
            Kind::Exec | Kind::Debug => {
                let args: &[&str] = match departure.kind {
                    Kind::Exec => &["exec", "--continue", id, "--", "where"],
                    _ => &["debug", id],
                };
                let child = self.command(to, args, Stdio::piped());
                interrupt(child, departure.delay + departure.delay);
            }
            Kind::Dap => {
                let mut child = self.command(to, &["dap"], Stdio::piped());
                let text = self.opening(id, &self.token).cut(departure);
                let _ = child.stdin.as_mut().unwrap().write_all(&text);
                interrupt(child, departure.delay);
            }
            Kind::Nc => {
                let mut client = Client::connect(to);
                let text = format!("\n{}\n{id}\nwhere\nnext\n", self.token);
                let length = (text.len() as f64 * departure.part.max(0.5)) as usize;
                client.send(&text.as_bytes()[..length]);
                std::thread::sleep(departure.delay + departure.delay);
                client.drain();
            }
            kind => self.debugger(to, id, kind, departure),
        }
    }

    fn debugger(&self, to: SocketAddr, id: &str, kind: Kind, departure: &Departure) {
        let revoked = format!("revoked-{:016x}", rand::random::<u64>());
        let token = match kind {
            Kind::Silence | Kind::Idle => self.scene.mint("idle", "1h"),
            Kind::Recording => self.scene.mint("recorded", "1h"),
            Kind::Expiry => self.scene.mint("drill", "2s"),
            Kind::Revocation => self.scene.mint(&revoked, "1h"),
            _ => self.token.clone(),
        };
        let mut client = Client::connect(to);
        let mut script = self.opening(id, &token);
        if kind == Kind::Recording {
            // Larger than any recording may be here.
            let expression = format!("0{}", " ".repeat(100_000));
            script.request("evaluate", &json!({"expression": expression}));
        }
        match kind {
            // Of these a half message would be all that the relay sees of the goodbye, or of the moment.
            Kind::GoodbyeAndClose => client.say_whole(&script, departure.part),
            Kind::GoodbyeAmidst => {
                client.send(&script.before);
                client.until_attached();
            }
            Kind::Idle | Kind::Recording | Kind::Expiry => client.say_whole(&script, 1.0),
            _ => client.say(&script, departure),
        }
        std::thread::sleep(departure.delay);
        match kind {
            Kind::Close => client.drain(),
            Kind::Reset => {
                let linger = Some(Duration::ZERO);
                SockRef::from(&client.stream).set_linger(linger).unwrap();
            }
            Kind::HalfClose => {
                let _ = client.stream.shutdown(Shutdown::Write);
                client.rest();
            }
            Kind::GoodbyeAndClose => {
                let mut goodbye = Script::default();
                goodbye.request("disconnect", &json!({"restart": false}));
                client.send(&goodbye.after);
                client.drain();
            }
            Kind::GoodbyeAmidst => {
                let mut goodbye = Script::default();
                goodbye.request("disconnect", &json!({"restart": false}));
                client.send(&[goodbye.after, script.after].concat());
                client.rest();
            }
            Kind::Revocation => {
                let body = json!({"sub": revoked});
                self.http(to, "POST", "/relay/v1/revocations", Some(&body));
                client.rest();
            }
            _ => client.rest(),
        }
    }

    /// The messages of a debugger from its first until the task resumes.
    fn opening(&self, id: &str, token: &str) -> Script {
        let mut script = Script::default();
        script.request(
            "initialize",
            &json!({"clientID": "drill", "adapterID": "debugpy", "pathFormat": "path"}),
        );
        let mut attach =
            json!({"justMyCode": true, "rayRelay": {"breakpoint": id, "token": token}});
        if self.chance(2) == 0 {
            // The relay must ignore these mappings.
            attach["pathMappings"] = json!([{"localRoot": "/home/ann", "remoteRoot": "."}]);
        }
        script.request("attach", &attach);
        script.attached();
        script.request(
            "setFunctionBreakpoints",
            &json!({"breakpoints": [{"name": "nowhere"}]}),
        );
        script.request("setExceptionBreakpoints", &json!({"filters": ["uncaught"]}));
        script.request("configurationDone", &json!({}));
        script.request("threads", &json!({}));
        script
    }

    fn command(&self, to: SocketAddr, args: &[&str], stdin: Stdio) -> Child {
        Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .args(args)
            .env("RAY_RELAY_URL", format!("http://{to}"))
            .env("RAY_RELAY_TOKEN", &self.token)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// Ctrl-C after `delay`.
fn interrupt(mut child: Child, delay: Duration) {
    std::thread::sleep(delay);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The process may have ended by itself.
    let _ = kill_process(pid.unwrap(), Signal::INT);
    drop(child.stdin.take());
    let until = Instant::now() + TEST_TIMEOUT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= until {
            let _ = child.kill();
            panic!("a command does not end by Ctrl-C");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A connection that is there in time, and takes each write in time.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, TEST_TIMEOUT)?;
    stream.set_write_timeout(Some(TEST_TIMEOUT))?;
    Ok(stream)
}

/// The messages of a debugger: until the worker is attached, and after.
#[derive(Default)]
struct Script {
    before: Vec<u8>,
    after: Vec<u8>,
    /// Ends of messages, counted from the start of all.
    ends: Vec<usize>,
    seq: u64,
}

impl Script {
    fn request(&mut self, command: &str, arguments: &Value) {
        self.seq += 1;
        let body =
            json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments})
                .to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.after.extend_from_slice(frame.as_bytes());
        self.ends.push(self.before.len() + self.after.len());
    }

    /// The messages that follow when the debugger is ready for them.
    fn attached(&mut self) {
        self.before = std::mem::take(&mut self.after);
    }

    fn length(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The part of all bytes that `departure` sends, in one piece.
    fn cut(&self, departure: &Departure) -> Vec<u8> {
        let mut all = [&self.before[..], &self.after].concat();
        all.truncate((self.length() as f64 * departure.part) as usize);
        all
    }
}

/// The time of a read or write is over.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    fn connect(to: SocketAddr) -> Self {
        Self {
            stream: connect(to).unwrap(),
            read: Vec::new(),
        }
    }

    /// Up to any byte.
    fn say(&mut self, script: &Script, departure: &Departure) {
        let length = (script.length() as f64 * departure.part) as usize;
        self.say_to(script, length);
        if departure.part >= 1.0 && departure.resumes {
            let mut resume = Script::default();
            resume.request("continue", &json!({"threadId": 1}));
            self.send(&resume.after);
        }
    }

    /// Up to the end of a message.
    fn say_whole(&mut self, script: &Script, part: f64) {
        let index = ((script.ends.len() - 1) as f64 * part) as usize;
        self.say_to(script, script.ends[index]);
    }

    fn say_to(&mut self, script: &Script, length: usize) {
        self.send(&script.before[..length.min(script.before.len())]);
        if length > script.before.len() && self.until_attached() {
            self.send(&script.after[..length - script.before.len()]);
        }
    }

    /// Sends `bytes`, unless the relay has closed the connection.
    fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(
                !is_late(&error),
                "the relay does not take what a client says"
            );
        }
    }

    /// Whether the debugger is ready to be configured, and not at its end.
    fn until_attached(&mut self) -> bool {
        let until = Instant::now() + TEST_TIMEOUT;
        let wait = Duration::from_millis(50);
        self.stream.set_read_timeout(Some(wait)).unwrap();
        loop {
            let text = String::from_utf8_lossy(&self.read);
            if text.contains("\"initialized\"") {
                return true;
            }
            assert!(Instant::now() < until, "no initialized: {text}");
            if text.contains("\"success\":false") || !self.read_some() {
                return false;
            }
        }
    }

    /// `false` at the end.
    fn read_some(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&bytes[..n]);
                true
            }
            Err(error) => is_late(&error),
        }
    }

    /// Takes what is there, so that closing is no reset.
    fn drain(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let mut bytes = [0; 4096];
        while matches!(self.stream.read(&mut bytes), Ok(1..)) {}
    }

    /// Waits until the relay has closed.
    fn rest(&mut self) {
        let until = Instant::now() + TEST_TIMEOUT;
        let wait = Duration::from_millis(100);
        self.stream.set_read_timeout(Some(wait)).unwrap();
        while self.read_some() {
            self.read.clear();
            assert!(Instant::now() < until, "the relay does not end the session");
        }
    }
}
