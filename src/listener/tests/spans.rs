//! Log lines about a connection say which.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::*;

/// One log line: its text, and the fields that the spans around it have.
#[derive(Debug, Clone)]
struct Line {
    text: String,
    spans: BTreeSet<String>,
}

/// Keeps every line of the rooms that serve connections.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

const ROOMS: [&str; 7] = [
    "listener", "dap", "http", "terminal", "session", "upstream", "release",
];

#[derive(Default)]
struct Fields {
    names: BTreeSet<String>,
    text: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.names.insert(field.name().to_owned());
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
        let Some(inner) = module.strip_prefix("ray_relay::") else {
            return;
        };
        if !ROOMS.contains(&inner.split(':').next().unwrap_or_default()) {
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
        let line = timeout(PATIENCE, found).await;
        line.unwrap_or_else(|_| panic!("{}", seen()))
    }
}

#[tokio::test]
async fn a_log_line_about_a_connection_says_which_and_whose_it_is() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.clone());
    // As long as there is one alone, a line that another test's thread comes to first counts as wanted by nobody.
    let _second = Dispatch::new(tracing_subscriber::registry());
    let _here = tracing::subscriber::set_default(subscriber);
    let relay = Relay::start(optional).await;

    // A worker that is not there: refused, after the relay knew who asks and what for.
    let mut gone = paused("square", 1);
    gone.port = 1;
    relay.running.registry().insert(gone);
    let (mut client, _) = initialized(relay.plain().await).await;
    let attach = request(8, "attach", &json!({}));
    client.send(&attach).await.unwrap();
    assert_eq!(read(&mut client).await["success"], false);
    drop(client);
    let of_connection = ["peer", "session", "principal"].as_slice();
    let of_session = ["peer", "session", "principal", "breakpoint"].as_slice();
    for (text, known) in [
        ("session attaches", of_session),
        ("worker not reached", of_session),
        ("session ended", of_connection),
    ] {
        let line = lines.wait_for(text).await;
        for field in known {
            assert!(line.spans.contains(*field), "{field}: {line:?}");
        }
    }

    let page = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    said(&mut relay.plain().await, page).await;
    let line = lines.wait_for("dashboard request failed").await;
    assert!(line.spans.contains("principal"), "{line:?}");

    let foreign = b"GET / HTTP/1.1\r\nhost: elsewhere.example\r\nconnection: close\r\n\r\n";
    said(&mut relay.plain().await, foreign).await;
    lines.wait_for("request refused").await;
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
