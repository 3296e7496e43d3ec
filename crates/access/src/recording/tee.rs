//! Passes the messages of a session to its recording, if it has one.

use std::sync::Arc;

use super::{CaptureError, CaptureWriter, Direction};

/// Passes the messages of a session to its recording, if it has one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CaptureTee(Option<Arc<CaptureWriter>>);

impl CaptureTee {
    /// Passes messages to `writer`. `None`: the session is not recorded.
    pub fn new(writer: Option<CaptureWriter>) -> Self {
        Self(writer.map(Arc::new))
    }

    /// Whether the session is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the name of the file, for the audit log.
    pub fn name(&self) -> Option<String> {
        self.0.as_deref().map(CaptureWriter::name)
    }

    /// Records a message of the client before it takes effect, or a message for the client after the message filter.
    /// Never waits.
    ///
    /// # Errors
    /// [`CaptureError`]: the client's message must not take effect, and the session ends through [`Self::failed`].
    pub fn take(&self, direction: Direction, bytes: &[u8]) -> Result<(), CaptureError> {
        match &self.0 {
            Some(writer) if !bytes.is_empty() => writer.frame(direction, bytes),
            _ => Ok(()),
        }
    }

    /// Resolves when the session has to end because it cannot be recorded. Cancel safe.
    pub async fn failed(&self) -> CaptureError {
        match &self.0 {
            // Boxed: few sessions are recorded, but all of them wait here.
            Some(writer) => Box::pin(writer.failed()).await,
            None => std::future::pending().await,
        }
    }

    /// Writes the last line, and waits until everything is on the disk, for two seconds at most.
    pub async fn finish(&self, how: &str) {
        if let Some(writer) = &self.0 {
            writer.finish(how).await;
        }
    }
}
