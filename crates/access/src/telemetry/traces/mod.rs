//! Traces: phases of a connection as spans, exported to an OpenTelemetry collector (`telemetry.otlp`), by OTLP over
//! HTTP.
//!
//! A trace is built when its connection has ended, from the facts of its log line, and waits in a bounded queue. No
//! session waits for a collector: traces that the queue or the collector does not accept are dropped and counted. A
//! trace has the content of that log line: never a credential, nor the value of a variable.

mod messages;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::messages::{Value, attribute, of_this_process};
use super::metrics::{Metrics, TraceOutcome};
use ray_relay_base::config;
use ray_relay_base::dial::http::{self, HttpClient, Roots};
use ray_relay_base::dial::{Connector, Proxies};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::text::innermost_cause;

/// Traces that wait for the collector: a few megabytes.
const MAX_QUEUED_TRACES: usize = 2048;

/// Traces in one batch, and how long the first of them waits for the others.
const MAX_BATCH_TRACES: usize = 256;
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// How long the collector may take for one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses before a refused batch is retried.
const RETRY_PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];

/// How long the last batch may take when the relay ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The path of OTLP traces at a collector.
const PATH: &str = "/v1/traces";

/// The spans of one connection.
#[derive(Debug)]
pub struct Trace {
    spans: Vec<Span>,
    began: Timestamp,
}

impl Trace {
    /// Starts a trace with the root span `name` and these times.
    pub fn new(name: &str, began: Timestamp, ended: Timestamp) -> Self {
        let mut trace = Self {
            spans: Vec::new(),
            began,
        };
        trace.part(name, began, ended);
        trace
    }

    /// Sets an attribute of the root span. `None` sets nothing.
    pub fn attribute(&mut self, key: &str, value: Option<impl Value>) {
        if let (Some(root), Some(value)) = (self.spans.first_mut(), value) {
            root.attributes.push(attribute(key, value));
        }
    }

    /// Marks the root span as failed.
    pub fn failed(&mut self, why: &str) {
        if let Some(root) = self.spans.first_mut() {
            root.status = Some(Status {
                message: why.to_owned(),
                code: SpanStatus::Error.into(),
            });
        }
    }

    /// Adds the span `name` of a part. The first one is the root.
    pub fn part(&mut self, name: &str, from: Timestamp, to: Timestamp) {
        let id = |bytes: u64| bytes.to_be_bytes().to_vec();
        let (trace_id, parent_span_id, kind) = match self.spans.first() {
            Some(root) => (
                root.trace_id.clone(),
                root.span_id.clone(),
                SpanKind::Internal,
            ),
            None => {
                let random: u128 = rand::random();
                (random.to_be_bytes().to_vec(), Vec::new(), SpanKind::Server)
            }
        };
        // Derived from one clock, even if the other is set meanwhile.
        let at = |moment: Timestamp| nanoseconds(self.began.time + self.began.until(moment));
        self.spans.push(Span {
            trace_id,
            span_id: id(rand::random()),
            parent_span_id,
            name: name.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: at(from),
            end_time_unix_nano: at(to),
            ..Span::default()
        });
    }
}

/// Exports traces to a collector.
#[derive(Debug)]
pub struct Traces {
    queue: mpsc::Sender<Trace>,
    waiting: Mutex<Option<mpsc::Receiver<Trace>>>,
    target: Uri,
    client: HttpClient<Full<Bytes>>,
    metrics: Arc<Metrics>,
}

