//! A cluster with a relay in front, and what a person at the client sees of them.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::dap_client::{DapClient, Editor};
use super::eventually;
use super::namespaces::{Cluster, Driver};
use super::relay::Relay;

/// A cluster with a relay, and what a person at the client sees of it.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) relay: Relay,
    /// What its HTTP requests carry.
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
        let url = format!("{}/relay/v1/breakpoints", self.relay.url());
        let (status, body) = self.get(&url);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    fn get(&self, url: &str) -> (u16, Vec<u8>) {
        let patience = Duration::from_secs(10);
        let answer = self
            .cluster
            .get_as("client", url, patience, self.token.as_deref());
        answer.unwrap()
    }

    /// The breakpoints of the list.
    pub(crate) fn list(&self) -> Vec<Value> {
        serde_json::from_value(self.answer()["breakpoints"].take()).unwrap()
    }

    /// What Ray's State API says of the workers, read through the relay from the client.
    pub(crate) fn workers(&self) -> Vec<Value> {
        let url = format!("{}/api/v0/workers?detail=1&limit=10000", self.relay.url());
        let (status, body) = self.get(&url);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        serde_json::from_value(answer["data"]["result"]["result"].take()).unwrap()
    }

    /// Those that wait for a debugger.
    pub(crate) fn paused_workers(&self) -> Vec<Value> {
        let mut rows = self.workers();
        rows.retain(|row| row["num_paused_threads"].as_u64() > Some(0) && row["is_alive"] == true);
        rows
    }

    /// Waits until `count` are listed, all paused.
    pub(crate) fn wait_listed(&self, count: usize) -> Vec<Value> {
        eventually(&format!("{count} listed"), Duration::from_secs(120), || {
            let rows = self.list();
            (rows.len() == count && rows.iter().all(|row| row["state"] == "paused")).then_some(rows)
        })
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
    pub(crate) fn gone(&self) {
        eventually("an empty list", Duration::from_secs(60), || {
            self.list().is_empty().then_some(())
        });
    }

    /// Connects as `editor`, from the client's namespace.
    pub(crate) async fn connect(&self, editor: Editor) -> DapClient {
        DapClient::connect_from(editor, self.cluster, "client", self.relay.address()).await
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
        let selector = json!({"breakpoint": row["id"]});
        client
            .start(self.arguments(Editor::VsCode, "", selector), None)
            .await;
        client
    }
}
