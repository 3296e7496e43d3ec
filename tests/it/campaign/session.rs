//! A session with a task: in an editor, by itself or as one of a cluster session, or at a prompt.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout_at};

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::Cluster;

/// How long a user waits before they consider the connection lost.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a cluster session may take to open a session with a free task.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

const PDB: &str = "(Pdb) ";
const STOPPED_LINE: &str = ")stays()";
const LIST: &str = "q leaves): ";
const TOKEN: &str = "token: ";

/// How a user reaches a relay.
pub(super) struct Way {
    pub(super) to: SocketAddr,
    /// The token, which `ray-relay connect` adds for its user.
    pub(super) token: Option<String>,
}

impl Way {
    /// `ray-relay COMMAND` at the client.
    pub(super) fn command(&self, cluster: &Cluster, command: &str) -> Command {
        let mut run = cluster.exec("client", env!("CARGO_BIN_EXE_ray-relay"));
        run.arg(command)
            .args(["--relay", &format!("http://{}", self.to)])
            .arg("--insecure-send-token");
        if let Some(token) = &self.token {
            run.env("RAY_RELAY_TOKEN", token);
        }
        run
    }

    /// A plain connection from the client.
    pub(super) fn bridge(&self, cluster: &Cluster) -> Command {
        let mut run = cluster.exec("client", cluster.venv().python());
        run.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/cluster/bridge.py"
        ))
        .args([self.to.ip().to_string(), self.to.port().to_string()]);
        run
    }
}

/// The tool that a user attaches with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Editor,
    /// An editor whose session is a child of a cluster session.
    Family,
    /// `ray-relay debug`.
    Debug,
    /// `nc`.
    Lines,
}

/// The task to attach to.
pub(super) struct Target<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    /// Whether an administrator takes over another user's park.
    pub(super) take_over: bool,
}

/// The outcome of an attach.
pub(super) enum Attempt {
    Attached(Session),
    Refused(String),
    Lost,
}

pub(super) enum Session {
    Editor {
        client: Box<DapClient>,
        thread: u64,
        _parent: Option<Box<DapClient>>,
    },
    Prompt(Box<Prompt>),
}

impl Tool {
    /// Attaches, and waits for the stop.
    pub(super) async fn attach(self, cluster: &Cluster, way: &Way, target: &Target<'_>) -> Attempt {
        match self {
            Self::Editor => {
                let selector = json!({"breakpoint": target.id, "takeOver": target.take_over});
                match begin(cluster, way, selector).await {
                    Ok(client) => verify_stopped(client, None).await,
                    Err(attempt) => attempt,
                }
            }
            Self::Family => {
                let selector = json!({"all": true, "task": target.name});
                let mut parent = match begin(cluster, way, selector).await {
                    Ok(parent) => parent,
                    Err(attempt) => return attempt,
                };
                let Some(child) = parent.child_within(OPEN_TIMEOUT).await else {
                    return Attempt::Lost;
                };
                let child = serde_json::from_value(child).unwrap();
                match start(cluster, way, child).await {
                    Ok(client) => verify_stopped(client, Some(parent)).await,
                    Err(attempt) => attempt,
                }
            }
            Self::Debug => {
                let mut run = way.command(cluster, "debug");
                if target.take_over {
                    run.arg("--take-over");
                }
                run.arg(target.id);
                let mut prompt = Prompt::begin(&run);
                match prompt.until(&[PDB]).await {
                    Some(_) => Attempt::Attached(Session::Prompt(Box::new(prompt))),
                    None => Attempt::Lost,
                }
            }
            Self::Lines => {
                let mut prompt = Prompt::begin(&way.bridge(cluster));
                match prompt.enter(way, target).await {
                    Some(output) if output.ends_with(PDB) => {
                        Attempt::Attached(Session::Prompt(Box::new(prompt)))
                    }
                    Some(output) => {
                        let why = output.lines().find_map(|line| line.strip_prefix("*** "));
                        Attempt::Refused(why.unwrap_or(&output).to_owned())
                    }
                    None => Attempt::Lost,
                }
            }
        }
    }
}

/// A session of an editor with what `selector` means.
async fn begin(cluster: &Cluster, way: &Way, mut selector: Value) -> Result<DapClient, Attempt> {
    if let Some(token) = &way.token {
        selector["token"] = token.as_str().into();
    }
    let (ip, port) = (way.to.ip().to_string(), way.to.port());
    let mut arguments = Editor::VsCode.attach(&ip, port, "");
    arguments.insert("rayRelay".into(), selector);
    start(cluster, way, arguments).await
}

