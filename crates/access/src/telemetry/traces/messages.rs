//! The fields of OTLP messages that the relay fills in.

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

/// Types of attribute values.
pub trait Value {
    /// Converts to the OTLP value.
    fn into_otlp(self) -> any_value::Value;
}

impl Value for &str {
    fn into_otlp(self) -> any_value::Value {
        self.to_owned().into_otlp()
    }
}

impl Value for String {
    fn into_otlp(self) -> any_value::Value {
        any_value::Value::StringValue(self)
    }
}

impl Value for bool {
    fn into_otlp(self) -> any_value::Value {
        any_value::Value::BoolValue(self)
    }
}

impl Value for u64 {
    fn into_otlp(self) -> any_value::Value {
        any_value::Value::IntValue(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

/// Builds one attribute.
pub(super) fn attribute(key: &str, value: impl Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(value.into_otlp()),
        }),
        ..KeyValue::default()
    }
}

/// Wraps `spans` with the attributes of this process.
pub(super) fn of_this_process(spans: Vec<Span>) -> ResourceSpans {
    let attributes = vec![
        attribute("service.name", "ray-relay"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("process.pid", u64::from(std::process::id())),
    ];
    let scope = InstrumentationScope {
        name: "ray-relay".to_owned(),
        ..InstrumentationScope::default()
    };
    ResourceSpans {
        resource: Some(Resource {
            attributes,
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            scope: Some(scope),
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    }
}
