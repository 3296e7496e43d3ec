//! Jobs that were seen to hang. The first verdict on each is kept, also after the job's end: later ones may describe what
//! the end of one task does to the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Running, WorkKind};
use ray_relay_view::listing::fold::verdict::Verdict;

/// Jobs that are kept, and for how long since they were last seen to hang: a weekend.
const MAX_JOBS: usize = 64;
const KEEP_FOR: Duration = Duration::from_secs(72 * 3600);

/// A job that hangs again within this time after it went on is not news.
const NEWS_AFTER: Duration = Duration::from_secs(5 * 60);

/// Jobs that a slow reader may miss.
const MAX_QUEUED_JOBS: usize = 64;

/// A running job, with the verdict on it.
#[derive(Debug, Clone)]
pub struct JudgedJob {
    pub cluster: Arc<str>,
    /// Ray's job id, such as `01000000`.
    pub job_id: String,
    /// All that runs of it. Never empty.
    pub tasks: Vec<Running>,
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
    news: broadcast::Sender<Arc<JudgedJob>>,
}

#[derive(Debug)]
struct Hang {
    job: Arc<JudgedJob>,
    /// When it was last seen to hang.
    last: Timestamp,
    /// Whether it was seen to move since.
    went_on: bool,
}

impl Default for Hangs {
    fn default() -> Self {
        Self {
            jobs: Mutex::default(),
            news: broadcast::Sender::new(MAX_QUEUED_JOBS),
        }
    }
}

impl JudgedJob {
    /// Returns its submission id.
    pub fn submission_id(&self) -> Option<&str> {
        let mut names = self.tasks.iter().map(|task| &task.names);
        names.find_map(|names| names.submission_id.as_deref())
    }

    /// The workers that run its tasks, without drivers.
    fn workers(&self) -> BTreeSet<&str> {
        let tasks = self.tasks.iter();
        let tasks = tasks.filter(|task| task.what != WorkKind::Driver);
        tasks.map(|task| &*task.worker_id).collect()
    }

    fn has_all_of(&self, before: &Self) -> bool {
        self.workers().is_superset(&before.workers())
    }

    fn has_some_of(&self, before: &Self) -> bool {
        !self.workers().is_disjoint(&before.workers())
    }
}

impl Hangs {
    /// Returns the jobs that are seen to hang from now on, each once until it goes on.
    pub fn news(&self) -> broadcast::Receiver<Arc<JudgedJob>> {
        self.news.subscribe()
    }

