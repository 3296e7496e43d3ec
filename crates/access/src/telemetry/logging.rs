//! Logs on standard error: text for people, JSON for collectors.
//!
//! Set up once, by `ray-relay serve`, before anything runs. Colours only on a terminal, and not where `NO_COLOR` is
//! set.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

use ray_relay_base::config::{Log, LogFormat};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter is invalid.
    #[error("log.level is not a filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Logging was set up twice in this process.
    #[error("logging is set up already: {0}")]
    Twice(tracing_subscriber::util::TryInitError),
}

/// rustls warns about input that any client may send, at any rate; the relay logs and counts failed handshakes
/// itself. kube logs each failed request, in addition to the relay's own line. `log.level` can override both.
const DEFAULT_FILTER: &str = "rustls=error,kube=off,kube_client=off";

/// Sends the logs of this process to standard error.
///
/// # Errors
/// [`LoggingError`].
pub fn init(log: &Log) -> Result<(), LoggingError> {
    let filter: Targets = format!("{DEFAULT_FILTER},{}", log.level).parse()?;
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(colours(io::stderr().is_terminal())).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            // The list of all spans ends with it.
            .with_current_span(false)
            .boxed(),
    };
    let subscriber = registry().with(filter).with(lines);
    subscriber.try_init().map_err(LoggingError::Twice)
}

/// Whether to colour the output to a stream that is a terminal or not (<https://no-color.org>).
pub fn colours(is_terminal: bool) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !refused && !dumb
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn kube_logs_are_filtered_and_relay_logs_are_not() {
        let filter: Targets = format!("{DEFAULT_FILTER},info").parse().unwrap();
        let is_enabled = |target: &str| filter.would_enable(target, &Level::ERROR);
        assert!(!is_enabled("kube_client::client::builder"));
        assert!(is_enabled("ray_relay::discovery::watch"));
    }
}
