//! The submitted sample job: waits until its breakpoints are listed, and until it ends.
//!
//! Called by [`super::run`]. Invariant: breakpoints of other jobs on the cluster are not mistaken for this one's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::DemoError;
use super::job::BREAKPOINTS;
use crate::app::Running;
use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_cluster::last_lines;
use ray_relay_ray::ray::jobs::Jobs;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Snapshot};

/// Time limit for the head's first answer. A head that gives none refuses the job too.
const POLLED_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for the job's breakpoints to be listed; debugpy starts within seconds.
const LISTED_DEADLINE: Duration = Duration::from_secs(90);
/// Time limit for their names: the State API shows a task up to a second after it stopped.
const NAMED_DEADLINE: Duration = Duration::from_secs(5);
/// Poll interval of the job's output.
const OUTPUT_POLL_INTERVAL: Duration = Duration::from_millis(700);
/// Number of output lines shown of a job that failed.
const LAST_LINES: usize = 15;

/// One stop of one worker.
type StopId = (BreakpointId, u64);

/// The stops before a job is submitted. Waits for the relay's first poll.
pub(super) async fn stops_before(relay: &Running) -> HashSet<StopId> {
    let mut snapshots = relay.registry().watch();
    let polled = snapshots.wait_for(|snapshot| {
        let mut clusters = snapshot.clusters.iter();
        clusters.all(|c| c.polled.is_some() || c.trouble.is_some())
    });
    let _ = tokio::time::timeout(POLLED_DEADLINE, polled).await;
    let snapshot = relay.registry().snapshot();
    snapshot.live.iter().map(|b| (b.id, b.stop)).collect()
}

/// Waits a little for the names of tasks already at a breakpoint.
pub(super) async fn named(relay: &Running) {
    let mut snapshots = relay.registry().watch();
    let named = snapshots.wait_for(|snapshot| snapshot.live.iter().all(|b| b.names.name.is_some()));
    let _ = tokio::time::timeout(NAMED_DEADLINE, named).await;
}

/// A job that was submitted.
pub(super) struct Submitted {
    jobs: Jobs,
    /// Submission id of the job.
    id: String,
    before: HashSet<StopId>,
    /// Ray's own id for it, once its driver runs.
    job_id: Option<String>,
    /// All stops since, as last seen; some may have resumed since.
    stops: HashMap<StopId, Arc<Breakpoint>>,
}

impl Submitted {
    /// Creates the job. `id` is the submission id, `before` the result of [`stops_before`].
    pub(super) fn new(jobs: Jobs, id: String, before: HashSet<StopId>) -> Self {
        Self {
            jobs,
            id,
            before,
            job_id: None,
            stops: HashMap::new(),
        }
    }

    /// Waits until the relay lists the job's breakpoints, and a little longer for their names.
    pub(super) async fn wait_listed(
        &mut self,
        relay: &Running,
        progress: &PreparationClock,
    ) -> Result<(), DemoError> {
        let mut step = progress.step("the sample job runs until its breakpoints");
        let mut snapshots = relay.registry().watch();
        let mut reported = 0;
        let mut complete = None;
        loop {
            let job = self.jobs.job(&self.id).await;
            if let Ok(Some(job)) = &job {
                self.job_id.clone_from(&job.job_id);
            }
            self.observe(&snapshots.borrow_and_update());
            let (count, named) = self.count();
            if count > reported {
                reported = count;
                step.note(format_args!("{count} of {BREAKPOINTS} listed"));
            }
            if count >= BREAKPOINTS {
                let since = *complete.get_or_insert_with(Instant::now);
                if named || since.elapsed() > NAMED_DEADLINE {
                    step.done("the job waits at its breakpoints");
                    return Ok(());
                }
            }
            let what = match job {
                Ok(Some(job)) if job.ended() => Some(format!(
                    "the sample job ended ({}) before its breakpoints: {}",
                    job.status, job.message
                )),
                _ if step.elapsed() > LISTED_DEADLINE => Some(format!(
                    "only {count} of {BREAKPOINTS} breakpoints after {} s; is debugpy 1.8 or newer installed on the nodes?",
                    LISTED_DEADLINE.as_secs()
                )),
                _ => None,
            };
            if let Some(what) = what {
                let output = self.jobs.output(&self.id).await.unwrap_or_default();
                let output = last_lines(&output, LAST_LINES);
                return Err(DemoError::NoBreakpoints { what, output });
            }
            let seconds = step.elapsed().as_secs();
            step.pulse(|| format!("{count} of {BREAKPOINTS} after {seconds} s"));
            let _ = tokio::time::timeout(Duration::from_millis(500), snapshots.changed()).await;
        }
    }

