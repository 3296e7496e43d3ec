//! Jobs that were seen to hang. The first verdict on each is kept, also after the job's end: later ones may describe what
//! the end of one task does to the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Names, Running, WorkKind};
use ray_relay_view::listing::fold::verdict::Verdict;

/// Jobs that are kept, and for how long since they were last seen to hang: a weekend.
const MAX_JOBS: usize = 64;
const KEEP_FOR: Duration = Duration::from_secs(72 * 3600);

/// A job that was not seen to hang for this long hangs anew.
const ANEW_AFTER: Duration = Duration::from_secs(5 * 60);

/// Jobs that a slow reader may miss.
const MAX_QUEUED_JOBS: usize = 64;

/// A running job, with the verdict on it.
#[derive(Debug, Clone)]
pub struct JudgedJob {
    /// Ray's job id, such as `01000000`.
    pub job_id: String,
    /// The job as a whole.
    pub whole: Running,
    /// The workers that run its tasks.
    workers: BTreeSet<String>,
    /// Its drivers: another job may get its id once the head has forgotten it.
    drivers: BTreeSet<String>,
    pub verdict: Verdict,
    /// When it was inspected.
    pub at: Timestamp,
}

/// A job that was seen to hang, and when last.
#[derive(Debug, Clone)]
pub struct HungJob {
    /// As it was seen first.
    pub job: Arc<JudgedJob>,
    pub last: SystemTime,
}

/// The jobs that were seen to hang.
#[derive(Debug)]
pub struct Hangs {
    jobs: Mutex<BTreeMap<(Arc<str>, String), Hang>>,
    new_hangs: broadcast::Sender<Arc<JudgedJob>>,
}

#[derive(Debug)]
struct Hang {
    job: Arc<JudgedJob>,
    /// When it was last seen to hang.
    last: Timestamp,
    /// Whether it was seen healthy since.
    resumed: bool,
}

impl Default for Hangs {
    fn default() -> Self {
        Self {
            jobs: Mutex::default(),
            new_hangs: broadcast::Sender::new(MAX_QUEUED_JOBS),
        }
    }
}

impl JudgedJob {
    /// Creates the job `job_id` of `tasks`, which run and were inspected `at`. `None`: nothing runs.
    pub fn new(job_id: String, tasks: &[Running], verdict: Verdict, at: Timestamp) -> Option<Self> {
        let first = tasks.first()?;
        let mut submission_ids = tasks.iter().map(|task| &task.names.submission_id);
        let names = Names {
            job_id: Some(job_id.clone()),
            submission_id: submission_ids.find_map(Clone::clone),
            train_run: first.names.train_run.clone(),
            submitter: first.names.submitter.clone(),
            namespace: first.names.namespace.clone(),
            ..Names::default()
        };
        let whole = Running::whole_job(Arc::clone(&first.cluster), names);
        let (drivers, workers): (Vec<&Running>, Vec<&Running>) =
            tasks.iter().partition(|task| task.what == WorkKind::Driver);
        let ids = |tasks: Vec<&Running>| tasks.iter().map(|task| task.worker_id.clone()).collect();
        Some(Self {
            job_id,
            whole,
            workers: ids(workers),
            drivers: ids(drivers),
            verdict,
            at,
        })
    }

    /// Returns its submission id.
    pub fn submission_id(&self) -> Option<&str> {
        self.whole.names.submission_id.as_deref()
    }

    /// Whether it is another job with the id of `before`.
    fn is_another_than(&self, before: &Self) -> bool {
        let (now, then) = (&self.drivers, &before.drivers);
        !now.is_empty() && !then.is_empty() && now.is_disjoint(then)
    }

    /// Whether it goes on after `before`: with all of its workers, or with others. What is left of a job that is being
    /// ended moves too.
    fn resumes(&self, before: &Self) -> bool {
        self.verdict.is_healthy()
            && !self.workers.is_empty()
            && (self.workers.is_superset(&before.workers)
                || !self.workers.is_subset(&before.workers))
    }

    /// Whether it is the hang of `before`: with some of its workers, or with none left.
    fn continues(&self, before: &Self) -> bool {
        self.workers.is_empty() || !self.workers.is_disjoint(&before.workers)
    }
}

