//! Real browsers. Chromium is led by its DevTools protocol; Firefox opens an address.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::support::TEST_TIMEOUT;

/// The browser, by the names that distributions give it.
pub(crate) fn chromium() -> Option<PathBuf> {
    installed(["chromium", "chromium-browser", "google-chrome"])
}

/// The other one.
pub(crate) fn firefox() -> Option<PathBuf> {
    installed(["firefox-esr", "firefox"])
}

fn installed<const N: usize>(names: [&str; N]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    let found = found.find(|program| program.is_file());
    if found.is_none() {
        let name = names[0];
        assert!(std::env::var_os("CI").is_none(), "{name} is missing");
        eprintln!("SKIPPED: there is no {name}; apt install {name}");
    }
    found
}

/// Ends with the test.
pub(crate) struct Browser {
    child: Child,
    profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    pub(crate) fn open(program: &PathBuf, url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync"])
            // As older ones, which let pages of the Internet and of a LAN reach loopback.
            .arg("--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests")
            // With a page to lead it, it stays until it is ended.
            .arg("--remote-debugging-port=0")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, profile }
    }

    /// The same with Firefox, which nothing leads.
    pub(crate) fn open_firefox(program: &PathBuf, url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // As older ones, as above; and no request of its own.
        let preferences = [
            ("network.lna.blocking", "false"),
            ("network.lna.enabled", "false"),
            ("network.proxy.type", "0"),
            ("network.captive-portal-service.enabled", "false"),
            ("network.connectivity-service.enabled", "false"),
            ("dom.security.https_first", "false"),
            ("dom.security.https_first_schemeless", "false"),
            ("datareporting.policy.dataSubmissionEnabled", "false"),
            ("app.normandy.enabled", "false"),
            ("browser.shell.checkDefaultBrowser", "false"),
        ];
        let lines = preferences.map(|(name, value)| format!("user_pref(\"{name}\", {value});\n"));
        std::fs::write(profile.path().join("user.js"), lines.concat()).unwrap();
        let child = Command::new(program)
            .args(["--headless", "--no-remote", "--profile"])
            .arg(profile.path())
            .arg(url)
            .env("HOME", profile.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, profile }
    }

    /// Waits until the element `id` contains `expected`, and returns its text.
    pub(crate) async fn reads(&self, id: &str, expected: &str) -> String {
        let mut last = String::new();
        let found = timeout(3 * TEST_TIMEOUT, async {
            let mut page = self.page().await;
            let expression = format!("document.getElementById('{id}')?.innerText ?? ''");
            for number in 0.. {
                let text = evaluated(&mut page, number, &expression).await;
                last = text.as_str().unwrap_or_default().to_owned();
                if last.contains(expected) {
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        if found.await.is_err() {
            panic!("#{id} is {last:?}");
        }
        last
    }

    /// Evaluates `expression` in its page.
    pub(crate) async fn evaluate(&self, expression: &str) -> Value {
        let done = timeout(3 * TEST_TIMEOUT, async {
            let mut page = self.page().await;
            evaluated(&mut page, 0, expression).await
        });
        done.await.unwrap_or_else(|_| panic!("{expression}"))
    }

    /// Returns the DevTools address of its page.
    async fn page(&self) -> WebSocketStream<TcpStream> {
        loop {
            if let Some(page) = self.target().await {
                return page;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn target(&self) -> Option<WebSocketStream<TcpStream>> {
        // The browser writes there on which port it listens.
        let port = std::fs::read_to_string(self.profile.path().join("DevToolsActivePort")).ok()?;
        let address = format!("127.0.0.1:{}", port.lines().next()?);
        let mut stream = TcpStream::connect(&address).await.ok()?;
        let request =
            format!("GET /json/list HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        // Chromium keeps the connection open.
        let mut answer = Vec::new();
        let targets: Value = loop {
            if stream.read_buf(&mut answer).await.ok()? == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&answer);
            let (_, targets) = text.split_once("\r\n\r\n").unwrap_or_default();
            if let Ok(targets) = serde_json::from_str(targets) {
                break targets;
            }
        };
        let mut targets = targets.as_array()?.iter();
        let page = targets.find(|target| target["type"] == "page")?;
        let stream = TcpStream::connect(&address).await.ok()?;
        let url = page["webSocketDebuggerUrl"].as_str()?;
        let (socket, _) = client_async(url, stream).await.ok()?;
        Some(socket)
    }
}

/// Evaluates `expression` in `page`, as request `number`.
async fn evaluated(page: &mut WebSocketStream<TcpStream>, number: u64, expression: &str) -> Value {
    let request = json!({"id": number, "method": "Runtime.evaluate", "params": {"expression": expression, "returnByValue": true}});
    page.send(Message::text(request.to_string())).await.unwrap();
    loop {
        let message = page.next().await.unwrap().unwrap();
        let mut message: Value = serde_json::from_slice(&message.into_data()).unwrap();
        if message["id"] == number {
            return message["result"]["result"]["value"].take();
        }
    }
}
