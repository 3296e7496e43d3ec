#![allow(clippy::unwrap_used)]

use std::convert::Infallible;

use http_body_util::{BodyExt, Empty};
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;
use crate::telemetry::Metrics;
use ray_relay_base::timestamp::testing::at;

/// Starts a collector that answers with `statuses` in order, the last one for ever, and returns the requests it
/// received.
async fn collector(
    statuses: &'static [u16],
) -> (String, mpsc::Receiver<(String, ExportTraceServiceRequest)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sent, received) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut statuses = statuses.iter().copied().peekable();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let status = match statuses.len() {
                0 | 1 => *statuses.peek().unwrap(),
                _ => statuses.next().unwrap(),
            };
            let sent = sent.clone();
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let sent = sent.clone();
                async move {
                    let request_line = format!(
                        "{} {} {}",
                        request.method(),
                        request.uri(),
                        request.headers()[CONTENT_TYPE].to_str().unwrap()
                    );
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let export = ExportTraceServiceRequest::decode(body).unwrap();
                    sent.send((request_line, export)).await.unwrap();
                    let response = Response::builder().status(status);
                    Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
                }
            });
            let io = TokioIo::new(stream);
            let _ = http1::Builder::new().serve_connection(io, service).await;
        }
    });
    (address, received)
}

fn trace() -> Trace {
    let mut trace = Trace::new("connection", at(100), at(110));
    trace.part("session", at(103), at(109));
    trace.attribute("ray_relay.request", Some("7k3f9m2qxd"));
    trace.attribute("ray_relay.client", None::<&str>);
    trace.attribute("ray_relay.bytes_up", Some(7u64));
    trace.attribute("ray_relay.tls", Some(true));
    trace
}

fn traces_to(address: &str, metrics: &Arc<Metrics>) -> Arc<Traces> {
    let config = config::Telemetry {
        otlp: Some(address.to_owned()),
    };
    Traces::new(&config, metrics.clone()).unwrap().unwrap()
}

/// Runs the exporter until the returned token is cancelled.
fn run(traces: &Arc<Traces>) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let (token, running) = (CancellationToken::new(), Arc::clone(traces));
    let stop = token.clone();
    (token, tokio::spawn(async move { running.run(stop).await }))
}

fn counted(metrics: &Metrics, outcome: &str) -> u64 {
    let text = metrics.render(&ray_relay_ray::ray::registry::Snapshot::default());
    let line = format!("ray_relay_traces_total{{outcome=\"{outcome}\"}} ");
    let value = text.lines().find_map(|l| l.strip_prefix(&line));
    value.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn collector_gets_the_child_spans() {
    let (address, mut received) = collector(&[200]).await;
    let metrics = Metrics::new().unwrap();
    let traces = traces_to(&address, &metrics);
    let (_token, _running) = run(&traces);
    traces.offer(trace());
    traces.offer(trace());
    let (request_line, export) = received.recv().await.unwrap();
    assert_eq!(request_line, "POST /v1/traces application/x-protobuf");
    let sent = &export.resource_spans[0];
    let service = &sent.resource.as_ref().unwrap().attributes[0];
    assert_eq!(service, &attribute("service.name", "ray-relay"));
    let [session_span, dial_span, other, _] = &sent.scope_spans[0].spans[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(
        (session_span.trace_id.len(), session_span.span_id.len()),
        (16, 8)
    );
    assert!(session_span.parent_span_id.is_empty() && session_span.trace_id != other.trace_id);
    assert_eq!(
        (&dial_span.trace_id, &dial_span.parent_span_id),
        (&session_span.trace_id, &session_span.span_id)
    );
    let seconds = |span: &Span| {
        let nanoseconds = (span.start_time_unix_nano, span.end_time_unix_nano);
        (nanoseconds.0 / 1_000_000_000, nanoseconds.1 / 1_000_000_000)
    };
    assert_eq!(
        (seconds(session_span), seconds(dial_span)),
        ((100, 110), (103, 109))
    );
    assert_eq!(
        session_span.attributes,
        [
            attribute("ray_relay.request", "7k3f9m2qxd"),
            attribute("ray_relay.bytes_up", 7u64),
            attribute("ray_relay.tls", true),
        ]
    );
    while counted(&metrics, "sent") < 2 {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_export_is_retried_if_retryable() {
    for (statuses, attempts, sent, failed) in [
        (&[503, 429, 200][..], 3, 1, 0),
        (&[503], 4, 0, 1),
        (&[400], 1, 0, 1),
    ] {
        let (address, mut received) = collector(statuses).await;
        let metrics = Metrics::new().unwrap();
        let traces = traces_to(&address, &metrics);
        let (_token, running) = run(&traces);
        traces.offer(trace());
        while counted(&metrics, "sent") + counted(&metrics, "failed") == 0 {
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(counted(&metrics, "sent"), sent, "{statuses:?}");
        assert_eq!(counted(&metrics, "failed"), failed, "{statuses:?}");
        running.abort();
        let mut count = 0;
        while received.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, attempts, "{statuses:?}");
    }
}

#[tokio::test]
async fn missing_collector_does_not_block() {
    let metrics = Metrics::new().unwrap();
    let traces = traces_to("http://127.0.0.1:9", &metrics);
    for _ in 0..MAX_QUEUED_TRACES + 10 {
        traces.offer(trace());
    }
    assert_eq!(counted(&metrics, "dropped"), 10);
    // Spans in the queue at the end are counted too.
    let (token, running) = run(&traces);
    token.cancel();
    running.await.unwrap();
    assert!(counted(&metrics, "failed") > 0);
}
