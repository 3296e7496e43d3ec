//! `ray-relay connect` in front of a relay: clients of its port act as one user, and cuts are hidden.

#[path = "connect/cuts.rs"]
mod cuts;
#[path = "connect/several.rs"]
mod several;

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use ray_relay_base::wire::dap::conversation::Conversation;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

use super::debugger::debugger;
use super::paused::paused;
use super::support::*;

/// The command, and what it prints.
pub(crate) struct Connect {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Connect {
    async fn start(url: String, token: &str) -> Self {
        Self::of(command(&url), token).await
    }

    /// Starts `command` with a token.
    pub(crate) async fn of(mut command: Command, token: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), token).unwrap();
        let mut child = command
            .arg("--token-file")
            .arg(dir.path().join("token"))
            .args(["--listen", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = next(&mut lines).await;
        assert_eq!(first["event"], "listening", "{first}");
        let address = first["address"].as_str().unwrap().parse().unwrap();
        Self {
            child,
            lines,
            address,
            dir,
        }
    }

    pub(crate) async fn event(&mut self, name: &str) -> Value {
        loop {
            let event = next(&mut self.lines).await;
            if event["event"] == name {
                return event;
            }
        }
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> String {
        let mut stream = dial(self.address).await;
        let host = match headers.contains("Host:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.address),
        };
        let request = format!("GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = timeout(TEST_TIMEOUT, lines.next_line()).await;
    let line = line.expect("in time").unwrap().expect("it prints");
    serde_json::from_str(&line).unwrap()
}

pub(crate) fn command(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command.args(["connect", url]).kill_on_drop(true);
    for name in [
        "RAY_RELAY_TOKEN",
        "RAY_RELAY_URL",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
    ] {
        command.env_remove(name);
    }
    command
}

/// Returns the exit code and standard error.
async fn failure_of(mut command: Command) -> (i32, String) {
    let output = timeout(TEST_TIMEOUT, command.output())
        .await
        .expect("it ends")
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), stderr)
}

#[tokio::test]
async fn user_is_the_owner_of_the_token() {
    let keys = Keys::new();
    let relay = start(|config| config.auth.keys = vec![keys.public()]).await;
    let ann = keys.token(|_| {});
    let url = format!("http://{}", relay.local_addr());
    let mut connect = Connect::start(url, &ann).await;
    connect.event("connected").await;
    for _ in 0..2 {
        let list = connect.get("/relay/v1/breakpoints", "").await;
        assert!(list.starts_with("HTTP/1.1 200"), "{list}");
    }
    let mode = connect.get("/api/authentication_mode", "").await;
    assert!(mode.contains("disabled"), "{mode}");
    // A cookie of another way to this relay, which a browser sends along.
    let cookie = "Cookie: ray-authentication-token=old\r\n";
    let list = connect.get("/relay/v1/breakpoints", cookie).await;
    assert!(list.starts_with("HTTP/1.1 200"), "{list}");
    let token = format!("Authorization: Bearer {ann}\r\n");
    let both = connect.get("/relay/v1/breakpoints", &token).await;
    assert!(both.starts_with("HTTP/1.1 200"), "the token counts: {both}");
    // Another site's page in the user's browser.
    let foreign = format!(
        "Host: {}\r\nOrigin: https://evil.example\r\n",
        connect.address
    );
    let refused = connect.get("/relay/v1/breakpoints", &foreign).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let rebound = connect
        .get("/relay/v1/breakpoints", "Host: evil.example\r\n")
        .await;
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");

    let mut terminal = dial(connect.address).await;
    terminal.write_all(b"\r\nq\r\n").await.unwrap();
    terminal.shutdown().await.unwrap();
    let reply = rest(&mut terminal).await;
    assert!(!reply.contains("token"), "{reply}");
    let (_dap, answer) = attach(dial(connect.address).await, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized", "{answer}");
    let (_dap, answer) = attach(dial(relay.local_addr()).await, &json!({"all": true})).await;
    assert_ne!(answer["event"], "initialized", "{answer}");
    relay.drain().await;
}

/// The session answers the request of that number, and no other.
pub(crate) async fn answers(dap: &mut Conversation<TcpStream>, seq: u64) {
    let request = request(seq, "threads", &json!({}));
    dap.send(&request).await.unwrap();
    let answered = async {
        loop {
            let message = read(dap).await;
            if message["command"] == "threads" {
                assert_eq!(message["request_seq"], seq, "{message}");
                break;
            }
        }
    };
    timeout(TEST_TIMEOUT, answered).await.expect("it goes on");
}

#[tokio::test]
async fn renewed_token_extends_the_session() {
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.auth.leeway = Duration::ZERO;
    })
    .await;
    let until = |seconds: u64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let at = now.unwrap().as_secs() + seconds;
        keys.token(|claims| {
            claims["exp"] = at.into();
            claims["jti"] = at.to_string().into();
        })
    };
    let url = format!("http://{}", relay.local_addr());
    let mut connect = Connect::start(url, &until(6)).await;
    connect.event("connected").await;
    let began = Instant::now();
    let (mut dap, _) = attach(dial(connect.address).await, &json!({"all": true})).await;
    sleep(Duration::from_secs(2)).await;
    std::fs::write(connect.dir.path().join("token"), until(9)).unwrap();
    while began.elapsed() < Duration::from_secs(8) {
        sleep(Duration::from_millis(500)).await;
    }
    answers(&mut dap, 3).await;
    // The relay is not replaced again.
    let ended = async { while dap.read().await.is_ok() {} };
    timeout(TEST_TIMEOUT, ended)
        .await
        .expect("the session ends");
    assert!(began.elapsed() > Duration::from_secs(9));
    relay.drain().await;
}

