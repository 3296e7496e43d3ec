//! The dashboard proxy.

use super::*;
use std::sync::atomic::AtomicUsize;

use futures_util::stream;
use http_body_util::{Full, StreamBody};
use hyper::HeaderMap;
use hyper::body::Frame;
use hyper::header::{CONTENT_LENGTH, ETAG, LOCATION};
use tokio::sync::oneshot;

use ray_relay_base::config::Advertise;
use ray_relay_view::advertise::Resolved;

const ROWS: &str = r#"{"result": true, "msg": "", "data": {"result": {"total": 3, "result": [
 {"worker_id": "aa11", "ip": "10.88.0.10", "worker_launch_time_ms": 18446744073709551615, "debugger_port": 38645, "num_paused_threads": 1},
 {"worker_id": "bb22", "ip": "10.88.0.11", "debugger_port": "57329", "num_paused_threads": 0},
 {"worker_id": "cc33", "ip": "10.88.0.12", "debugger_port": null, "num_paused_threads": null}
]}}}"#;

pub(super) fn workers() -> Response<Body> {
    with(
        ok(ROWS),
        &[
            ("content-type", "application/json; charset=utf-8"),
            ("etag", "\"1\""),
        ],
    )
}

#[tokio::test]
async fn credentials_and_hop_by_hop_headers_are_removed() {
    let (address, mut requests, _head) = test_head(|| {
        let response = ok("page");
        with(
            response,
            &[
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("x-kept", "1"),
                ("set-cookie", "ray-authentication-token=raysecret"),
            ],
        )
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let request = relay
        .request("GET", "/logical//actors?a=%20b")
        .header("authorization", "Bearer mine")
        .header("x-ray-authorization", "Bearer mine")
        .header("cookie", "ray-authentication-token=mine; a=1")
        .header("connection", "x-once")
        .header("x-once", "1")
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    let request = requests.recv().await.unwrap();
    assert_eq!(
        (request.method, request.uri.as_str()),
        (Method::GET, "/logical//actors?a=%20b")
    );
    assert_eq!(request.headers["host"], address.to_string());
    assert_eq!(request.headers["cookie"], "a=1");
    assert!(!format!("{:?}", request.headers).contains("mine"));
    assert!(!request.headers.contains_key("x-once"));
    assert_eq!(response.headers()["x-kept"], "1");
    assert!(
        !response.headers().contains_key("x-hop") && !response.headers().contains_key("set-cookie")
    );
    assert_eq!(text(response).await, "page");
}

#[tokio::test]
async fn ray_token_is_added_upstream() {
    let (address, mut requests, _head) = test_head(|| ok("")).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "raysecret\n").unwrap();
    let relay = Relay::start(&[("default", address)], |config| {
        config.clusters[0].token_file = Some(file.path().to_owned());
    })
    .await;
    relay.get("/").await;
    assert_eq!(
        requests.recv().await.unwrap().headers["authorization"],
        "Bearer raysecret"
    );
}

#[tokio::test]
async fn worker_addresses_are_those_of_the_relay() {
    let (address, mut requests, _head) = test_head(workers).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    relay.registry.insert(breakpoint("aa11"));
    let request = Request::get("/api/v0/workers?detail=1")
        .header(HOST, "localhost:15678")
        .header("accept-encoding", "gzip")
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert!(
        !requests
            .recv()
            .await
            .unwrap()
            .headers
            .contains_key("accept-encoding")
    );
    assert!(!response.headers().contains_key(ETAG));
    let length = response.headers()[CONTENT_LENGTH]
        .to_str()
        .unwrap()
        .to_owned();
    let text = text(response).await;
    assert_eq!(length, text.len().to_string());
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = &list["data"]["result"]["result"];
    let ip = rows[0]["ip"].as_str().unwrap();
    assert_eq!(
        relay.ctx.shown.advertised.resolve(ip),
        Resolved::Breakpoint(breakpoint("aa11").id)
    );
    let expected = ROWS
        .replace("10.88.0.10", ip)
        .replace("38645", "15678")
        .replace("10.88.0.11", "localhost")
        .replace("57329", "15678");
    assert_eq!(text, expected, "all else is as it was");
    let request = Request::get("/api/v0/workers")
        .header(HOST, "localhost:15678")
        .body(answer::empty())
        .unwrap();
    assert_eq!(
        super::text(relay.client().await.send(request).await).await,
        expected,
        "stable"
    );
}

#[tokio::test]
async fn new_worker_already_has_its_own_address() {
    for mode in [Advertise::Single, Advertise::Ports(5700..=5703)] {
        let (address, _seen, _head) = test_head(workers).await;
        let relay = Relay::start(&[("default", address)], |config| config.advertise = mode).await;
        let advertised = &relay.ctx.shown.advertised;
        let row = || async {
            let list = json(relay.get("/api/v0/workers?detail=1").await).await;
            let rows = &list["data"]["result"]["result"];
            assert_eq!(rows[1]["ip"], "127.0.0.1", "not paused");
            let port = rows[0]["debugger_port"].as_u64().unwrap();
            let port = u16::try_from(port).unwrap();
            (rows[0]["ip"].as_str().unwrap().to_owned(), port)
        };
        let (ip, port) = row().await;
        let id = breakpoint("aa11").id;
        let resolved = match advertised.resolve(&ip) {
            Resolved::Breakpoint(found) => Some(found),
            _ => advertised.breakpoint_at(port),
        };
        assert_eq!(resolved, Some(id), "{ip}:{port}");
        relay.registry.insert(breakpoint("aa11"));
        assert_eq!(row().await, (ip, port), "and keeps it");
    }
}

#[tokio::test]
async fn workers_of_named_clusters_have_separate_addresses() {
    let (first, _, _head) = test_head(|| ok("first")).await;
    let (other, mut requests, _other) = test_head(workers).await;
    let relay = Relay::start(&[("default", first), ("other", other)], |_| {}).await;
    // The same worker id in another cluster is a different breakpoint.
    relay.registry.insert(breakpoint("aa11"));
    let text_of = text(
        relay
            .get("/relay/clusters/other/api/v0/workers?detail=1")
            .await,
    )
    .await;
    let request = requests.recv().await.unwrap();
    assert_eq!(request.uri, "/api/v0/workers?detail=1");
    assert!(
        !text_of.contains("10.88.0.10\"") && text_of.contains(r#""ip": "127.0.0.1""#),
        "{text_of}"
    );
    let response = relay.get("/relay/clusters/nope/api").await;
    assert_eq!(response.status(), 404);
    assert!(text(response).await.contains("default, other"));
    let response = relay.get("/relay/clusters/other?x=1").await;
    assert_eq!(response.headers()[LOCATION], "/relay/clusters/other/?x=1");
}

#[tokio::test]
async fn unrewritable_answer_is_refused() {
    let (address, _seen, _head) = test_head(|| {
        with(
            ok(vec![b' '; (64 << 20) + 1]),
            &[("content-type", "application/json")],
        )
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let response = relay.get("/api/v0/workers").await;
    assert_eq!(response.status(), 502);
    assert!(text(response).await.contains("larger than 67108864 bytes"));

    let (address, _seen, _head) = test_head(|| {
        let broken = r#"{"ip": "10.88.0.10", "debugger_port": 38645"#;
        with(ok(broken), &[("content-type", "application/json")])
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let response = relay.get("/api/v0/workers").await;
    assert_eq!(response.status(), 502);
    assert!(!text(response).await.contains("10.88"));
}

#[tokio::test]
async fn long_list_streams_and_aborts_on_invalid_json() {
    let (send, receive) = mpsc::channel::<String>(1);
    let receive = Arc::new(Mutex::new(Some(receive)));
    let (address, _head) = head(move |_| {
        let receive = receive.lock().unwrap().take().unwrap();
        let frames = stream::unfold(receive, |mut receive| async {
            let frame = receive.recv().await?;
            Some((Ok(Frame::data(frame.into())), receive))
        });
        let list = Response::new(StreamBody::new(frames).boxed_unsync());
        async move { with(list, &[("content-type", "application/json")]) }
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let row = r#"{"ip": "10.88.0.10", "debugger_port": 38645}, "#;
    send.send(format!("[{}", row.repeat(2000))).await.unwrap();
    let response = relay.get("/api/v0/workers").await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut received = body.frame().await.unwrap().unwrap().into_data().unwrap();
    // The list ends only now, so the first rows did not wait for its end.
    send.send(format!("{row}]}}")).await.unwrap();
    let broken = loop {
        match body.frame().await {
            Some(Ok(frame)) => received = [received, frame.into_data().unwrap()].concat().into(),
            end => break end.is_some(),
        }
    };
    assert!(broken, "an end that the client takes for the list's");
    let received = String::from_utf8(received.into()).unwrap();
    assert!(received.contains("127.0.0.1") && !received.contains("10.88"));
}

#[tokio::test]
async fn errors_and_head_requests_of_workers_pass() {
    let (address, _seen, _head) =
        test_head(|| with(status(500), &[("content-type", "application/json")])).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    assert_eq!(relay.get("/api/v0/workers").await.status(), 500);

    let (address, _seen, _head) = test_head(workers).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let request = relay
        .request("HEAD", "/api/v0/workers")
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key(CONTENT_LENGTH));
}

#[tokio::test]
async fn unreachable_head_is_answered_502() {
    // A closed port is refused at once, while an unaccepted connection would time out.
    let address = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let response = relay.get("/api/version").await;
    assert_eq!(response.status(), 502);
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    let sentence = text(response).await;
    assert!(
        sentence.contains("cannot reach the Ray head at"),
        "{sentence}"
    );
    let metrics = text(relay.get("/relay/metrics").await).await;
    assert!(
        metrics.contains(
            r#"ray_relay_head_requests_total{cluster="default",outcome="unreachable"} 1"#
        )
    );
}

#[tokio::test]
async fn redirects_stay_within_the_relay() {
    let (address, _seen, _head) =
        test_head(|| with(status(302), &[("location", "/new?x=1")])).await;
    let relay = Relay::start(&[("a", address), ("b", address)], |_| {}).await;
    assert_eq!(relay.get("/old").await.headers()[LOCATION], "/new?x=1");
    assert_eq!(
        relay.get("/relay/clusters/b/old").await.headers()[LOCATION],
        "/relay/clusters/b/new?x=1"
    );
}

#[tokio::test]
async fn both_directions_stream_at_once_with_trailers() {
    let (address, _head) = head(|request: Request<Incoming>| async move {
        let trailer = request.headers().get("trailer").cloned();
        let mut response = Response::new(request.into_body().map_err(Into::into).boxed_unsync());
        if let Some(trailer) = trailer {
            response.headers_mut().insert("trailer", trailer);
        }
        response
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let (send, receive) = mpsc::channel::<Frame<Bytes>>(1);
    let frames = stream::unfold(receive, |mut receive| async {
        receive.recv().await.map(|frame| (Ok(frame), receive))
    });
    let request = relay
        .request("POST", "/echo")
        .header("trailer", "x-sum")
        .header("te", "trailers")
        .body(StreamBody::new(frames).boxed_unsync())
        .unwrap();
    send.send(Frame::data("one".into())).await.unwrap();
    let mut body = relay.client().await.send(request).await.into_body();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "one"
    );
    // The upload ends only now, so its beginning was not held back.
    send.send(Frame::data("two".into())).await.unwrap();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "two"
    );
    let trailers: HeaderMap = [("x-sum".parse().unwrap(), "7".parse().unwrap())]
        .into_iter()
        .collect();
    send.send(Frame::trailers(trailers)).await.unwrap();
    drop(send);
    // hyper's client passes trailers on. Its server sends them only to clients that accept them.
    while let Some(frame) = body.frame().await {
        assert!(frame.unwrap().is_trailers());
    }
}

/// Notifies its receiver when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        _ = self.0.take().map(|sender| sender.send(()));
    }
}

#[tokio::test]
async fn slow_reader_throttles_the_head_and_disconnect_stops_it() {
    const CHUNK: usize = 64 * 1024;
    const LOG: usize = 1 << 30;
    let chunks = Arc::new(AtomicUsize::new(0));
    let (dropped, disconnected) = oneshot::channel();
    let dropped = Arc::new(std::sync::Mutex::new(Some(dropped)));
    let counter = Arc::clone(&chunks);
    let (address, _head) = head(move |_| {
        let counter = Arc::clone(&counter);
        let guard = Dropped(dropped.lock().unwrap().take());
        async move {
            let body_stream = stream::unfold((counter, guard), |state| async move {
                let continues = state.0.fetch_add(1, Ordering::SeqCst) < LOG / CHUNK;
                continues.then(|| (Ok(Frame::data(Bytes::from(vec![0; CHUNK]))), state))
            });
            Response::new(StreamBody::new(body_stream).boxed_unsync())
        }
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let client = relay.client().await;
    let mut body = client
        .send(relay.request("GET", "/log").body(answer::empty()).unwrap())
        .await
        .into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    // On a paused clock, the sleep ends once all tasks wait: all buffers are full.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::time::resume();
    let sent = chunks.load(Ordering::SeqCst) * CHUNK;
    assert!(sent < LOG / 8, "{sent} bytes are held somewhere");
    drop(body);
    disconnected.await.unwrap();
}

#[tokio::test]
async fn large_upload_arrives() {
    let (address, _head) = head(|request: Request<Incoming>| async move {
        let length = request.headers().get(CONTENT_LENGTH).cloned();
        let bytes = request.into_body().collect().await.unwrap().to_bytes();
        ok(format!("{} {length:?}", bytes.len()))
    })
    .await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let body = Full::new(Bytes::from(vec![7; 20_000_000]))
        .map_err(|never| match never {})
        .boxed_unsync();
    let request = relay
        .request("PUT", "/api/packages/gcs/x.zip")
        .header("expect", "100-continue")
        .body(body)
        .unwrap();
    assert_eq!(
        text(relay.client().await.send(request).await).await,
        "20000000 Some(\"20000000\")"
    );
}

#[tokio::test]
async fn http2_prior_knowledge_is_supported() {
    let (address, mut requests, _head) = test_head(workers).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let (mut send, connection) = hyper::client::conn::http2::handshake::<_, _, Body>(
        TokioExecutor::new(),
        TokioIo::new(stream),
    )
    .await
    .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { _ = connection.await });
    let uri = "http://localhost:7/api/v0/workers";
    let response = send
        .send_request(Request::get(uri).body(answer::empty()).unwrap())
        .await
        .unwrap();
    assert!(
        text(response)
            .await
            .contains(r#""ip": "localhost", "debugger_port": "7""#)
    );
    let request = requests.recv().await.unwrap();
    assert_eq!(request.headers["host"], address.to_string());
    let uri = "http://localhost:7/relay/healthz";
    let head = Request::head(uri).body(answer::empty()).unwrap();
    let response = send.send_request(head).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), text(response).await.as_str()),
        (200, "")
    );
}

/// Each event is passed on before the next one exists.
#[tokio::test]
async fn named_cluster_has_separate_event_streams() {
    let (first, _, _first) = test_head(|| ok("first")).await;
    let (events, receive) = mpsc::channel::<&'static str>(1);
    let receive = Arc::new(tokio::sync::Mutex::new(Some(receive)));
    let (other, _other) = head(move |request: Request<Incoming>| {
        let receive = Arc::clone(&receive);
        async move {
            assert_eq!(request.uri(), "/events?from=1");
            assert_eq!(request.headers()["last-event-id"], "7");
            let receive = receive.lock().await.take().unwrap();
            let frames = stream::unfold(receive, |mut receive| async {
                let event = receive.recv().await?;
                Some((Ok(Frame::data(Bytes::from(event))), receive))
            });
            let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
            let headers = response.headers_mut();
            headers.insert("content-type", "text/event-stream".parse().unwrap());
            response
        }
    })
    .await;
    let relay = Relay::start(&[("default", first), ("b", other)], |_| {}).await;
    let request = relay
        .request("GET", "/relay/clusters/b/events?from=1")
        .header("last-event-id", "7")
        .body(answer::empty())
        .unwrap();
    let response = relay.client().await.send(request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        events.send(event).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    drop(events);
    assert!(
        body.frame().await.is_none(),
        "the head's end is the client's"
    );
    assert_eq!(text(relay.get("/events").await).await, "first");
}
