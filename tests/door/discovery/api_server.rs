//! An API server that has RayClusters and Secrets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::head::{answer, request};

/// The relay's own token.
const RELAY_TOKEN: &str = "made-up-service-account-token";

/// A Kubernetes API server.
pub(super) struct ApiServer {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<ApiState>>,
    changed: Arc<watch::Sender<u64>>,
    files: tempfile::TempDir,
}

#[derive(Default)]
struct ApiState {
    version: u64,
    clusters: Vec<Value>,
    secrets: Vec<Value>,
    /// The watch events: version, kind and object.
    log: Vec<(u64, &'static str, Value)>,
    /// Versions before this one are too old.
    forgotten: u64,
    /// The next change breaks off in the middle.
    cut: bool,
    /// Connections from before this many are broken off.
    hung_up: u64,
    /// Parts of paths that are answered with 403.
    refused: Vec<String>,
    requested: Vec<String>,
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("token"), RELAY_TOKEN).unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
            files,
        };
        server.state.lock().unwrap().version = 5000;
        let (state, changed) = (server.state.clone(), server.changed.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, state.clone(), changed.subscribe()));
            }
        });
        server
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.files.path().join("token")
    }

    fn change(&self, change: impl FnOnce(&mut ApiState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Puts a RayCluster in, or in place of that of its name.
    pub(super) fn put(&self, mut object: Value) {
        self.change(|state| {
            state.version += 1;
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            let same = |old: &Value| old["metadata"]["name"] == object["metadata"]["name"];
            let word = if state.clusters.iter().any(same) {
                "MODIFIED"
            } else {
                "ADDED"
            };
            state.clusters.retain(|old| !same(old));
            state.clusters.push(object.clone());
            state.log.push((state.version, word, object));
        });
    }

    pub(super) fn put_secret(&self, secret: Value) {
        self.change(|state| state.secrets = vec![secret]);
    }

    pub(super) fn delete(&self, name: &str) {
        self.change(|state| {
            state.version += 1;
            let mut object = remove_cluster(state, name);
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.log.push((state.version, "DELETED", object));
        });
    }

    /// Deletes a RayCluster, and forgets that it did.
    pub(super) fn forget(&self, name: &str) {
        self.change(|state| {
            remove_cluster(state, name);
            state.version += 100;
            state.forgotten = state.version;
            state.log.clear();
            state.hung_up += 1;
        });
    }

    /// Sends a bookmark: nothing has changed up to `version`.
    pub(super) fn bookmark(&self, version: u64) {
        self.change(|state| {
            state.version = version;
            let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
            let object = json!({"kind": "RayCluster", "apiVersion": "ray.io/v1", "metadata": metadata,
                "spec": {"headGroupSpec": {"template": {}}}, "status": {"head": {}}});
            state.log.push((version, "BOOKMARK", object));
        });
    }

    /// Breaks the watch off in the middle of the next change.
    pub(super) fn cut_next(&self) {
        self.state.lock().unwrap().cut = true;
    }

    /// Breaks off every watch.
    pub(super) fn hang_up(&self) {
        self.change(|state| state.hung_up += 1);
    }

    /// The relay may not ask for paths that hold `part`, but for longer ones of another kind.
    pub(super) fn refuse(&self, part: &str) {
        self.state.lock().unwrap().refused.push(part.to_owned());
    }

    /// Returns the requested paths that contain `part`.
    pub(super) fn requests(&self, part: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let matching = state.requested.iter().filter(|path| path.contains(part));
        matching.cloned().collect()
    }
}

fn remove_cluster(state: &mut ApiState, name: &str) -> Value {
    let at = state
        .clusters
        .iter()
        .position(|object| object["metadata"]["name"] == *name);
    state.clusters.remove(at.unwrap())
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<ApiState>>, changed: watch::Receiver<u64>) {
    let Some((path, authorization)) = request(&mut stream).await else {
        return;
    };
    let refused = {
        let mut state = state.lock().unwrap();
        state.requested.push(path.clone());
        state.refused.iter().any(|part| path.contains(&**part))
    };
    let failure = |code: u16, reason: &str| {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": format!("{path} {authorization}")})
    };
    if authorization != format!("Bearer {RELAY_TOKEN}") {
        return answer(&mut stream, 401, &failure(401, "Unauthorized")).await;
    }
    if refused {
        return answer(&mut stream, 403, &failure(403, "Forbidden")).await;
    }
    let (place, query) = path.split_once('?').unwrap_or((&path, ""));
    let given = |key: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.to_owned())
    };
    if place.contains("/secrets/") {
        let secret = state.lock().unwrap().secrets.first().cloned();
        return match secret {
            Some(secret) => answer(&mut stream, 200, &secret).await,
            None => answer(&mut stream, 404, &failure(404, "NotFound")).await,
        };
    }
    if given("watch").is_some() {
        let version = given("resourceVersion").unwrap().parse().unwrap();
        return tell(&mut stream, &state, changed, version).await;
    }
    // A page has one item, whatever the limit.
    assert!(given("limit").is_some());
    let list = {
        let state = state.lock().unwrap();
        let at: usize = given("continue").map_or(0, |at| at.parse().unwrap());
        let (items, next) = match state.clusters.get(at) {
            Some(one) => (
                json!([one]),
                (at + 1 < state.clusters.len()).then(|| (at + 1).to_string()),
            ),
            None => (Value::Null, None),
        };
        json!({"kind": "RayClusterList", "apiVersion": "ray.io/v1", "items": items,
            "metadata": {"resourceVersion": state.version.to_string(), "continue": next.unwrap_or_default()}})
    };
    answer(&mut stream, 200, &list).await;
}

/// A watch of everything after `seen`.
async fn tell(
    stream: &mut TcpStream,
    state: &Mutex<ApiState>,
    mut changed: watch::Receiver<u64>,
    mut last_version: u64,
) {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let _ = stream.write_all(head.as_bytes()).await;
    let since = state.lock().unwrap().hung_up;
    loop {
        let (lines, cut) = {
            let mut state = state.lock().unwrap();
            if state.hung_up > since {
                return;
            }
            let mut lines = Vec::new();
            if last_version < state.forgotten {
                let why = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
                lines.push(json!({"type": "ERROR", "object": why}).to_string());
            }
            let mut cut = false;
            for (version, word, object) in &state.log {
                if *version > last_version && !cut {
                    last_version = *version;
                    lines.push(json!({"type": word, "object": object}).to_string());
                    cut = state.cut && *word != "BOOKMARK";
                }
            }
            state.cut &= !cut;
            (lines, cut)
        };
        for (n, line) in lines.iter().enumerate() {
            if cut && n + 1 == lines.len() {
                let half = &line[..line.len() / 2];
                let _ = stream
                    .write_all(format!("{:x}\r\n{half}", line.len() + 1).as_bytes())
                    .await;
                return;
            }
            let chunk = format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
            if stream.write_all(chunk.as_bytes()).await.is_err() {
                return;
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}