#[tokio::test]
async fn connect_waits_for_an_absent_relay_and_ends_on_a_refusal() {
    let keys = Keys::new();
    let closed = closed_address();
    let mut connect = Connect::start(format!("http://{closed}"), &keys.token(|_| {})).await;
    connect.event("away").await;
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.listen.address = closed;
    })
    .await;
    connect.event("connected").await;

    let url = format!("http://{closed}");
    let mut wrong = command(&url);
    wrong.args(["--listen", "127.0.0.1:0", "--token-command", "echo nobody"]);
    let (code, output) = failure_of(wrong).await;
    assert_eq!(code, 77, "{output}");
    let mut in_use = command(&url);
    in_use.args(["--listen", &connect.address.to_string()]);
    let (code, output) = failure_of(in_use).await;
    assert!(code == 1 && output.contains("cannot listen on"), "{output}");
    let mut itself = command(&format!("http://localhost:{}", connect.address.port() + 1));
    itself.args([
        "--listen",
        &format!("127.0.0.1:{}", connect.address.port() + 1),
    ]);
    let (code, output) = failure_of(itself).await;
    assert!(code == 1 && output.contains("--listen"), "{output}");
    let mut shared = command(&url);
    shared.args(["--listen", "0.0.0.0:0"]);
    let (code, output) = failure_of(shared).await;
    assert!(code == 1 && output.contains("--insecure-share"), "{output}");
    let interrupted = rustix::process::Pid::from_raw(connect.child.id().unwrap() as i32).unwrap();
    rustix::process::kill_process(interrupted, rustix::process::Signal::INT).unwrap();
    let status = timeout(TEST_TIMEOUT, connect.child.wait())
        .await
        .expect("it ends");
    assert!(status.unwrap().success());
    assert!(TcpStream::connect(connect.address).await.is_err());
    relay.drain().await;
}

#[tokio::test]
async fn a_command_runs_with_the_port_in_its_environment_and_gives_the_exit_code() {
    let keys = Keys::new();
    let relay = start(|config| config.auth.keys = vec![keys.public()]).await;
    let token = keys.token(|_| {});
    for (script, expected) in [
        (
            r#"test "$RAY_RELAY_URL" = "$RAY_ADDRESS" && "$0" list --json"#,
            0,
        ),
        ("exit 7", 7),
        ("kill -9 $$", 137),
    ] {
        let mut runs = command(&format!("http://{}", relay.local_addr()));
        runs.args(["--listen", "127.0.0.1:0"]);
        runs.args(["--token-command", &format!("echo {token}")]);
        runs.args(["--", "sh", "-c", script, env!("CARGO_BIN_EXE_ray-relay")]);
        let (code, output) = failure_of(runs).await;
        assert_eq!(code, expected, "{script}: {output}");
    }
    relay.drain().await;
}

/// Returns the frame that an editor is shown, for a task whose file is missing on this machine.
async fn source_of_frame(editor: &mut Conversation<impl AsyncRead + AsyncWrite + Unpin>) -> Value {
    editor
        .send(&request(3, "configurationDone", &json!({})))
        .await
        .unwrap();
    while read(editor).await["event"] != "stopped" {}
    let ask = request(4, "stackTrace", &json!({"threadId": 1}));
    editor.send(&ask).await.unwrap();
    loop {
        let mut answer = read(editor).await;
        if answer["command"] == "stackTrace" {
            assert_eq!(answer["request_seq"], 4, "{answer}");
            return answer["body"]["stackFrames"][0]["source"].take();
        }
        assert_ne!(answer["command"], "evaluate", "{answer}");
    }
}

/// Else it says that the file was not found, and offers to create it.
#[tokio::test]
async fn editor_with_another_folder_gets_the_workers_source() {
    let keys = Keys::new();
    let relay = start(|config| config.auth.keys = vec![keys.public()]).await;
    let url = format!("http://{}", relay.local_addr());
    let token = keys.token(|_| {});
    let mut connect = Connect::start(url.clone(), &token).await;
    connect.event("connected").await;
    let shown = json!({"path": "/nowhere/job.py", "sourceReference": 1});
    for through_connect in [true, false] {
        let (listener, breakpoint) = paused().await;
        let id = breakpoint.id;
        let answering = tokio::spawn(debugger(listener));
        relay.registry().insert(breakpoint);
        let which = json!({ "breakpoint": id });
        if through_connect {
            let stream = dial(connect.address).await;
            let (mut editor, answer) = attach(stream, &which).await;
            let _ = answer;
            assert_eq!(source_of_frame(&mut editor).await, shown);
        } else {
            let mut dap = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
                .args(["dap", "--relay", &url])
                .env("RAY_RELAY_TOKEN", &token)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let ends = tokio::io::join(dap.stdout.take().unwrap(), dap.stdin.take().unwrap());
            let (mut editor, _) = attach(ends, &which).await;
            assert_eq!(source_of_frame(&mut editor).await, shown);
        }
        timeout(TEST_TIMEOUT, answering).await.unwrap().unwrap();
    }
    relay.abort().await;
}
