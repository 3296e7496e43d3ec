//! What becomes of the task of a session: when it has ended, after it was let run, and whether the next stop is in another.

use std::pin::Pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::registry::CurrentTask;
use super::stand_clock::StandClock;
use ray_relay_base::timestamp::Timestamp;

/// Pauses between questions: the first, and the longest. Each is half as long again as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// After an answer that says so, until the one that settles it: Ray's workers and owners report once a second each.
const CONFIRM: Duration = Duration::from_millis(1500);

/// After a stop, until it is asked in which task, and until it is asked once more, when the reports of both tasks are
/// there. Who steps on has neither asked.
const WHICH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

/// Watches the task of one session, and asks the head only while the program runs, or has just stopped.
pub struct TaskEnd {
    /// `None`: it is not known.
    task: Option<CurrentTask>,
    pause: Duration,
    ask_at: Option<Instant>,
    asking: Option<TaskEndQuery>,
    said_once: bool,
    /// Whether it was let run since the session began.
    ran: bool,
    /// The last stop, while it is not known in which task.
    stopped: Option<Timestamp>,
    /// Told as well.
    clock: Option<StandClock>,
}

/// A question that is out. The lock is never taken: it makes the session that owns this `Sync`.
type TaskEndQuery = Mutex<Pin<Box<dyn Future<Output = (CurrentTask, TaskEndAnswer)> + Send>>>;

/// What was answered.
enum TaskEndAnswer {
    /// Whether the task has ended.
    Ended(bool),
    /// Whether the stop is in another, where that is known for good.
    Stopped(bool),
}

impl TaskEnd {
    /// Of a session with `task`.
    pub fn new(task: Option<CurrentTask>) -> Self {
        Self {
            task,
            pause: PAUSES.0,
            ask_at: None,
            asking: None,
            said_once: false,
            ran: false,
            stopped: None,
            clock: None,
        }
    }

    /// The same, which has `clock` know when the program runs and stops.
    pub fn telling(mut self, clock: Option<StandClock>) -> Self {
        self.clock = clock;
        self
    }

    /// The program was let run.
    pub fn resumed(&mut self) {
        if let Some(clock) = &self.clock {
            clock.resumed();
        }
        self.forget();
        self.ran = true;
        self.pause = PAUSES.0;
        self.ask_at = Some(Instant::now() + self.pause);
    }

    /// The program has stopped: its task is there, or another one is.
    pub fn stopped(&mut self) {
        if let Some(clock) = &self.clock {
            clock.stopped();
        }
        self.forget();
        if self.ran {
            self.stopped = Some(Timestamp::now());
            self.ask_at = Some(Instant::now() + WHICH.0);
        }
    }

    fn forget(&mut self) {
        self.ask_at = None;
        self.asking = None;
        self.said_once = false;
        self.stopped = None;
    }

    /// Resolves when the task has ended, once for each [`Self::resumed`]. To be polled while the program is stopped as
    /// well: the list then learns in which task. Cancel safe.
    pub async fn ended(&mut self) {
        loop {
            if let Some(asking) = &mut self.asking {
                let asking = asking.get_mut();
                let (task, said) = asking.await;
                self.asking = None;
                match said {
                    TaskEndAnswer::Ended(true) if self.said_once => {
                        task.over();
                        self.task = Some(task);
                        return;
                    }
                    TaskEndAnswer::Ended(ended) => {
                        self.said_once = ended;
                        let pause = if ended { CONFIRM } else { self.pause };
                        self.pause = (self.pause * 3 / 2).min(PAUSES.1);
                        self.ask_at = Some(Instant::now() + pause);
                    }
                    TaskEndAnswer::Stopped(known) => {
                        let again = !known && !std::mem::replace(&mut self.said_once, true);
                        self.ask_at = again.then(|| Instant::now() + WHICH.1);
                    }
                }
                self.task = Some(task);
            }
            let (Some(at), Some(task)) = (self.ask_at, &self.task) else {
                return std::future::pending().await;
            };
            // In a box: a session whose program stands has nothing to ask.
            Box::pin(sleep_until(at)).await;
            self.ask_at = None;
            let (mut task, stopped) = (task.clone(), self.stopped);
            self.asking = Some(Mutex::new(Box::pin(async move {
                let said = match stopped {
                    None => TaskEndAnswer::Ended(task.has_ended().await),
                    // The report of a task that has ended may not be there: "the same" is asked once more.
                    Some(at) => {
                        TaskEndAnswer::Stopped(task.stopped_in_another(at).await == Some(true))
                    }
                };
                (task, said)
            })));
        }
    }
}
