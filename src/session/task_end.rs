//! When a task that a session let run has ended.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::registry::CurrentTask;

/// Pauses between questions: the first, and the longest. Each is half as long again as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// After an answer that says so, until the one that settles it: Ray's workers and owners report once a second each.
const CONFIRM: Duration = Duration::from_millis(1500);

/// Watches the task of one session, and asks the head only while the program runs.
pub struct TaskEnd {
    /// `None`: nobody can say.
    task: Option<CurrentTask>,
    pause: Duration,
    ask_at: Option<Instant>,
    asking: Option<Asking>,
    said_once: bool,
}

/// A question that is out. The lock is never taken: it makes the session that owns this `Sync`.
type Asking = Mutex<Pin<Box<dyn Future<Output = (CurrentTask, bool)> + Send>>>;

impl TaskEnd {
    /// Of a session with `task`.
    pub fn new(task: Option<CurrentTask>) -> Self {
        Self {
            task,
            pause: PAUSES.0,
            ask_at: None,
            asking: None,
            said_once: false,
        }
    }

    /// The program was let run.
    pub fn resumed(&mut self) {
        self.stopped();
        self.pause = PAUSES.0;
        self.ask_at = Some(Instant::now() + self.pause);
    }

    /// The program has stopped: its task is there.
    pub fn stopped(&mut self) {
        self.ask_at = None;
        self.asking = None;
        self.said_once = false;
    }

    /// Resolves when the task has ended, once for each [`Self::resumed`]. Cancel safe.
    pub async fn ended(&mut self) {
        loop {
            if let Some(asking) = &mut self.asking {
                let asking = asking.get_mut().unwrap_or_else(PoisonError::into_inner);
                let (task, ended) = asking.await;
                self.asking = None;
                self.task = Some(task);
                if ended && self.said_once {
                    return;
                }
                self.said_once = ended;
                let pause = if ended { CONFIRM } else { self.pause };
                self.pause = (self.pause * 3 / 2).min(PAUSES.1);
                self.ask_at = Some(Instant::now() + pause);
            }
            let (Some(at), Some(task)) = (self.ask_at, &self.task) else {
                return std::future::pending().await;
            };
            sleep_until(at).await;
            self.ask_at = None;
            let mut task = task.clone();
            self.asking = Some(Mutex::new(Box::pin(async move {
                let ended = task.has_ended().await;
                (task, ended)
            })));
        }
    }
}
