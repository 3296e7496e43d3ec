//! What a cluster answers over HTTP: Ray's State API, and the workers that wait for a debugger.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;

use super::super::{eventually, http};
use super::{Cluster, Ground, tool};

/// A worker that waits for a debugger, by Ray's own word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PausedWorker {
    /// Ray's id.
    pub(crate) worker_id: String,
    /// Its node.
    pub(crate) ip: Ipv4Addr,
    /// Its debugger.
    pub(crate) port: u16,
    /// Inside its node's pid namespace.
    pub(crate) pid: u32,
}

impl Cluster {
    /// GET `url` from inside `node`: status and body, or why there was no connection.
    pub(crate) fn get(
        &self,
        node: &str,
        url: &str,
        max_wait: Duration,
    ) -> Result<(u16, Vec<u8>), String> {
        self.get_with(node, url, max_wait, &[])
    }

    /// The same with these settings of the relay's client commands: whom it trusts, and the token that it shows.
    pub(crate) fn get_with(
        &self,
        node: &str,
        url: &str,
        max_wait: Duration,
        settings: &[(&'static str, String)],
    ) -> Result<(u16, Vec<u8>), String> {
        if url.starts_with("http://") {
            let token = settings.iter().find(|(name, _)| *name == "RAY_RELAY_TOKEN");
            let token = token.map(|(_, token)| token.as_str());
            let namespace = match &self.ground {
                Ground::Namespaces(_) => Some(self.namespace(node)),
                Ground::Loopback(_) => None,
            };
            let answer = http::get(namespace.as_deref(), url, token, max_wait);
            return answer.map_err(|why| why.to_string());
        }
        let output = self
            .exec(node, self.venv.python())
            .arg(tool("http_get.py"))
            .arg(url)
            .arg(max_wait.as_secs_f64().to_string())
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        match stderr.strip_prefix("status ").map(str::parse) {
            Some(Ok(status)) => Ok((status, output.stdout)),
            _ => Err(stderr.into_owned()),
        }
    }

    /// Rows of Ray's State API, asked from the relay's namespace, e.g. `workers?detail=1`.
    pub(crate) fn rows(&self, query: &str) -> Vec<Value> {
        let url = format!("{}/api/v0/{query}", self.dashboard());
        let token = match &self.ground {
            Ground::Namespaces(_) => None,
            Ground::Loopback(loopback) => Some(("RAY_RELAY_TOKEN", loopback.token.clone())),
        };
        let token: Vec<_> = token.into_iter().collect();
        let max_wait = Duration::from_secs(10);
        let (status, body) = self.get_with("relay", &url, max_wait, &token).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let rows = answer.pointer("/data/result/result").cloned();
        serde_json::from_value(rows.unwrap()).unwrap()
    }

    /// Returns the workers that wait for a debugger according to Ray.
    pub(crate) fn paused(&self) -> Vec<PausedWorker> {
        self.rows("workers?detail=1&limit=10000")
            .iter()
            .filter(|row| row["is_alive"] == true && row["num_paused_threads"].as_u64() > Some(0))
            .map(|row| PausedWorker {
                worker_id: row["worker_id"].as_str().unwrap().to_owned(),
                ip: row["ip"].as_str().unwrap().parse().unwrap(),
                port: number(&row["debugger_port"]),
                pid: number(&row["pid"]),
            })
            .collect()
    }

    /// Waits until exactly `count` workers wait for a debugger.
    pub(crate) fn wait_paused(&self, count: usize) -> Vec<PausedWorker> {
        let what = format!("{count} paused worker(s)");
        eventually(&what, Duration::from_secs(120), || {
            Some(self.paused()).filter(|paused| paused.len() == count)
        })
    }
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    // Some versions write ports as text.
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    T::try_from(number.unwrap()).ok().unwrap()
}