async fn start(
    cluster: &Cluster,
    way: &Way,
    arguments: Map<String, Value>,
) -> Result<DapClient, Attempt> {
    let client = DapClient::connect_from(Editor::VsCode, cluster, "client", way.to);
    let mut client = client.await;
    match client.start_within(arguments, RESPONSE_TIMEOUT).await {
        None => Err(Attempt::Lost),
        Some(answer) if answer["success"] == true => Ok(client),
        Some(answer) => {
            let why = answer["message"].as_str().unwrap_or_default();
            Err(Attempt::Refused(why.to_owned()))
        }
    }
}

async fn verify_stopped(mut client: DapClient, parent: Option<DapClient>) -> Attempt {
    match client.stopped_within(RESPONSE_TIMEOUT).await {
        Some(thread) => Attempt::Attached(Session::Editor {
            client: Box::new(client),
            thread,
            _parent: parent.map(Box::new),
        }),
        None => Attempt::Lost,
    }
}

impl Session {
    /// Returns the line of `stays` at which the task is stopped, or `None` if the session is lost.
    pub(super) async fn line(&mut self) -> Option<u32> {
        match self {
            Self::Editor { thread, .. } => {
                let arguments = json!({"threadId": *thread, "startFrame": 0, "levels": 20});
                let answer = self.ask("stackTrace", &arguments).await?;
                let frame = &answer["body"]["stackFrames"][0];
                assert_eq!(frame["name"], "stays", "the task stands elsewhere");
                Some(frame["line"].as_u64().unwrap() as u32)
            }
            Self::Prompt(prompt) => {
                let shown = prompt.line("where", &[STOPPED_LINE]).await?;
                prompt.until(&[PDB]).await?;
                let (_, line) = shown.strip_suffix(STOPPED_LINE)?.rsplit_once('(')?;
                line.parse().ok()
            }
        }
    }

    /// Steps over one line.
    pub(super) async fn step(&mut self) -> Option<()> {
        match self {
            Self::Editor { thread, .. } => {
                let arguments = json!({"threadId": *thread});
                self.ask("next", &arguments).await?;
                let Self::Editor { client, .. } = self else {
                    return None;
                };
                client.stopped_within(RESPONSE_TIMEOUT).await.map(|_| ())
            }
            Self::Prompt(prompt) => prompt.line("n", &[PDB]).await.map(|_| ()),
        }
    }

    /// Resumes the task.
    pub(super) async fn resume_task(&mut self) -> Option<()> {
        match self {
            Self::Editor { thread, .. } => {
                let arguments = json!({"threadId": *thread});
                self.ask("continue", &arguments).await.map(|_| ())
            }
            Self::Prompt(prompt) => prompt.say("c").await,
        }
    }

    async fn ask(&mut self, command: &str, arguments: &Value) -> Option<Value> {
        let Self::Editor { client, .. } = self else {
            return None;
        };
        let answer = client
            .ask_within(command, arguments, RESPONSE_TIMEOUT)
            .await?;
        (answer["success"] == true).then_some(answer)
    }
}

/// A prompt. Dropping it kills the client without closing its input first.
pub(super) struct Prompt {
    _child: Child,
    typing: ChildStdin,
    screen: ChildStdout,
    received: String,
}

impl Prompt {
    fn begin(command: &Command) -> Self {
        // Errors are shown as everything else is.
        let mut both = tokio::process::Command::new("sh");
        both.args(["-c", "exec \"$@\" 2>&1", "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                both.env(name, value);
            }
        }
        let pipes = both.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.kill_on_drop(true).spawn().unwrap();
        Self {
            typing: child.stdin.take().unwrap(),
            screen: child.stdout.take().unwrap(),
            received: String::new(),
            _child: child,
        }
    }

    /// Through the list of the line protocol to the task's prompt, or back to the list.
    async fn enter(&mut self, way: &Way, target: &Target<'_>) -> Option<String> {
        if let Some(token) = &way.token {
            self.line("", &[TOKEN]).await?;
            self.line(token, &[LIST]).await?;
        } else {
            self.line("", &[LIST]).await?;
        }
        self.line(target.id, &[PDB, LIST]).await
    }

    async fn say(&mut self, line: &str) -> Option<()> {
        let line = format!("{line}\n");
        self.typing.write_all(line.as_bytes()).await.ok()
    }

    /// Types a line, and returns the output up to one of `expected`.
    async fn line(&mut self, line: &str, expected: &[&str]) -> Option<String> {
        self.say(line).await?;
        self.until(expected).await
    }

    async fn until(&mut self, expected: &[&str]) -> Option<String> {
        let end = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            let found = expected
                .iter()
                .filter_map(|expected| Some(self.received.find(expected)? + expected.len()));
            if let Some(end) = found.min() {
                let rest = self.received.split_off(end);
                return Some(std::mem::replace(&mut self.received, rest));
            }
            let mut bytes = [0; 4096];
            let read = timeout_at(end, self.screen.read(&mut bytes)).await;
            match read.ok()?.ok()? {
                0 => return None,
                read => self.received += &String::from_utf8_lossy(&bytes[..read]),
            }
        }
    }
}
