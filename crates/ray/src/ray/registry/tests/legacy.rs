//! Tests breakpoints of the legacy debugger with a stand-in for the GCS: HTTP/2 and gRPC framing on a real socket.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::ray::registry::gcs::messages::{
    KeyValue, KeysReply, KeysRequest, MultiGetReply, MultiGetRequest,
};
use crate::ray::registry::tests::fake_head::{
    FakeHead, SECOND, dead, holder, live, settings, wait_for_list, watch, watch_with, worker,
};
use crate::ray::registry::{EnteredBreakpoint, Kind, RayNode, Reason};
use ray_relay_base::config::Gcs;
use ray_relay_base::wire::tunnel::messages::{Hex, HoldRow, Parked};

const KEY: &str = "RAY_PDB_84ccee9342eb4d10a70c5c08b7a0424e";

/// The stored entries, and the requests so far.
#[derive(Clone, Default)]
pub(super) struct FakeGcs {
    entries: Arc<Mutex<BTreeMap<String, Value>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeGcs {
    pub(super) async fn start() -> (Self, SocketAddr) {
        Self::start_with(None).await
    }

    /// Starts a GCS, with TLS if `tls` is set.
    pub(super) async fn start_with(tls: Option<TlsAcceptor>) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gcs = Self::default();
        let serving = gcs.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let gcs = serving.clone();
                let service = service_fn(move |request| gcs.clone().answer(request));
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                match tls.clone() {
                    None => {
                        tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
                    }
                    Some(tls) => {
                        tokio::spawn(async move {
                            let stream = tls.accept(stream).await?;
                            let served = http.serve_connection(TokioIo::new(stream), service);
                            served.await.map_err(std::io::Error::other)
                        });
                    }
                }
            }
        });
        (gcs, address)
    }

    pub(super) fn put(&self, key: &str, value: Value) {
        self.entries.lock().unwrap().insert(key.to_owned(), value);
    }

    fn delete(&self, key: &str) {
        self.entries.lock().unwrap().remove(key);
    }

    /// Waits until the registry has applied all stored entries.
    async fn read(&self) {
        let polls = || {
            let requests = self.requests.lock().unwrap();
            requests
                .iter()
                .filter(|path| path.ends_with("Keys"))
                .count()
        };
        // The first request may be older, and the third begins after the second is applied.
        let target = polls() + 3;
        while polls() < target {
            tokio::task::yield_now().await;
        }
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible>
    {
        let path = request.uri().path().to_owned();
        self.requests.lock().unwrap().push(path.clone());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        // The message follows a flag and its length.
        let message = &body[5..];
        let reply = match path.rsplit('/').next().unwrap() {
            "InternalKVKeys" => {
                let request = KeysRequest::decode(message).unwrap();
                assert_eq!(
                    (&*request.prefix, &*request.namespace),
                    (&b"RAY_PDB_"[..], &b"ray_pdb"[..])
                );
                let keys = self
                    .entries
                    .lock()
                    .unwrap()
                    .keys()
                    .map(|key| key.clone().into_bytes())
                    .collect();
                KeysReply { status: None, keys }.encode_to_vec()
            }
            "InternalKVMultiGet" => {
                let request = MultiGetRequest::decode(message).unwrap();
                let entries = self.entries.lock().unwrap();
                let entries_found = request.keys.into_iter().filter_map(|key| {
                    let value = entries.get(std::str::from_utf8(&key).unwrap())?;
                    Some(KeyValue {
                        value: value.to_string().into_bytes(),
                        key,
                    })
                });
                MultiGetReply {
                    status: None,
                    found: entries_found.collect(),
                }
                .encode_to_vec()
            }
            other => panic!("asked for {other}"),
        };
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(reply.len()).unwrap());
        framed.put_slice(&reply);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [
            Ok(Frame::data(framed.freeze())),
            Ok(Frame::trailers(trailers)),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        Ok(Response::builder()
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap())
    }
}