impl Traces {
    /// Builds the exporter for the collector of `config`, if any. Nothing is sent before [`Self::run`].
    ///
    /// # Errors
    /// A sentence, if the address is invalid or the system's authorities cannot be read.
    pub fn new(
        config: &config::Telemetry,
        metrics: Arc<Metrics>,
    ) -> Result<Option<Arc<Self>>, String> {
        let Some(address) = &config.otlp else {
            return Ok(None);
        };
        let wrong = |why: String| format!("telemetry.otlp = {address:?} cannot be used: {why}");
        let target: Uri = format!("{address}{PATH}")
            .parse()
            .map_err(|why: hyper::http::uri::InvalidUri| wrong(why.to_string()))?;
        // A collector without TLS is nearby: a proxy is not meant for it, and most would refuse its port.
        let (roots, proxies) = match target.scheme_str() {
            Some("https") => (Roots::System, Proxies::from_env()),
            _ => (Roots::None, Proxies::none()),
        };
        let tls = http::trusting(roots).map_err(wrong)?;
        let connector = Connector::new(tls.with_no_client_auth(), EXPORT_TIMEOUT, proxies);
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_TRACES);
        Ok(Some(Arc::new(Self {
            queue,
            waiting: Mutex::new(Some(waiting)),
            target,
            client: http::client(connector, Duration::ZERO),
            metrics,
        })))
    }

    /// Queues `trace`. Never waits: if the queue is full, the trace is dropped and counted.
    pub fn offer(&self, trace: Trace) {
        if self.queue.try_send(trace).is_err() {
            self.metrics.traces(TraceOutcome::Dropped, 1);
        }
    }

    /// Exports traces until `ending`, and the rest for a moment more. Call it once.
    pub async fn run(self: Arc<Self>, ending: CancellationToken) {
        let Some(mut waiting) = self.waiting.lock().take() else {
            return;
        };
        info!(collector = self.target.host(), "traces are sent");
        let mut complained = false;
        tokio::select! {
            () = async {
                while let Some(batch) = next_batch(&mut waiting).await {
                    self.send(batch, &mut complained).await;
                }
            } => {}
            () = ending.cancelled() => {}
        }
        waiting.close();
        let mut rest = Vec::new();
        while let Ok(trace) = waiting.try_recv() {
            rest.push(trace);
        }
        if !rest.is_empty() {
            let count = rest.len();
            let outcome = match timeout(SHUTDOWN_TIMEOUT, self.post(export(rest))).await {
                Ok(Ok(())) => TraceOutcome::Sent,
                Ok(Err(_)) | Err(_) => TraceOutcome::Failed,
            };
            self.metrics.traces(outcome, count);
        }
    }

    async fn send(&self, batch: Vec<Trace>, complained: &mut bool) {
        let count = batch.len();
        let body = export(batch);
        let mut pauses = RETRY_PAUSES.into_iter();
        let why = loop {
            let refused = match self.post(body.clone()).await {
                Ok(()) => {
                    self.metrics.traces(TraceOutcome::Sent, count);
                    if std::mem::take(complained) {
                        info!("the collector takes traces again");
                    }
                    return;
                }
                Err(refused) => refused,
            };
            match (refused.retryable, pauses.next()) {
                (true, Some(pause)) => sleep(pause).await,
                _ => break refused.why,
            }
        };
        self.metrics.traces(TraceOutcome::Failed, count);
        if !std::mem::replace(complained, true) {
            warn!(collector = self.target.host(), %why, "traces are lost, until the collector takes them");
        }
    }

    async fn post(&self, body: Bytes) -> Result<(), BatchRefused> {
        let refused = |why: String, retryable| BatchRefused { why, retryable };
        let request = Request::post(self.target.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, http::USER_AGENT)
            .body(Full::new(body))
            .map_err(|why| refused(why.to_string(), false))?;
        let status = match timeout(EXPORT_TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) => answer.status(),
            Ok(Err(why)) => return Err(refused(innermost_cause(&why), true)),
            Err(_) => {
                let why = format!("no answer within {} s", EXPORT_TIMEOUT.as_secs());
                return Err(refused(why, true));
            }
        };
        // As OTLP specifies: only these are retried.
        let retryable = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        match status.is_success() {
            true => Ok(()),
            false => Err(refused(format!("it answered {status}"), retryable)),
        }
    }
}

/// A batch was refused.
struct BatchRefused {
    why: String,
    retryable: bool,
}

/// Collects the next batch. `None`: there will be no more traces.
async fn next_batch(waiting: &mut mpsc::Receiver<Trace>) -> Option<Vec<Trace>> {
    let mut batch = vec![waiting.recv().await?];
    let until = Instant::now() + BATCH_DELAY;
    while batch.len() < MAX_BATCH_TRACES
        && let Ok(Some(trace)) = timeout_at(until, waiting.recv()).await
    {
        batch.push(trace);
    }
    Some(batch)
}

fn export(batch: Vec<Trace>) -> Bytes {
    let spans = batch.into_iter().flat_map(|trace| trace.spans).collect();
    let export = ExportTraceServiceRequest {
        resource_spans: vec![of_this_process(spans)],
    };
    export.encode_to_vec().into()
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