    /// Takes in the verdict on a running job.
    pub fn judged(&self, job: JudgedJob) {
        let key = (Arc::clone(&job.cluster), job.job_id.clone());
        let mut jobs = self.jobs.lock();
        jobs.retain(|_, hang| hang.last.until(job.at) < KEEP_FOR);
        let known = jobs.get_mut(&key);
        if !job.verdict.hangs() {
            // What is left of a job that is being ended moves too.
            if let Some(hang) =
                known.filter(|hang| job.verdict.moves() && job.has_all_of(&hang.job))
            {
                hang.went_on = true;
            }
            return;
        }
        let is_news = match known {
            Some(hang) if !hang.went_on && job.has_some_of(&hang.job) => {
                hang.last = job.at;
                return;
            }
            Some(hang) => !hang.went_on || hang.last.until(job.at) >= NEWS_AFTER,
            None => true,
        };
        let job = Arc::new(job);
        let hang = Hang {
            job: Arc::clone(&job),
            last: job.at,
            went_on: false,
        };
        jobs.insert(key, hang);
        if jobs.len() > MAX_JOBS {
            let oldest = jobs.iter().min_by_key(|(_, hang)| hang.last);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| jobs.remove(&key));
        }
        drop(jobs);
        if is_news {
            // There may be no receiver.
            let _ = self.news.send(job);
        }
    }

    /// Returns the job called `name` that was last seen to hang, if `may` holds for all of its tasks.
    pub fn of_job(&self, name: &str, may: impl Fn(&Running) -> bool) -> Option<HungJob> {
        let jobs = self.jobs.lock();
        let is_it = |hang: &&Hang| {
            let tasks = &hang.job.tasks;
            !hang.went_on
                && tasks.iter().any(|task| task.names.is_of_job(name))
                && tasks.iter().all(&may)
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

    fn task(worker: &str, what: WorkKind) -> Running {
        let mut task = running("train", worker);
        task.what = what;
        task.names.job_id = Some("01000000".to_owned());
        task.names.submission_id = Some("raysubmit_a".to_owned());
        task
    }

    fn verdict(kind: &str, summary: &str) -> Verdict {
        serde_json::from_value(
            json!({"verdict": kind, "confidence": "likely", "summary": summary, "culprits": [],
            "evidence": [], "waiting": [], "differences": [], "next": []}),
        )
        .unwrap()
    }

    struct Judge {
        hangs: Hangs,
        news: broadcast::Receiver<Arc<JudgedJob>>,
        begun: Timestamp,
    }

    impl Judge {
        fn new() -> Self {
            let hangs = Hangs::default();
            Self {
                news: hangs.news(),
                hangs,
                begun: Timestamp::now(),
            }
        }

        /// Takes in a verdict. Returns whether it is news.
        fn judge(&mut self, seconds: u64, kind: &str, summary: &str, workers: &[&str]) -> bool {
            let mut tasks = vec![task("driver", WorkKind::Driver)];
            tasks.extend(workers.iter().map(|worker| task(worker, WorkKind::Method)));
            self.hangs.judged(JudgedJob {
                cluster: "default".into(),
                job_id: "01000000".to_owned(),
                tasks,
                verdict: verdict(kind, summary),
                at: self.begun.after(Duration::from_secs(seconds)),
            });
            self.news.try_recv().is_ok()
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
        assert!(!judge.judge(60, "healthy", "the driver moves", &[]));
        assert_eq!(judge.kept().as_deref(), Some("rank 1 sleeps"));
        let last = judge.hangs.of_job("01000000", |_| true).unwrap().last;
        assert_eq!(last, judge.begun.after(Duration::from_secs(40)).time);
    }

    #[test]
    fn job_that_went_on_is_not_kept_and_is_news_again_only_later() {
        let mut judge = Judge::new();
        assert!(judge.judge(0, "hangs", "one", &["a"]));
        assert!((1..60).all(|check| !judge.judge(check * 20, "hangs", "one", &["a"])));
        assert!(!judge.judge(1200, "unknown", "?", &["a"]));
        assert!(judge.kept().is_some());
        assert!(!judge.judge(1220, "healthy", "fine", &["a", "b"]));
        assert_eq!(judge.kept(), None);
        assert!(!judge.judge(1240, "hangs", "two", &["a"]));
        assert_eq!(judge.kept().as_deref(), Some("two"));
        assert!(!judge.judge(1260, "slow", "moves", &["a"]));
        assert!(judge.judge(1600, "hangs", "three", &["a"]));
        // Its workers were replaced: another hang.
        assert!(judge.judge(1620, "hangs", "four", &["c"]));
        assert_eq!(judge.kept().as_deref(), Some("four"));
        assert!(!judge.judge(1600 + 80 * 3600, "unknown", "?", &["c"]));
        assert_eq!(judge.kept(), None);
    }

    #[test]
    fn kept_verdict_needs_the_permission_on_every_task() {
        let mut judge = Judge::new();
        judge.judge(0, "hangs", "one", &["a", "b"]);
        let may = |hidden: &'static str| move |task: &Running| task.worker_id != hidden;
        assert!(judge.hangs.of_job("01000000", may("b")).is_none());
        assert!(judge.hangs.of_job("01000000", may("c")).is_some());
        assert!(judge.hangs.of_job("raysubmit_b", may("c")).is_none());
    }

    #[test]
    fn kept_jobs_are_bounded() {
        let hangs = Hangs::default();
        let begun = Timestamp::now();
        for number in 0..MAX_JOBS + 3 {
            let mut one = task("a", WorkKind::Method);
            one.names.job_id = Some(format!("{number:08}"));
            hangs.judged(JudgedJob {
                cluster: "default".into(),
                job_id: format!("{number:08}"),
                tasks: vec![one],
                verdict: verdict("hangs", "one"),
                at: begun.after(Duration::from_secs(number as u64)),
            });
        }
        assert_eq!(hangs.jobs.lock().len(), MAX_JOBS);
        assert!(hangs.of_job("00000002", |_| true).is_none());
        assert!(hangs.of_job("00000003", |_| true).is_some());
    }
}
