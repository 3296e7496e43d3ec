//! A sink that takes lines one by one.

/// Takes one line at a time and is never read back. A line that it took is in a pipe or a socket, no more.
pub(in crate::audit) trait LineSink: Send {
    /// What messages call the sink.
    fn name(&self) -> String;

    /// Writes `line`, which ends with its line feed.
    ///
    /// # Errors
    /// A sentence for the log: why the line may not be there.
    fn append(&mut self, line: &str) -> Result<(), String>;
}
