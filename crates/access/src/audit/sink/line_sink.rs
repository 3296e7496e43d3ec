//! A sink that writes lines one by one.

use std::time::Duration;

/// Writes one line at a time and is never read back. A written line has reached a pipe or a socket, no more.
pub(in crate::audit) trait LineSink: Send {
    /// Returns the sink's name in messages.
    fn name(&self) -> String;

    /// Writes `line`, which ends with its line feed.
    ///
    /// # Errors
    /// A sentence for the log: why the line may be missing.
    fn append(&mut self, line: &str) -> Result<(), String>;
}

/// The clause for the log about a line that a sink has not taken within `timeout`.
pub(in crate::audit) fn not_taken_within(timeout: Duration) -> String {
    format!("it did not take a line within {} s", timeout.as_secs())
}
