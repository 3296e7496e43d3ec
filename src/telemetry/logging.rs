//! Logs on standard error: text for people, JSON for collectors.
//!
//! Set up once, by `ray-relay serve`, before anything runs. Colours only on a terminal, and not
//! where `NO_COLOR` is set.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::{Log, LogFormat};

/// Why no logging could be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter was not checked by the configuration.
    #[error("log.level is not a filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Logging was set up a second time in this process.
    #[error("logging is set up already: {0}")]
    Twice(Box<dyn std::error::Error + Send + Sync>),
}

/// rustls warns of what any client may send, as often as it likes; whatever ends a handshake is in the relay's own logs
/// and metrics. `log.level` can say otherwise.
const BY_DEFAULT: &str = "rustls=error";

/// Sends the logs of this process to standard error.
///
/// # Errors
/// [`LoggingError`].
pub fn init(log: &Log) -> Result<(), LoggingError> {
    let builder = fmt()
        .with_env_filter(EnvFilter::try_new(format!("{BY_DEFAULT},{}", log.level))?)
        .with_writer(io::stderr);
    match log.format {
        LogFormat::Text => builder
            .with_ansi(colours(io::stderr().is_terminal()))
            .try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            // The list of them all has it as its last.
            .with_current_span(false)
            .try_init(),
    }
    .map_err(LoggingError::Twice)
}

/// Whether to colour what goes to a stream that is a terminal or not (<https://no-color.org>).
pub fn colours(is_terminal: bool) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !refused && !dumb
}
