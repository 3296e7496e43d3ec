//! The place of a recording in a session: between what is said and the file, or nowhere.

use std::sync::Arc;

use super::{CaptureError, CaptureWriter, Direction};

/// What is said in a session goes through this to its recording, if it has one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CaptureTee(Option<Arc<CaptureWriter>>);

impl CaptureTee {
    /// Leads to `writer`; `None`: the session is not recorded.
    pub fn new(writer: Option<CaptureWriter>) -> Self {
        Self(writer.map(Arc::new))
    }

    /// The session is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Name of the file, for the audit log.
    pub fn name(&self) -> Option<String> {
        self.0.as_deref().map(CaptureWriter::name)
    }

    /// Takes what the client sent, before it is done, or what it is about to see, after the message filter. Never waits.
    ///
    /// # Errors
    /// [`CaptureError`]: what the client sent must not be done, and the session ends by [`Self::failed`].
    pub fn take(&self, direction: Direction, bytes: &[u8]) -> Result<(), CaptureError> {
        match &self.0 {
            Some(writer) if !bytes.is_empty() => writer.frame(direction, bytes),
            _ => Ok(()),
        }
    }

    /// Resolves when the session has to end because it cannot be recorded. Cancel safe.
    pub async fn failed(&self) -> CaptureError {
        match &self.0 {
            // In a box: few sessions are recorded, and all of them wait here.
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
