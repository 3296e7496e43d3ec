//! Log lines about a connection say which.

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

/// One log line: its text, what it says besides, and the fields that the spans around it have.
#[derive(Debug, Clone)]
struct Line {
    text: String,
    values: BTreeMap<String, String>,
    spans: BTreeSet<String>,
}

/// Keeps every line of the rooms that serve connections.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

/// Modules whose events are about a connection, each after the name of its crate.
const ROOMS: [&str; 7] = [
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
            Some(name) if name.starts_with("ray_relay") => {
                path.next().is_some_and(|room| ROOMS.contains(&room))
            }
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
    /// The first that begins with `text`, once it is there.
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
        let seen = || format!("no {text:?} in {:#?}", self.0.lock());
        let line = timeout(TEST_TIMEOUT, found).await;
        line.unwrap_or_else(|_| panic!("{}", seen()))
    }
}

#[tokio::test]
async fn connection_log_lines_name_peer_and_user() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.clone());
    let _here = log_to(subscriber);
    let relay = Relay::start(optional).await;

    // A worker that is not there: refused, after the relay knew who asks and what for.
    let mut gone = paused("square", 1);
    (gone.node_ip, gone.port) = (std::net::Ipv4Addr::LOCALHOST.into(), 1);
    relay.running.registry().insert(gone);
    let (mut client, _) = initialized(relay.plain().await).await;
    let attach = request(8, "attach", &json!({}));
    client.send(&attach).await.unwrap();
    let refused = read(&mut client).await;
    assert_eq!(refused["success"], false, "{refused}");
    drop(client);
    let of_connection = ["peer", "request", "session", "principal"].as_slice();
    let of_session = ["peer", "request", "session", "principal", "breakpoint"].as_slice();
    for (text, known) in [
        ("session attaches", of_session),
        ("worker not reached", of_session),
        ("connection ended", of_connection),
    ] {
        let line = lines.wait_for(text).await;
        for field in known {
            assert!(line.spans.contains(*field), "{field}: {line:?}");
        }
    }

    // All that is known of it in one line, with what its client was told.
    let told = lines.wait_for("connection ended").await.values;
    let sentence = refused["message"].as_str().unwrap();
    let id = format!(" (request {})", told["request"]);
    let sentence = sentence.strip_suffix(&id).unwrap();
    // A long one is cut in the log.
    let reason = told["reason"].trim_end_matches('…');
    assert!(sentence.starts_with(reason), "{told:?}");
    for (field, value) in [
        ("protocol", "dap"),
        ("client", "test"),
        ("editor", "other"),
        ("cluster", "default"),
        ("task", "square"),
        ("outcome", "refused"),
    ] {
        assert_eq!(told[field], value, "{field}: {told:?}");
    }
    for field in [
        "breakpoint",
        "seconds",
        "recognised_seconds",
        "authenticated_seconds",
    ] {
        assert!(told.contains_key(field), "{field}: {told:?}");
    }
    assert!(!told.contains_key("attached_seconds"), "{told:?}");

    let page = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    said(&mut relay.plain().await, page).await;
    let line = lines.wait_for("dashboard request failed").await;
    assert!(line.spans.contains("principal"), "{line:?}");

    let foreign = b"GET / HTTP/1.1\r\nhost: elsewhere.example\r\nconnection: close\r\n\r\n";
    let answer = said(&mut relay.plain().await, foreign).await;
    lines.wait_for("request refused").await;
    let (_, id) = answer.split_once("x-request-id: ").unwrap();
    let id = id.lines().next().unwrap();
    assert_has(&answer, &format!("\"request\":\"{id}\""));
    let is_it = |line: &Line| line.text == "request failed" && line.values["request"] == id;
    assert!(lines.0.lock().iter().any(is_it), "{id}");
    said(&mut relay.plain().await, b"\x16\x03\x01\x00\x05hello").await;
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