impl Hangs {
    /// Returns the jobs that are seen to hang from now on, each once until it resumes.
    pub fn new_hangs(&self) -> broadcast::Receiver<Arc<JudgedJob>> {
        self.new_hangs.subscribe()
    }

    /// Processes the verdict on a running job.
    pub fn judged(&self, job: JudgedJob) {
        let key = (Arc::clone(&job.whole.cluster), job.job_id.clone());
        let mut jobs = self.jobs.lock();
        jobs.retain(|_, hang| hang.last.until(job.at) < KEEP_FOR);
        if jobs
            .get(&key)
            .is_some_and(|hang| job.is_another_than(&hang.job))
        {
            jobs.remove(&key);
        }
        let known = jobs.get_mut(&key);
        if !job.verdict.hangs() {
            if let Some(hang) = known.filter(|hang| job.resumes(&hang.job)) {
                hang.resumed = true;
            }
            return;
        }
        let is_new = match known {
            None => true,
            Some(hang) => {
                let is_recent = hang.last.until(job.at) < ANEW_AFTER;
                if is_recent && !hang.resumed && job.continues(&hang.job) {
                    hang.last = job.at;
                    return;
                }
                !(is_recent && hang.resumed)
            }
        };
        let job = Arc::new(job);
        let hang = Hang {
            job: Arc::clone(&job),
            last: job.at,
            resumed: false,
        };
        jobs.insert(key, hang);
        if jobs.len() > MAX_JOBS {
            let oldest = jobs.iter().min_by_key(|(_, hang)| hang.last);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| jobs.remove(&key));
        }
        drop(jobs);
        if is_new {
            // There may be no receiver.
            let _ = self.new_hangs.send(job);
        }
    }

    /// Returns the job called `name` that was last seen to hang, of those where `may` holds for the whole job.
    pub fn of_job(&self, name: &str, may: impl Fn(&Running) -> bool) -> Option<HungJob> {
        let (jobs, now) = (self.jobs.lock(), Timestamp::now());
        let is_it = |hang: &&Hang| {
            let whole = &hang.job.whole;
            let is_kept = !hang.resumed && hang.last.until(now) < KEEP_FOR;
            is_kept && whole.names.is_of_job(name) && may(whole)
        };
        let hang = jobs.values().filter(is_it).max_by_key(|hang| hang.last)?;
        Some(HungJob {
            job: Arc::clone(&hang.job),
            last: hang.last.time,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_ray::ray::testing::running;
    use serde_json::json;

    fn verdict(kind: &str, summary: &str) -> Verdict {
        serde_json::from_value(
            json!({"verdict": kind, "confidence": "likely", "summary": summary, "culprits": [],
            "evidence": [], "waiting": [], "differences": [], "next": []}),
        )
        .unwrap()
    }

    struct Judge {
        hangs: Hangs,
        new_hangs: broadcast::Receiver<Arc<JudgedJob>>,
        begun: Timestamp,
        driver: &'static str,
    }

    impl Judge {
        fn new() -> Self {
            let hangs = Hangs::default();
            Self {
                new_hangs: hangs.new_hangs(),
                hangs,
                begun: Timestamp::now(),
                driver: "driver",
            }
        }

        /// Processes a verdict. Returns whether the job hangs anew.
        fn judge(&mut self, seconds: u64, kind: &str, summary: &str, workers: &[&str]) -> bool {
            let task = |worker: &str, what: WorkKind| {
                let mut task = running("train", worker);
                task.what = what;
                task.names.submission_id = Some("raysubmit_a".to_owned());
                task
            };
            let mut tasks = vec![task(self.driver, WorkKind::Driver)];
            tasks.extend(workers.iter().map(|worker| task(worker, WorkKind::Method)));
            let at = self.begun.after(Duration::from_secs(seconds));
            let id = "01000000".to_owned();
            let job = JudgedJob::new(id, &tasks, verdict(kind, summary), at);
            self.hangs.judged(job.unwrap());
            self.new_hangs.try_recv().is_ok()
        }

        fn kept(&self) -> Option<String> {
            let hung = self.hangs.of_job("raysubmit_a", |_| true)?;
            Some(hung.job.verdict.sentences().next().unwrap().to_owned())
        }
    }

    #[test]
    fn first_verdict_is_kept_while_the_job_is_torn_down() {
        let mut judge = Judge::new();
        assert!(!judge.judge(0, "healthy", "fine", &["a", "b"]));
        assert_eq!(judge.kept(), None);
        assert!(judge.judge(20, "hangs", "rank 1 sleeps", &["a", "b"]));
        assert!(!judge.judge(40, "hangs", "rank 0 has died", &["b"]));
        assert!(!judge.judge(60, "hangs", "the driver waits for a task", &[]));
        assert!(!judge.judge(80, "healthy", "the driver moves", &[]));
        assert!(!judge.judge(100, "healthy", "one is left", &["b"]));
        assert_eq!(judge.kept().as_deref(), Some("rank 1 sleeps"));
        let last = judge.hangs.of_job("01000000", |_| true).unwrap().last;
        assert_eq!(last, judge.begun.after(Duration::from_secs(60)).time);
    }

    #[test]
    fn driver_that_waits_for_a_task_hangs_once() {
        let mut judge = Judge::new();
        assert!(judge.judge(0, "hangs", "no node", &[]));
        assert!((1..60).all(|check| !judge.judge(check * 20, "hangs", "no node", &[])));
    }

    #[test]
    fn job_that_resumed_is_not_kept_and_hangs_anew_only_later() {
        let mut judge = Judge::new();
        assert!(judge.judge(0, "hangs", "one", &["a"]));
        assert!((1..60).all(|check| !judge.judge(check * 20, "hangs", "one", &["a"])));
        assert!(!judge.judge(1200, "slow", "it may still hang", &["a"]));
        assert!(judge.kept().is_some());
        assert!(!judge.judge(1220, "healthy", "fine", &["a", "b"]));
        assert_eq!(judge.kept(), None);
        assert!(!judge.judge(1240, "hangs", "two", &["a"]));
        assert_eq!(judge.kept().as_deref(), Some("two"));
        assert!(!judge.judge(1260, "healthy", "fine", &["a"]));
        assert!(judge.judge(1600, "hangs", "three", &["a"]));
        // It was not judged for long, and some of its workers were replaced.
        assert!(judge.judge(9000, "hangs", "four", &["a", "c"]));
        assert_eq!(judge.kept().as_deref(), Some("four"));
        assert!(judge.judge(9020, "hangs", "five", &["d"]));
        assert!(!judge.judge(9000 + 80 * 3600, "unknown", "?", &["d"]));
        assert_eq!(judge.kept(), None);
    }

    #[test]
    fn restarted_workers_resume_a_job() {
        let mut judge = Judge::new();
        assert!(judge.judge(0, "hangs", "one", &["controller", "a"]));
        assert!(!judge.judge(20, "healthy", "fine", &["controller", "b"]));
        assert_eq!(judge.kept(), None);
        assert!(judge.judge(7200, "hangs", "two", &["controller", "b"]));
    }

    #[test]
    fn another_job_with_the_id_is_not_taken_for_it() {
        let mut judge = Judge::new();
        assert!(judge.judge(0, "hangs", "one", &["a"]));
        judge.driver = "another";
        assert!(!judge.judge(20, "unknown", "?", &["b"]));
        assert_eq!(judge.kept(), None);
    }

    #[test]
    fn whole_job_has_no_task_that_a_rule_could_name() {
        let mut judge = Judge::new();
        judge.judge(0, "hangs", "one", &["a", "b"]);
        let is_whole = |whole: &Running| {
            let is_named = whole.names.name.is_some() || !whole.group.is_empty();
            !is_named && whole.node_ip.is_none() && whole.node_id.is_empty()
        };
        assert!(judge.hangs.of_job("01000000", is_whole).is_some());
        assert!(judge.hangs.of_job("01000000", |_| false).is_none());
        assert!(judge.hangs.of_job("raysubmit_b", |_| true).is_none());
    }

    #[test]
    fn kept_jobs_are_bounded() {
        let hangs = Hangs::default();
        let begun = Timestamp::now();
        for number in 0..MAX_JOBS + 3 {
            let at = begun.after(Duration::from_secs(number as u64));
            let (id, tasks) = (format!("{number:08}"), [running("train", "a")]);
            hangs.judged(JudgedJob::new(id, &tasks, verdict("hangs", "one"), at).unwrap());
        }
        assert_eq!(hangs.jobs.lock().len(), MAX_JOBS);
        assert!(hangs.of_job("00000002", |_| true).is_none());
        assert!(hangs.of_job("00000003", |_| true).is_some());
    }
}
