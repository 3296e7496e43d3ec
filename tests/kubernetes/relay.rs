//! A relay in this process, with an API server, and stand-ins for heads and debuggers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ray_relay::app::Running;
use ray_relay_base::config::Config;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::api::{Api, service_account};
use crate::debugger::debugger;
use crate::head::Head;
use crate::server::{Server, TEST_TIMEOUT};
use crate::support::{attach, dial, read, request, start};
use ray_relay_base::wire::dap::conversation::Conversation;

/// A relay that discovers RayClusters as the ServiceAccount `relay` of its namespace.
pub(crate) struct Relay {
    running: Running,
    /// The token of its clients.
    pub(crate) token: Option<String>,
    _files: tempfile::TempDir,
}

/// The rules of the ClusterRole `ray-relay-discovery`.
pub(crate) const DISCOVERY: [(&str, &str, &str, &str); 2] = [
    ("ray.io", "rayclusters", "", "list watch"),
    ("", "secrets", "", "get"),
];

/// The ServiceAccount of a relay in `home`.
pub(crate) fn account(home: &str) -> Value {
    service_account(home, "relay")
}

impl Relay {
    /// Starts a relay in the namespace `home`; role bindings grant the permissions of its ServiceAccount.
    pub(crate) async fn start(
        server: &Server,
        api: &Api,
        home: &str,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        api.make_service_account(home, "relay").await;
        Self::start_as(server, api, (home, "relay"), change).await
    }

    /// The same as a ServiceAccount that is there.
    pub(crate) async fn start_as(
        server: &Server,
        api: &Api,
        (home, account): (&str, &str),
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let token_file = files.path().join("token");
        std::fs::write(&token_file, api.token(home, account, None).await).unwrap();
        let running = start(|config| {
            config.clusters.clear();
            config.discovery.kubernetes = true;
            // Stand-ins have no names: the Service is in the path.
            let address = "http://127.0.0.1:{port}/{namespace}/{service}";
            config.discovery.ray_address = address.parse().unwrap();
            config.kubernetes.api_server = Some(server.url());
            config.kubernetes.ca_file = Some(server.file("ca.crt"));
            config.kubernetes.token_file = Some(token_file);
            config.kubernetes.namespace = Some(home.to_owned());
            config.registry.poll_interval = Duration::from_millis(200);
            config.registry.backoff_max = Duration::from_millis(500);
            change(config);
        });
        Self {
            running: start_within(running).await,
            token: None,
            _files: files,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.local_addr()
    }

    /// The whole answer to a GET.
    pub(crate) async fn get(&self, path: &str) -> String {
        self.get_with(path, self.token.as_deref()).await
    }

    /// The same by another token.
    pub(crate) async fn get_as(&self, path: &str, token: &str) -> String {
        self.get_with(path, Some(token)).await
    }

    async fn get_with(&self, path: &str, token: Option<&str>) -> String {
        let mut stream = dial(self.address()).await;
        let authorization = match token {
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        // One of many waits for what the API server says of the others.
        let mut answer = Vec::new();
        let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer));
        read.await.expect("the relay closes").unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Returns the data of `list`.
    pub(crate) async fn list(&self) -> Value {
        let answer = self.get("/relay/v1/breakpoints").await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        body.parse().unwrap_or_else(|_| panic!("{answer}"))
    }

    /// The same as soon as it fits.
    pub(crate) async fn until(&self, fits: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let list = self.list().await;
            if fits(&list) {
                return list;
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "{list:#}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the output of the command `ray-relay` with these words, of both streams.
    pub(crate) async fn command(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        let url = format!("http://{}", self.address());
        command.env_clear().env("RAY_RELAY_URL", url).args(words);
        if let Some(token) = &self.token {
            command.env("RAY_RELAY_TOKEN", token);
        }
        let output = command.output().await.unwrap();
        String::from_utf8([&*output.stdout, &output.stderr].concat()).unwrap()
    }

    /// A session with the one breakpoint of `cluster`.
    pub(crate) async fn session(&self, cluster: &str) -> Session {
        let row = |list: &Value| {
            // A refusal has none: permissions that were given a moment ago take a while to hold.
            let rows = list["breakpoints"].as_array()?.iter();
            let mut rows = rows.filter(|row| row["cluster"] == *cluster);
            rows.next().map(|row| row["id"].clone())
        };
        let list = self.until(|list| row(list).is_some()).await;
        let mut selector = json!({"breakpoint": row(&list)});
        if let Some(token) = &self.token {
            selector["token"] = token.clone().into();
        }
        let stream = dial(self.address()).await;
        let (mut dap, first) = attach(stream, &selector).await;
        assert_ne!(first["success"], false, "{first}");
        let done = request(3, "configurationDone", &json!({}));
        dap.send(&done).await.unwrap();
        while read(&mut dap).await["event"] != "stopped" {}
        Session { dap, seq: 3 }
    }

    pub(crate) async fn end(self) {
        self.running.drain().await;
    }
}

/// A start that is boxed: it is large.
async fn start_within(start: impl Future<Output = Running>) -> Running {
    Box::pin(start).await
}

/// A debug session.
pub(crate) struct Session {
    dap: Conversation<TcpStream>,
    seq: u64,
}

impl Session {
    /// Returns the message that ends the session.
    pub(crate) async fn until_over(&mut self) -> Value {
        let began = Instant::now();
        loop {
            if let Some(over) = self.is_over().await {
                return over;
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "it goes on");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Asks the worker for its threads, and returns what has ended the session, if anything has.
    pub(crate) async fn is_over(&mut self) -> Option<Value> {
        self.seq += 1;
        let request = request(self.seq, "threads", &json!({}));
        if self.dap.send(&request).await.is_err() {
            return Some("closed".into());
        }
        loop {
            let message = read(&mut self.dap).await;
            match message["event"].as_str() {
                Some("terminated" | "exited") => return Some(message),
                Some("output") if message["body"]["category"] == "important" => {
                    return Some(message);
                }
                _ if message["request_seq"] == self.seq => return None,
                _ => {}
            }
        }
    }
}

/// Makes a RayCluster whose head is ready and has one paused worker; its debugger answers one session.
pub(crate) async fn ready_cluster(api: &Api, namespace: &str, name: &str, worker: &str) -> Head {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(debugger(listener));
    let head = Head::with_debugger(worker, port).await;
    let (service, port) = (format!("{name}-head-svc"), head.address.port());
    api.make_ray_cluster(namespace, name, port).await;
    api.set_status(namespace, name, &service, true).await;
    head
}

/// The names in a list's `clusters`.
pub(crate) fn clusters(list: &Value) -> Vec<&str> {
    let clusters = list["clusters"].as_array().unwrap().iter();
    clusters.map(|one| one["name"].as_str().unwrap()).collect()
}
