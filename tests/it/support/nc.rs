//! A user of `nc`.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::scene::Scene;

const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// `nc RELAY 5678`.
pub(crate) struct Person {
    typing: ChildStdin,
    screen: ChildStdout,
    received: String,
    token: Option<String>,
    _nc: Child,
}

impl Person {
    pub(crate) fn connect(scene: &Scene<'_>) -> Self {
        Self::connect_with(scene, &[])
    }

    /// The same with these variables in the environment of the bridge.
    pub(crate) fn connect_with(scene: &Scene<'_>, env: &[(&str, &str)]) -> Self {
        let bridge = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/bridge.py");
        let to = scene.relay.address();
        let mut command = scene.cluster.exec("client", scene.cluster.venv().python());
        command
            .arg(bridge)
            .args([to.ip().to_string(), to.port().to_string()])
            .envs(scene.settings())
            .envs(env.iter().copied());
        let mut nc = tokio::process::Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            typing: nc.stdin.take().unwrap(),
            screen: nc.stdout.take().unwrap(),
            received: String::new(),
            token: scene.token.clone(),
            _nc: nc,
        }
    }

    /// The list, which comes on Enter, where need be after a token.
    pub(crate) async fn list(&mut self) -> String {
        let Some(token) = self.token.take() else {
            return self.line("", "q leaves): ").await;
        };
        self.line("", "token: ").await;
        self.line(&token, "q leaves): ").await
    }

    /// Says no more, and everything that is shown then.
    pub(crate) async fn close(mut self) -> String {
        drop(self.typing);
        let mut rest = Vec::new();
        let read = timeout(TEST_TIMEOUT, self.screen.read_to_end(&mut rest)).await;
        read.expect("the relay closes").unwrap();
        self.received + &String::from_utf8_lossy(&rest)
    }

    pub(crate) async fn until(&mut self, expected: &str) -> String {
        loop {
            if let Some(at) = self.received.find(expected) {
                let rest = self.received.split_off(at + expected.len());
                return std::mem::replace(&mut self.received, rest);
            }
            let mut bytes = [0; 4096];
            let read = timeout(TEST_TIMEOUT, self.screen.read(&mut bytes)).await;
            let read = read
                .unwrap_or_else(|_| panic!("no {expected:?} in {:?}", self.received))
                .unwrap();
            assert!(read > 0, "closed without {expected:?}: {:?}", self.received);
            self.received += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    /// Types a line, and returns the output up to `expected`.
    pub(crate) async fn line(&mut self, line: &str, expected: &str) -> String {
        self.typing
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
        self.until(expected).await
    }
}

/// `ray-relay ARGS` in the client's namespace, with `typed` as its input: its exit code and what it printed.
pub(crate) fn attempt(scene: &Scene<'_>, args: &[&str], typed: &str) -> (i32, String) {
    let mut child = scene
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typing = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut typing, typed.as_bytes()).unwrap();
    drop(typing);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().unwrap(), text)
}