    /// Includes live breakpoints that are not paused: an editor may hold them the moment they are listed.
    fn observe(&mut self, snapshot: &Snapshot) {
        for breakpoint in &snapshot.live {
            let stop = (breakpoint.id, breakpoint.stop);
            if !self.before.contains(&stop) {
                self.stops.insert(stop, breakpoint.clone());
            }
        }
    }

    /// Number of this job's breakpoints, and whether all of them have names.
    fn count(&self) -> (usize, bool) {
        let mine = || self.stops.values().filter(|b| self.is_mine(b));
        (mine().count(), mine().all(|b| b.names.name.is_some()))
    }

    /// Whether a breakpoint belongs to this job. One with an unknown job counts.
    fn is_mine(&self, breakpoint: &Breakpoint) -> bool {
        let names = &breakpoint.names;
        match (&names.submission_id, &names.job_id, &self.job_id) {
            (Some(submission), _, _) => *submission == self.id,
            (None, Some(its), Some(own)) => its == own,
            _ => true,
        }
    }

    /// Resolves when the job has ended. Prints its output as it arrives if `shows_log`, and the end of it if the job
    /// failed.
    pub(super) async fn follow(&self, shows_log: bool, progress: &PreparationClock) {
        let mut printed = 0;
        loop {
            // State first, so that output before the end is never missed.
            let state = self.jobs.job(&self.id).await;
            if shows_log && let Ok(output) = self.jobs.output(&self.id).await {
                let whole = output.rfind('\n').map_or(0, |end| end + 1);
                say_output(output.get(printed..whole).unwrap_or_default(), progress);
                printed = printed.max(whole);
            }
            if let Ok(Some(state)) = state
                && state.ended()
            {
                if !shows_log && state.status != "SUCCEEDED" {
                    let output = self.jobs.output(&self.id).await.unwrap_or_default();
                    say_output(&last_lines(&output, LAST_LINES), progress);
                }
                progress.say(format_args!(
                    "the job has ended: {}",
                    state.status.to_lowercase()
                ));
                return;
            }
            tokio::time::sleep(OUTPUT_POLL_INTERVAL).await;
        }
    }
}

fn say_output(output: &str, progress: &PreparationClock) {
    for line in output.lines() {
        progress.say(format_args!("job | {}", without_colours(line)));
    }
}

/// Strips Ray's colours, because this may not be a terminal.
fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // The escape sequence ends with its first letter.
        let end = piece.find(|c: char| c.is_ascii_alphabetic());
        plain += end.map_or("", |end| &piece[end + 1..]);
    }
    plain
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_ray::ray::testing::paused;

    #[test]
    fn breakpoints_of_other_jobs_do_not_count() {
        let breakpoint = |n, stop, job: Option<&str>, submission: Option<&str>| {
            let mut breakpoint = paused("square", n);
            breakpoint.stop = stop;
            breakpoint.names_mut().job_id = job.map(str::to_owned);
            breakpoint.names_mut().submission_id = submission.map(str::to_owned);
            Arc::new(breakpoint)
        };
        let existing = breakpoint(1, 1, None, None);
        let before = HashSet::from([(existing.id, 1)]);
        let jobs = Jobs::new("http://127.0.0.1:1", None, false).unwrap();
        let mut submitted = Submitted::new(jobs, "raysubmit_1".to_owned(), before);
        submitted.job_id = Some("02000000".to_owned());
        let live = vec![
            existing,
            breakpoint(1, 2, Some("02000000"), None),
            breakpoint(2, 1, Some("03000000"), None),
            breakpoint(3, 1, Some("03000000"), Some("raysubmit_2")),
            breakpoint(4, 1, None, Some("raysubmit_1")),
            breakpoint(5, 1, None, None),
        ];
        submitted.observe(&Snapshot {
            live: live.into_iter().collect(),
            ..Snapshot::default()
        });
        assert_eq!(submitted.count().0, 3);
        // One task has resumed, and the last belongs to another job.
        let live = vec![breakpoint(5, 1, Some("03000000"), None)];
        submitted.observe(&Snapshot {
            live: live.into_iter().collect(),
            ..Snapshot::default()
        });
        assert_eq!(submitted.count().0, 2);
    }

    #[test]
    fn colours_are_stripped() {
        let line = "\x1b[36m(task pid=1)\x1b[0m done \x1b[1m\x1b[32mwell\x1b[22m";
        assert_eq!(without_colours(line), "(task pid=1) done well");
        assert_eq!(without_colours("plain [36m"), "plain [36m");
    }
}
