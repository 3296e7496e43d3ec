//! The fate of a session's task: whether it has ended after a resume, and whether the next stop is in another.

use std::pin::Pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::pause_clock::PauseClock;
use super::registry::CurrentTask;
use ray_relay_base::timestamp::Timestamp;

/// Pauses between queries: the first, and the longest. Each is half as long again as the one before.
const QUERY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Time from a first answer "ended" to its confirmation: Ray's workers and owners report once a second each.
const CONFIRM_AFTER: Duration = Duration::from_millis(1500);

/// Time from a stop to the query for its task, and to a second query, when the reports of both tasks are there. While
/// stepping neither is sent.
const IDENTIFY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

/// Watches the task of one session, and queries the head only while the program runs, or has just stopped.
pub struct TaskEnd {
    /// `None`: it is not known.
    task: Option<CurrentTask>,
    pause: Duration,
    ask_at: Option<Instant>,
    asking: Option<TaskEndQuery>,
    answered_once: bool,
    /// Whether it was resumed since the session began.
    ran: bool,
    /// The last stop, while its task is not known.
    stopped: Option<Timestamp>,
    /// Notified of resumes and stops.
    clock: Option<PauseClock>,
}

/// A query in flight. The lock is never taken: it makes the session that owns this `Sync`.
type TaskEndQuery = Mutex<Pin<Box<dyn Future<Output = (CurrentTask, TaskEndAnswer)> + Send>>>;

/// A response.
enum TaskEndAnswer {
    /// Whether the task has ended.
    Ended(bool),
    /// Whether the stop is in another task, if that is certain.
    Stopped(bool),
}

impl TaskEnd {
    /// For a session with `task`.
    pub fn new(task: Option<CurrentTask>) -> Self {
        Self {
            task,
            pause: QUERY_PAUSES.0,
            ask_at: None,
            asking: None,
            answered_once: false,
            ran: false,
            stopped: None,
            clock: None,
        }
    }

    /// Notifies `clock` of resumes and stops, too.
    pub fn telling(mut self, clock: Option<PauseClock>) -> Self {
        self.clock = clock;
        self
    }

    /// Records that the program was resumed.
    pub fn resumed(&mut self) {
        if let Some(clock) = &self.clock {
            clock.resumed();
        }
        self.forget();
        self.ran = true;
        self.pause = QUERY_PAUSES.0;
        self.ask_at = Some(Instant::now() + self.pause);
    }

    /// Records that the program has stopped: in its task, or in another one.
    pub fn stopped(&mut self) {
        if let Some(clock) = &self.clock {
            clock.stopped();
        }
        self.forget();
        if self.ran {
            self.stopped = Some(Timestamp::now());
            self.ask_at = Some(Instant::now() + IDENTIFY_AFTER.0);
        }
    }

    fn forget(&mut self) {
        self.ask_at = None;
        self.asking = None;
        self.answered_once = false;
        self.stopped = None;
    }

    /// Resolves when the task has ended, once for each [`Self::resumed`]. Must be polled while the program is stopped
    /// as well, to update the task in the list. Cancel safe.
    pub async fn ended(&mut self) {
        loop {
            if let Some(asking) = &mut self.asking {
                let asking = asking.get_mut();
                let (task, answer) = asking.await;
                self.asking = None;
                match answer {
                    TaskEndAnswer::Ended(true) if self.answered_once => {
                        task.over();
                        self.task = Some(task);
                        return;
                    }
                    TaskEndAnswer::Ended(ended) => {
                        self.answered_once = ended;
                        let pause = if ended { CONFIRM_AFTER } else { self.pause };
                        self.pause = (self.pause * 3 / 2).min(QUERY_PAUSES.1);
                        self.ask_at = Some(Instant::now() + pause);
                    }
                    TaskEndAnswer::Stopped(known) => {
                        let again = !known && !std::mem::replace(&mut self.answered_once, true);
                        self.ask_at = again.then(|| Instant::now() + IDENTIFY_AFTER.1);
                    }
                }
                self.task = Some(task);
            }
            let (Some(at), Some(task)) = (self.ask_at, &self.task) else {
                return std::future::pending().await;
            };
            // Boxed: a session with a paused program has nothing to query.
            Box::pin(sleep_until(at)).await;
            self.ask_at = None;
            let (mut task, stopped) = (task.clone(), self.stopped);
            self.asking = Some(Mutex::new(Box::pin(async move {
                let answer = match stopped {
                    None => TaskEndAnswer::Ended(task.has_ended().await),
                    // The report of an ended task may be missing: "the same" is queried once more.
                    Some(at) => {
                        TaskEndAnswer::Stopped(task.stopped_in_another(at).await == Some(true))
                    }
                };
                (task, answer)
            })));
        }
    }
}