pub(super) fn entry(port: u16, task: &str) -> Value {
    json!({"proctitle": format!("ray::{task}"), "pdb_address": format!("10.0.0.7:{port}"), "filename": "/app/a.py",
        "lineno": 7, "traceback": "NoneType: None\n", "timestamp": 1_700_000_000.5, "job_id": "01000000",
        "worker_id": "cc", "node_id": "aaaa", "task_id": "t1", "actor_id": null})
}

#[tokio::test]
async fn legacy_entry_is_listed_held_and_continued_in_another_task() {
    let (gcs, address) = FakeGcs::start().await;
    let head = FakeHead::start().await;
    head.with(|world| world.workers.push(worker("bb", 1)));
    gcs.put(KEY, entry(40_001, "outer"));
    gcs.put("RAY_PDB_CONTINUE_84ccee", json!({"job_id": "01000000"}));
    // Stale entries of a long-lived cluster hide no breakpoint.
    for n in 0..2500 {
        gcs.put(&format!("RAY_PDB_{n:032x}"), json!({"exit_debugger": true}));
    }
    let (registry, _guard) = watch_with(&head, Gcs::At(address.to_string()), &settings());
    let list = wait_for_list(&registry, |list| list.live.len() == 2).await;
    assert!(list.live.iter().any(|b| b.kind == Kind::Debugpy));
    let legacy = live(&registry, |b| b.kind == Kind::Pdb).await;
    assert_eq!(
        (legacy.name().as_str(), legacy.reason),
        ("outer", Reason::Breakpoint)
    );
    assert_eq!(legacy.upstream(), "10.0.0.7:40001".parse().unwrap());

    // A client that connects consumes the entry; the list keeps it with its holder.
    let claim = registry.claim(legacy.id, holder(1)).unwrap();
    gcs.delete(KEY);
    gcs.put(KEY, entry(40_002, "inner"));
    let polls = gcs.requests.lock().unwrap().len();
    while gcs.requests.lock().unwrap().len() < polls + 4 {
        tokio::task::yield_now().await;
    }
    let held_row = live(&registry, |b| b.id == legacy.id).await;
    assert!(held_row.holder().is_some() && held_row.upstream().port() == 40_001);
    claim.lease().let_run();
    drop(claim);
    // A remote breakpoint in the next task has the same id, another socket and another stop.
    let next = live(&registry, |b| b.upstream().port() == 40_002).await;
    assert_eq!(
        (next.id, next.stop, next.name().as_str()),
        (legacy.id, 2, "inner")
    );
    gcs.delete(KEY);
    wait_for_list(&registry, |list| list.live.len() == 1).await;
}

#[tokio::test]
async fn legacy_session_ends_by_the_exit_marker_only() {
    let (gcs, address) = FakeGcs::start().await;
    let head = FakeHead::start().await;
    let mut settings = settings();
    settings.poll_interval = Duration::from_millis(10);
    gcs.put(KEY, entry(40_001, "outer"));
    gcs.put("RAY_PDB_00", json!({"exit_debugger": true}));
    let (registry, _guard) = watch_with(&head, Gcs::At(address.to_string()), &settings);
    let stop = live(&registry, |b| b.kind == Kind::Pdb).await;
    let has_ended = async || {
        let result = timeout(Duration::ZERO, registry.goes_no_further(&stop));
        result.await.is_ok()
    };
    // The breakpoint is entered and resumed, and the GCS has no new entry yet.
    let claim = registry.claim(stop.id, holder(1)).unwrap();
    gcs.delete(KEY);
    claim.lease().let_run();
    drop(claim);
    gcs.read().await;
    assert!(!has_ended().await);
    gcs.put(KEY, json!({"exit_debugger": true}));
    let result = timeout(60 * SECOND, registry.goes_no_further(&stop)).await;
    result.expect("Ray's word is heard");
    assert!(registry.snapshot().find(stop.id).is_none());
    // The task is retried and stops again: the marker of the last stop does not apply.
    gcs.put(KEY, entry(40_002, "outer"));
    live(&registry, |b| b.upstream().port() == 40_002).await;
    assert!(!has_ended().await);
}

