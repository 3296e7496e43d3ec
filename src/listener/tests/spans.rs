//! Tests that log lines about a connection identify it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::*;
use ray_relay_access::telemetry::testing::log_to;

/// A log line with its text, its values and the fields of its spans.
#[derive(Debug, Clone)]
struct Line {
    text: String,
    values: BTreeMap<String, String>,
    spans: BTreeSet<String>,
}

/// Stores every log line of the modules that serve connections.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

/// Modules of any crate whose events concern a connection.
const CONNECTION_MODULES: [&str; 7] = [
    "listener",
    "connection",
    "http",
    "lineproto",
    "session",
    "upstream",
    "release",
];

#[derive(Default)]
struct Fields {
    names: BTreeSet<String>,
    values: BTreeMap<String, String>,
    text: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.names.insert(field.name().to_owned());
        let text = format!("{value:?}").trim_matches('"').to_owned();
        self.values.insert(field.name().to_owned(), text);
        if field.name() == "message" {
            self.text = format!("{value:?}");
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).unwrap();
        span.extensions_mut().insert(fields.names);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        let span = context.span(id).unwrap();
        if let Some(names) = span.extensions_mut().get_mut::<BTreeSet<String>>() {
            names.extend(fields.names);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let module = event.metadata().target();
        let mut path = module.split("::");
        let is_about_a_connection = match path.next() {
            Some("ray_relay_dap") => true,
            Some(name) if name.starts_with("ray_relay") => path
                .next()
                .is_some_and(|module_name| CONNECTION_MODULES.contains(&module_name)),
            _ => false,
        };
        if !is_about_a_connection {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut spans = BTreeSet::new();
        for span in context.event_scope(event).into_iter().flatten() {
            spans.extend(span.extensions().get::<BTreeSet<String>>().unwrap().clone());
        }
        self.0.lock().push(Line {
            text: fields.text,
            values: fields.values,
            spans,
        });
    }
}

impl Lines {
    /// Waits for the first line that begins with `text`.
    async fn wait_for(&self, text: &str) -> Line {
        let found = async {
            loop {
                let found = self
                    .0
                    .lock()
                    .iter()
                    .find(|l| l.text.starts_with(text))
                    .cloned();
                match found {
                    Some(line) => return line,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let failure = || format!("no {text:?} in {:#?}", self.0.lock());
        let line = timeout(TEST_TIMEOUT, found).await;
        line.unwrap_or_else(|_| panic!("{}", failure()))
    }
}

#[tokio::test]
async fn connection_log_lines_name_peer_and_user() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.clone());
    let _guard = log_to(subscriber);
    let relay = Relay::start(optional).await;

    // The worker is unreachable: the refusal comes after the relay knows the user and the task.
    let mut unreachable = paused("square", 1);
    (unreachable.node_ip, unreachable.port) = (std::net::Ipv4Addr::LOCALHOST.into(), 1);
    relay.running.registry().insert(unreachable);
    let (mut client, _) = initialized(relay.plain().await).await;
    let attach = request(8, "attach", &json!({}));
    client.send(&attach).await.unwrap();
    let refusal = read(&mut client).await;
    assert_eq!(refusal["success"], false, "{refusal}");
    drop(client);
    let connection_fields = ["peer", "request", "session", "principal"].as_slice();
    let session_fields = ["peer", "request", "session", "principal", "breakpoint"].as_slice();
    for (text, expected) in [
        ("session attaches", session_fields),
        ("worker not reached", session_fields),
        ("connection ended", connection_fields),
    ] {
        let line = lines.wait_for(text).await;
        for field in expected {
            assert!(line.spans.contains(*field), "{field}: {line:?}");
        }
    }

    // The last line summarises the connection and repeats the client's message.
    let summary = lines.wait_for("connection ended").await.values;
    let sentence = refusal["message"].as_str().unwrap();
    let id = format!(" (request {})", summary["request"]);
    let sentence = sentence.strip_suffix(&id).unwrap();
    // The log truncates long messages.
    let reason = summary["reason"].trim_end_matches('…');
    assert!(sentence.starts_with(reason), "{summary:?}");
    for (field, value) in [
        ("protocol", "dap"),
        ("client", "test"),
        ("editor", "other"),
        ("cluster", "default"),
        ("task", "square"),
        ("outcome", "refused"),
    ] {
        assert_eq!(summary[field], value, "{field}: {summary:?}");
    }
    for field in [
        "breakpoint",
        "seconds",
        "recognised_seconds",
        "authenticated_seconds",
    ] {
        assert!(summary.contains_key(field), "{field}: {summary:?}");
    }
    assert!(!summary.contains_key("attached_seconds"), "{summary:?}");

    let page = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    exchange(&mut relay.plain().await, page).await;
    let line = lines.wait_for("dashboard request failed").await;
    assert!(line.spans.contains("principal"), "{line:?}");

    let foreign = b"GET / HTTP/1.1\r\nhost: elsewhere.example\r\nconnection: close\r\n\r\n";
    let answer = exchange(&mut relay.plain().await, foreign).await;
    lines.wait_for("request refused").await;
    let (_, id) = answer.split_once("x-request-id: ").unwrap();
    let id = id.lines().next().unwrap();
    assert_has(&answer, &format!("\"request\":\"{id}\""));
    let is_request = |line: &Line| line.text == "request failed" && line.values["request"] == id;
    assert!(lines.0.lock().iter().any(is_request), "{id}");
    exchange(&mut relay.plain().await, b"\x16\x03\x01\x00\x05hello").await;
    lines.wait_for("TLS handshake failed").await;

    let without: Vec<_> = lines
        .0
        .lock()
        .iter()
        .filter(|l| !l.spans.contains("peer"))
        .cloned()
        .collect();
    assert!(without.is_empty(), "{without:#?}");
}
