//! A cluster with a relay in front, as seen by its client.

use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::dap_client::{DapClient, Editor};
use super::driver::Driver;
use super::eventually;
use super::namespaces::Cluster;
use super::relay::Relay;

/// A cluster with a relay, as seen by its client.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) relay: Relay,
    /// The token of its clients, if the relay requires one.
    pub(crate) token: Option<String>,
}

impl<'a> Scene<'a> {
    /// A new relay in front of `cluster`.
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self::with(cluster, &[])
    }

    /// The same, with `args` behind `serve`.
    pub(crate) fn with(cluster: &'a Cluster, args: &[&str]) -> Self {
        Self {
            relay: Relay::beside(cluster, args),
            cluster,
            token: None,
        }
    }

    /// The whole answer of the list.
    pub(crate) fn answer(&self) -> Value {
        self.get("/relay/v1/breakpoints")
    }

    /// The answer to a GET of `path` at the relay, from the client.
    pub(crate) fn get(&self, path: &str) -> Value {
        let url = self.relay.url() + path;
        let max_wait = Duration::from_secs(10);
        let answer = self
            .cluster
            .get_with("client", &url, max_wait, &self.settings());
        let (status, body) = answer.unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Returns the environment of client commands.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let ca = self.relay.ca.iter();
        let token = self.token.iter();
        [("RAY_RELAY_URL", self.relay.url())]
            .into_iter()
            .chain(ca.map(|ca| ("RAY_RELAY_CA_FILE", ca.clone())))
            .chain(token.map(|token| ("RAY_RELAY_TOKEN", token.clone())))
            .collect()
    }

    /// `ray-relay ARGS` at the client.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.exec("client", env!("CARGO_BIN_EXE_ray-relay"));
        command
            .args(args)
            .envs(self.settings())
            .env_remove("RAY_ADDRESS");
        command
    }

    /// The breakpoints of the list.
    pub(crate) fn list(&self) -> Vec<Value> {
        serde_json::from_value(self.answer()["breakpoints"].take()).unwrap()
    }

    /// Returns the workers of Ray's State API, read through the relay.
    pub(crate) fn workers(&self) -> Vec<Value> {
        let mut answer = self.get("/api/v0/workers?detail=1&limit=10000");
        serde_json::from_value(answer["data"]["result"]["result"].take()).unwrap()
    }

    /// Returns the workers that wait for a debugger.
    pub(crate) fn paused_workers(&self) -> Vec<Value> {
        let mut rows = self.workers();
        rows.retain(|row| row["num_paused_threads"].as_u64() > Some(0) && row["is_alive"] == true);
        rows
    }

    /// Waits until `count` are listed, all paused.
    pub(crate) fn wait_listed(&self, count: usize) -> Vec<Value> {
        eventually(format!("{count} listed"), Duration::from_secs(120), || {
            let rows = self.list();
            (rows.len() == count && rows.iter().all(|row| row["state"] == "paused")).then_some(rows)
        })
    }

    /// Returns the row on `node`. A legacy breakpoint on a loopback address names its node only by id.
    pub(crate) fn on<'r>(&self, rows: &'r [Value], node: &str) -> &'r Value {
        let ip = self.cluster.address(node).to_string();
        if let Some(row) = rows.iter().find(|row| row["node_ip"] == ip) {
            return row;
        }
        let nodes = self.cluster.rows("nodes?detail=1");
        let there = nodes.iter().find(|known| known["node_ip"] == ip);
        let id = &there.unwrap()["node_id"];
        rows.iter().find(|row| row["node_id"] == *id).unwrap()
    }

    /// Waits until one called `name` is paused, whatever else there is.
    pub(crate) fn wait_paused_named(&self, name: &str) -> Value {
        eventually(name, Duration::from_secs(240), || {
            self.list()
                .into_iter()
                .find(|row| row["name"] == name && row["state"] == "paused")
        })
    }

    /// Why an attach with `selector` is refused.
    pub(crate) async fn refusal(&self, selector: Value) -> String {
        let mut client = self.connect(Editor::VsCode).await;
        let answer = client
            .try_start(self.arguments(Editor::VsCode, "", selector), None)
            .await;
        assert_eq!(answer["success"], false, "{answer}");
        assert_eq!(answer["body"]["error"]["showUser"], true, "{answer}");
        client.eof().await;
        answer["message"].as_str().unwrap().to_owned()
    }

    /// Descriptors of the relay while nothing is going on.
    pub(crate) fn idle_descriptors(&self) -> usize {
        eventually("a first poll", Duration::from_secs(60), || {
            self.answer()["snapshot_age_seconds"]
                .is_number()
                .then_some(())
        });
        self.relay.descriptors()
    }

    /// Waits until exactly one breakpoint is listed, paused and under `name`.
    pub(crate) fn listed(&self, name: &str, driver: &Driver) -> Value {
        let mut last = Vec::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(name, Duration::from_secs(240), || {
                last = self.list();
                let [only] = last.as_slice() else { return None };
                (only["name"] == name && only["state"] == "paused").then(|| only.clone())
            })
        }));
        found.unwrap_or_else(|_| {
            panic!(
                "{name} is not listed, but {last:?}; the driver:\n{}",
                driver.output()
            )
        })
    }

    /// Waits until nothing is listed.
    pub(crate) fn assert_none_paused(&self) {
        eventually("an empty list", Duration::from_secs(60), || {
            self.list().is_empty().then_some(())
        });
    }

    /// Connects as `editor`, from the client's namespace. No editor speaks TLS: where the relay does, `ray-relay dap` is its
    /// adapter.
    pub(crate) async fn connect(&self, editor: Editor) -> DapClient {
        match self.relay.ca {
            Some(_) => DapClient::through(editor, self.command(&["dap"])),
            None => {
                let to = self.relay.address();
                DapClient::connect_from(editor, self.cluster, "client", to).await
            }
        }
    }

    /// The editor's attach arguments with `selector` as `rayRelay`.
    pub(crate) fn arguments(
        &self,
        editor: Editor,
        workspace: &str,
        selector: Value,
    ) -> Map<String, Value> {
        let address = self.relay.address();
        let mut arguments = editor.attach(&address.ip().to_string(), address.port(), workspace);
        arguments.insert("rayRelay".into(), selector);
        arguments
    }

    /// A VS Code that has attached to the breakpoint of `row`.
    pub(crate) async fn attached(&self, row: &Value) -> DapClient {
        let mut client = self.connect(Editor::VsCode).await;
        let mut selector = json!({"breakpoint": row["id"]});
        if let Some(token) = &self.token {
            selector["token"] = token.as_str().into();
        }
        client
            .start(self.arguments(Editor::VsCode, "", selector), None)
            .await;
        client
    }
}
