//! `[telemetry]`: where the relay sends telemetry, in addition to its log and its metrics.

use crate::config::kind::{Shape, ValueKind, quoted};
use crate::config::read;

settings! {
    /// `[telemetry]`: destination of traces.
    pub struct Telemetry = "telemetry" {
        /// An OpenTelemetry collector that receives traces, by OTLP over HTTP. Absent: there are none.
        otlp: Option<String> = None, ValueKind::new(
            |value| read::plain_address(
                value,
                "the http or https address of a collector that takes OTLP over HTTP, such as \"http://127.0.0.1:4318\"",
                "/v1/traces is added to it",
            ),
            quoted,
        )
        .shaped(Shape::Address)
        .optional();
    }
}