#[tokio::test]
async fn entries_of_dead_jobs_and_workers_are_not_listed() {
    let (gcs, address) = FakeGcs::start().await;
    let head = FakeHead::start().await;
    let job = |id: &str, status: &str| json!({"job_id": id, "submission_id": null, "status": status, "entrypoint": "x", "type": "DRIVER"});
    head.with(|world| {
        world.jobs = vec![job("01000000", "RUNNING"), job("02000000", "FAILED")];
        world.workers.push(dead("dd", "SYSTEM_ERROR", ""));
    });
    let mut dead_job_entry = entry(40_001, "of_a_dead_job");
    dead_job_entry["job_id"] = "02000000".into();
    let mut dead_worker_entry = entry(40_002, "of_a_dead_worker");
    dead_worker_entry["worker_id"] = "dd".into();
    gcs.put("RAY_PDB_01", dead_job_entry);
    gcs.put("RAY_PDB_02", dead_worker_entry);
    gcs.put("RAY_PDB_03", entry(40_003, "waits"));
    let (registry, _guard) = watch_with(&head, Gcs::At(address.to_string()), &settings());
    let list = wait_for_list(&registry, |list| !list.live.is_empty()).await;
    let names: Vec<_> = list.live.iter().map(|b| b.name()).collect();
    assert_eq!(names, ["waits"]);
}

#[tokio::test]
async fn unreachable_gcs_leaves_the_rest_working() {
    let head = FakeHead::start().await;
    head.with(|world| world.workers.push(worker("bb", 1)));
    // No GCS listens at that address.
    let (registry, _guard) = watch_with(&head, Gcs::At("127.0.0.1:9".to_owned()), &settings());
    let list = wait_for_list(&registry, |list| list.live.len() == 1).await;
    assert_eq!(list.clusters[0].trouble, None);
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |list| list.live.len() == 1).await;
}

/// Ray no longer lists an entered legacy breakpoint, so a later relay depends on the report of the agent.
#[tokio::test]
async fn entered_legacy_breakpoint_is_listed_while_reported() {
    let (gcs, address) = FakeGcs::start().await;
    let head = FakeHead::start().await;
    gcs.put(KEY, entry(40_001, "outer"));
    let (before, _guard) = watch_with(&head, Gcs::At(address.to_string()), &settings());
    let row = live(&before, |b| b.kind == Kind::Pdb).await;
    gcs.delete(KEY);
    let (registry, _guard) = watch_with(&head, Gcs::At(address.to_string()), &settings());
    gcs.read().await;
    assert!(registry.snapshot().live.is_empty());

    let node = RayNode {
        cluster: Arc::clone(&row.cluster),
        node_id: Arc::clone(&row.node_id),
        address: row.node_ip,
    };
    let parked = |port| HoldRow {
        worker_id: (&*row.worker_id).into(),
        kind: Kind::Pdb,
        port,
        name: "".into(),
        session: "41".into(),
        client: "terminal".into(),
        peer: None,
        replica: Hex([7; 8]),
        since_unix_ms: 1,
        parked: Some(Parked {
            owner: "".into(),
            credential: None,
            until_unix_ms: u64::MAX / 2,
            evaluates: false,
            entered: EnteredBreakpoint::to_text(&row),
        }),
    };
    // A report about another port is ignored.
    registry.update_remote(|remote| remote.set_report(1, vec![node.clone()], &[parked(40_002)]));
    assert!(registry.snapshot().live.is_empty());
    registry.update_remote(|remote| remote.set_report(1, vec![node.clone()], &[parked(40_001)]));
    let listed = live(&registry, |b| b.id == row.id).await;
    assert_eq!((listed.state.word(), listed.name()), ("parked", row.name()));
    assert_eq!(listed.location, row.location);
    gcs.read().await;
    assert!(registry.snapshot().find(row.id).is_some(), "it stays");
    registry.update_remote(|remote| remote.set_report(1, vec![node], &[]));
    assert!(registry.snapshot().find(row.id).is_none());
}
