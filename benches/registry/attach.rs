//! What an attach costs beside a large list, seen from outside: the relay's own binary, a client, and one worker that
//! answers as debugpy does. Every worker of the list whose port is that one's takes its turn.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ray_relay::ray::registry::BreakpointId;
use serde_json::{Value, json};

use crate::Result;
use crate::head::{self, Head, worker_id};

/// Sessions one after the other, in one round.
const SESSIONS: usize = 200;
/// Bare closes in one round.
const CLOSES: usize = 20;
/// Between two looks at the list.
const LOOK: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// What one round gave.
pub(crate) struct Figures {
    /// Half of the attaches were quicker.
    pub(crate) median: Duration,
    /// 95 of 100 were.
    pub(crate) slow: Duration,
    /// Sessions in a second, one after the other.
    pub(crate) rate: f64,
    /// Share of a core that the relay needs while nobody does anything.
    pub(crate) idle: f64,
    /// From the end of a connection without a goodbye until the list has the breakpoint as paused; half were quicker.
    /// Where there is but one.
    pub(crate) freed: Option<Duration>,
}

/// The relay, ended when dropped.
struct Relay {
    child: Child,
    address: SocketAddr,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn round(size: usize) -> Result<Figures> {
    let head = Head::start(size)?;
    let relay = Relay::start(&head)?;
    relay.until_listed(size)?;
    // Past the names and the question that confirms them.
    std::thread::sleep(Duration::from_secs(6));
    let (cpu, began) = (relay.cpu()?, Instant::now());
    std::thread::sleep(Duration::from_secs(6));
    let idle = (relay.cpu()? - cpu) / began.elapsed().as_secs_f64();
    let turns = size.min(head::REACHED);
    let mut took = Vec::new();
    let began = Instant::now();
    for session in 0..SESSIONS {
        let (client, time) = relay.attach(session % turns)?;
        client.leave()?;
        took.push(time);
    }
    let rate = SESSIONS as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let mut freed = Vec::new();
    // To list thousands would take longer than what is measured.
    for _ in 0..if size == 1 { CLOSES } else { 0 } {
        let (client, _) = relay.attach(0)?;
        drop(client);
        let closed = Instant::now();
        while !relay.waits()? {
            std::thread::sleep(LOOK);
        }
        freed.push(closed.elapsed());
    }
    freed.sort_unstable();
    Ok(Figures {
        median: took[SESSIONS / 2],
        slow: took[SESSIONS * 95 / 100],
        rate,
        idle,
        freed: freed.get(CLOSES / 2).copied(),
    })
}

impl Relay {
    fn start(head: &Head) -> Result<Self> {
        // Free a moment ago; the relay says what it could not have.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .args(["serve", "--log-level", "error"])
            .args(["--listen", &address.to_string()])
            .args(["--ray-address", &format!("http://{}", head.address)])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self { child, address })
    }

    fn until_listed(&self, size: usize) -> Result<()> {
        let began = Instant::now();
        let listed = || Some(self.rows("limit=1").ok()?["total"] == size);
        while listed() != Some(true) {
            if began.elapsed() > PATIENCE {
                return Err("the relay does not list all".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The only breakpoint waits.
    fn waits(&self) -> Result<bool> {
        Ok(self.rows("limit=1")?["breakpoints"][0]["state"] == "paused")
    }

    fn rows(&self, query: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(
            stream,
            "GET /relay/v1/breakpoints?{query} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            self.address
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let at = answer.find("\r\n\r\n").ok_or("no answer")? + 4;
        Ok(serde_json::from_str(&answer[at..])?)
    }

    /// Seconds that all its threads have computed so far.
    fn cpu(&self) -> Result<f64> {
        let mut nanoseconds = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let ran = times.split(' ').next().unwrap_or_default();
            nanoseconds += ran.parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }

    /// Attaches to the worker and configures it; tells how long that took from the connection on.
    fn attach(&self, index: usize) -> Result<(Client, Duration)> {
        let began = Instant::now();
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut client = Client::connect(self.address)?;
            let from = Instant::now();
            match client.attach(index) {
                Ok(()) => return Ok((client, from.elapsed())),
                // It has just been left, and is not in the list yet.
                Err(_) if Instant::now() < patience => std::thread::sleep(LOOK),
                Err(error) => return Err(format!("{error}, after {:?}", began.elapsed()).into()),
            }
        }
    }
}

struct Client {
    stream: BufReader<TcpStream>,
    seq: u64,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
            seq: 0,
        })
    }

    fn attach(&mut self, index: usize) -> Result<()> {
        self.ask(
            "initialize",
            &json!({"clientID": "bench", "adapterID": "debugpy"}),
        )?;
        self.until(|m| m["command"] == "initialize")?;
        let id = BreakpointId::derive("default", &worker_id(index));
        let wanted = json!({"rayRelay": {"breakpoint": id}});
        self.ask("attach", &wanted)?;
        self.until(|m| m["event"] == "initialized")?;
        self.ask("configurationDone", &json!({}))?;
        self.until(|m| m["command"] == "attach")
    }

    fn leave(mut self) -> Result<()> {
        self.ask("disconnect", &json!({}))?;
        self.until(|m| m["command"] == "disconnect")
    }

    fn ask(&mut self, command: &str, arguments: &Value) -> Result<()> {
        self.seq += 1;
        let request =
            json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments});
        Ok(send(self.stream.get_mut(), &request)?)
    }

    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        loop {
            let message = read(&mut self.stream)?.ok_or("the relay closed")?;
            if message["success"] == false {
                return Err(message["message"].to_string().into());
            }
            if wanted(&message) {
                return Ok(());
            }
        }
    }
}

/// Answers as debugpy does, on a thread for each connection; tells its port.
pub(crate) fn worker() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever goes away has been served.
            std::thread::spawn(|| session(stream));
        }
    });
    Ok(port)
}

fn session(mut to: TcpStream) -> Result<()> {
    to.set_nodelay(true)?;
    let mut from = BufReader::new(to.try_clone()?);
    let version =
        json!({"category": "telemetry", "output": "debugpy", "data": {"packageVersion": "1.8.22"}});
    send(&mut to, &event("output", &version))?;
    let mut attach = Value::Null;
    while let Some(request) = read(&mut from)? {
        let command = request["command"].as_str().unwrap_or_default();
        if command == "attach" {
            attach = request;
            send(&mut to, &event("initialized", &Value::Null))?;
            continue;
        }
        send(&mut to, &answer(&request))?;
        match command {
            "configurationDone" => send(&mut to, &answer(&attach))?,
            "disconnect" => break,
            _ => {}
        }
    }
    Ok(())
}

fn event(name: &str, body: &Value) -> Value {
    json!({"seq": 1, "type": "event", "event": name, "body": body})
}

fn answer(request: &Value) -> Value {
    json!({"seq": 1, "type": "response", "request_seq": request["seq"], "success": true, "command": request["command"], "body": {}})
}

fn send(to: &mut TcpStream, message: &Value) -> std::io::Result<()> {
    let body = message.to_string();
    to.write_all(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

fn read(from: &mut impl BufRead) -> Result<Option<Value>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(": ") {
            Some((_, value)) => length = value.parse()?,
            None => break,
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}
