//! A session of a terminal that is recorded: the tee between what is said and [`crate::recording`].
//!
//! What was typed is taken before it is done, and what is shown as the client sees it, after masking.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::recording::{Direction, Recorder, Unrecorded};

/// Where it goes, if anywhere. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Tape(Option<Arc<Reel>>);

#[derive(Debug)]
struct Reel {
    /// `None` once it is finished.
    recorder: Mutex<Option<Recorder>>,
    failed: watch::Sender<Option<Unrecorded>>,
}

impl Tape {
    /// Of a session that `recorder` is for; `None`: of one that is not recorded.
    pub(super) fn new(recorder: Option<Recorder>) -> Self {
        Self(recorder.map(|recorder| {
            Arc::new(Reel {
                recorder: Mutex::new(Some(recorder)),
                failed: watch::Sender::new(None),
            })
        }))
    }

    /// Name of the file.
    pub(super) fn name(&self) -> Option<String> {
        let reel = self.0.as_ref()?;
        let recorder = reel.recorder.lock();
        recorder.as_ref().map(Recorder::name)
    }

    /// Takes what was said. Never waits.
    ///
    /// # Errors
    /// [`Unrecorded`]: it must not be done, and the session ends by [`Self::failed`].
    pub(super) fn take(&self, direction: Direction, bytes: &[u8]) -> Result<(), Unrecorded> {
        let Some(reel) = &self.0 else { return Ok(()) };
        let mut recorder = reel.recorder.lock();
        match recorder.as_mut() {
            Some(recorder) if !bytes.is_empty() => {
                recorder.frame(direction, bytes).inspect_err(|why| {
                    reel.failed.send_replace(Some(why.clone()));
                })
            }
            _ => Ok(()),
        }
    }

    /// Resolves when something could not be recorded. Cancel safe.
    pub(super) async fn failed(&self) -> Unrecorded {
        let Some(reel) = &self.0 else {
            return std::future::pending().await;
        };
        let mut failed = reel.failed.subscribe();
        let why = failed
            .wait_for(Option::is_some)
            .await
            .map(|why| why.clone());
        match why {
            Ok(Some(why)) => why,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Writes the last line, and waits until everything is on the disk, for a bounded time.
    pub(super) async fn finish(&self, how: &str) {
        let Some(reel) = &self.0 else { return };
        let recorder = {
            let mut recorder = reel.recorder.lock();
            recorder.take()
        };
        if let Some(recorder) = recorder {
            recorder.finish(how).await;
        }
    }
}
