//! Whom `ray-relay why` names in jobs of four ranks with a planted fault. Each verdict is compared with the plant, and
//! no earlier one may name another rank.

mod notices;
mod torch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::notices::{Notice, Webhook};
use crate::page;
use crate::support::agent::{Agent, linked};
use crate::support::driver::Driver;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, write_hook};
use crate::support::relay::PORT;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// Deadline for a verdict: 30 s in which nothing moves, beside the workers of other jobs that start.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(120);

/// A fault of `tests/jobs/why/faults.py`, and the right verdict on it.
struct Planted {
    fault: &'static str,
    verdict: &'static str,
    /// The culprits, by rank or name; empty: there is none.
    culprits: &'static [&'static str],
    /// Words that the verdict's text has to contain.
    words: &'static [&'static str],
}

const fn planted(
    fault: &'static str,
    verdict: &'static str,
    culprits: &'static [&'static str],
    words: &'static [&'static str],
) -> Planted {
    Planted {
        fault,
        verdict,
        culprits,
        words,
    }
}

/// Faults whose ranks use no processor time.
const WAITING: [Planted; 12] = [
    planted(
        "sleep",
        "hangs",
        &["rank 2"],
        &["sleeps in sleeps (", "barrier ("],
    ),
    planted(
        "swallow",
        "hangs",
        &["rank 2"],
        &["Trainer.train returned", "barrier ("],
    ),
    planted(
        "dead-child",
        "hangs",
        &["rank 2"],
        &["loads_from_dead_child (", "has ended"],
    ),
    planted(
        "hung-child",
        "hangs",
        &["rank 2"],
        &["waits_for_hung_child (", "child"],
    ),
    planted(
        "locks",
        "hangs",
        &["rank 2"],
        &["self.first", "self.second"],
    ),
    planted(
        "peer",
        "hangs",
        &["rank 2"],
        &["receives_from_silent_peer (", "socket.recv"],
    ),
    planted(
        "unplaced",
        "hangs",
        &["never_placed"],
        &["never_placed", "rank 2"],
    ),
    planted(
        "future",
        "hangs",
        &["rank 2"],
        &["waits_for_future.<locals>.waits (", "asyncio"],
    ),
    planted(
        "dead",
        "hangs",
        &["rank 2"],
        &[
            "has died",
            "crashed, ended itself or was killed",
            "barrier (",
        ],
    ),
    planted("stop", "hangs", &["rank 2"], &["is stopped by a signal"]),
    planted(
        "crash",
        "hangs",
        &["rank 2"],
        &[
            "crashed (Segmentation fault) in crashes (",
            "Its log: the last line",
        ],
    ),
    planted("cycle", "hangs", &["cycle-a", "cycle-b"], &["ray.get"]),
];

/// Values of one rank that differ while the job runs.
const DIFFERING: [Planted; 7] = [
    planted("nan", "differs", &["rank 2"], &["self.loss", "nan"]),
    planted(
        "lr",
        "differs",
        &["rank 2"],
        &["self.model.optimizer.groups[0]['lr']", "0.01"],
    ),
    planted(
        "key",
        "differs",
        &["rank 2"],
        &["self.model.config", "seed"],
    ),
    planted("shape", "differs", &["rank 2"], &["self.model.rows"]),
    planted(
        "dtype",
        "differs",
        &["rank 2"],
        &["self.model.weights", "dtype=<f2"],
    ),
    planted(
        "version",
        "differs",
        &["rank 2"],
        &["a_library.__version__", "2.0.3"],
    ),
    planted("shard", "differs", &["rank 2"], &["len(self.shard)", "600"]),
];

/// Faults, or none, that use a core.
const COMPUTING: [Planted; 2] = [
    planted("slow", "slow", &["rank 2"], &["computes (", "barrier ("]),
    planted(
        "gil",
        "hangs",
        &["rank 2"],
        &["holds_the_gil (", "barrier ("],
    ),
];

/// A job with a planted fault.
struct FaultyJob<'a> {
    planted: &'a Planted,
    _driver: Driver,
    id: String,
    /// When the step with the fault began.
    since: Instant,
}

/// A program of `tests/jobs` that plants faults.
struct Program<'a> {
    file: &'a str,
    /// Further variables of its environment.
    env: &'a [(&'a str, &'a str)],
}

const WITHOUT_TORCH: Program<'_> = Program {
    file: "why/faults.py",
    env: &[],
};

fn started<'a>(
    cluster: &Cluster,
    program: &Program<'_>,
    hook: &str,
    all: &'a [Planted],
) -> Vec<FaultyJob<'a>> {
    let start = |planted: &'a Planted| {
        let env = [("HOOK_DIR", hook), ("FAULT", planted.fault)];
        (
            planted,
            cluster.start_driver(program.file, &[&env[..], program.env].concat()),
        )
    };
    let drivers: Vec<_> = all.iter().map(start).collect();
    let jobs = drivers.into_iter().map(|(planted, mut driver)| {
        let id = driver.line("JOB");
        FaultyJob {
            planted,
            _driver: driver,
            id,
            since: Instant::now(),
        }
    });
    jobs.collect()
}

fn why(scene: &Scene<'_>, job: &str) -> (Value, Duration) {
    let began = Instant::now();
    let output = scene
        .command(&["why", "--job", job, "--json"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    (
        serde_json::from_slice(&output.stdout).unwrap(),
        began.elapsed(),
    )
}

fn culprits(verdict: &Value) -> Vec<String> {
    let key = if verdict["verdict"] == "differs" {
        "differences"
    } else {
        "culprits"
    };
    let culprits = verdict[key].as_array().unwrap().iter();
    let name = |one: &Value| {
        let [group, tasks] = ["group", "tasks"].map(|key| one[key].as_str().unwrap_or_default());
        format!("{group} {tasks}")
    };
    culprits.map(name).collect()
}

/// Asks again and again until the verdict is the planted one. No verdict may blame another task.
fn verify(scene: &Scene<'_>, job: &FaultyJob<'_>) {
    let FaultyJob { planted, id, .. } = job;
    let is_planted = |name: &String| planted.culprits.iter().any(|one| name.contains(one));
    let mut last = Value::Null;
    let what = format!("the verdict on {}", planted.fault);
    let (verdict, took) = eventually(&what, VERDICT_TIMEOUT, || {
        let (verdict, took) = why(scene, id);
        let named = culprits(&verdict);
        let is_blamed = verdict["verdict"] == "hangs" || verdict["verdict"] == "differs";
        assert!(
            !is_blamed || named.iter().all(is_planted),
            "{}: {verdict:#}",
            planted.fault
        );
        if verdict["summary"] != last["summary"] {
            say(format!(
                "{}: {} {}",
                planted.fault, verdict["verdict"], verdict["summary"]
            ));
            last = verdict.clone();
        }
        (verdict["verdict"] == planted.verdict && !named.is_empty()).then_some((verdict, took))
    });
    let text = scene.command(&["why", "--job", id]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    say(format!("{} after {took:?}:\n{text}", planted.fault));
    for word in planted.words {
        assert!(
            text.contains(word),
            "{}: {word} is not in {text}",
            planted.fault
        );
    }
    assert!(
        took < Duration::from_secs(10),
        "{}: {took:?}",
        planted.fault
    );
    assert!(!culprits(&verdict).is_empty());
}

/// A folder with the hook, for the workers of a job.
fn hook_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_hook(dir.path());
    dir
}

/// Configures notices of jobs that hang to `webhook`, with links to the relay that the client sees.
fn config_of(dir: &Path, webhook: &Webhook, cluster: &Cluster) -> PathBuf {
    let (config, url_file) = (dir.join("relay.toml"), dir.join("webhook.url"));
    std::fs::write(&url_file, &webhook.url).unwrap();
    let link = format!("http://{}:{PORT}", cluster.relay_at(PORT).1);
    let text = format!("[notice]\nurl_file = {url_file:?}\non = [\"hangs\"]\nlink = {link:?}\n");
    std::fs::write(&config, text).unwrap();
    config
}

/// Waits for the notice of each of `jobs` that hangs. It names whom the planted fault is in.
fn verify_notices(webhook: &Webhook, jobs: &[FaultyJob<'_>], received: &mut Vec<Notice>) {
    // That a task waits for a node is no news.
    let is_news =
        |job: &&FaultyJob<'_>| job.planted.verdict == "hangs" && job.planted.fault != "unplaced";
    for job in jobs.iter().filter(is_news) {
        let what = format!("the notice of {}", job.planted.fault);
        eventually(&what, VERDICT_TIMEOUT, || {
            received.extend(webhook.received());
            received
                .iter()
                .any(|notice| notice.job() == job.id)
                .then_some(())
        });
    }
    for notice in received.iter() {
        let Some(job) = jobs.iter().find(|job| job.id == notice.job()) else {
            continue;
        };
        let (planted, text) = (job.planted, notice.body["text"].as_str().unwrap());
        let named = culprits(&notice.body["verdict"]);
        let is_planted = |name: &String| planted.culprits.iter().any(|one| name.contains(one));
        assert!(!named.is_empty() && named.iter().all(is_planted), "{text}");
        say(format!(
            "{} s after {}: {text}",
            (notice.at - job.since).as_secs(),
            planted.fault
        ));
    }
}

/// Ends `jobs`. The verdicts on those that hung are kept.
fn verify_kept(scene: &Scene<'_>, jobs: Vec<FaultyJob<'_>>) {
    let ended: Vec<_> = jobs
        .iter()
        .map(|job| (job.planted, job.id.clone()))
        .collect();
    drop(jobs);
    for (planted, id) in ended
        .iter()
        .filter(|(planted, _)| planted.verdict == "hangs")
    {
        let what = format!("the end of {}", planted.fault);
        let verdict = eventually(&what, VERDICT_TIMEOUT, || {
            let (verdict, _) = why(scene, id);
            verdict["kept"]["first"].is_number().then_some(verdict)
        });
        let named = culprits(&verdict);
        let is_planted = |name: &String| planted.culprits.iter().any(|one| name.contains(one));
        assert!(
            !named.is_empty() && named.iter().all(is_planted),
            "{verdict:#}"
        );
    }
    let (planted, id) = &ended[0];
    let text = scene.command(&["why", "--job", id]).output().unwrap();
    say(format!(
        "{} after its end: {}",
        planted.fault,
        String::from_utf8_lossy(&text.stdout)
    ));
}

#[tokio::test]
async fn culprit_of_each_planted_fault_is_named() {
    let Some(cluster) = Cluster::up(NEWEST, 1, &[]) else {
        return;
    };
    let dir = hook_dir();
    let hook = dir.path().to_str().unwrap();
    let webhook = Webhook::beside_relay(&cluster);
    let config = config_of(dir.path(), &webhook, &cluster);
    let scene = Scene::with(&cluster, &["--config", config.to_str().unwrap()]);
    let _agents = ["head", "w1"].map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
    linked(&scene, 2);
    let mut notices = Vec::new();
    for some in [
        &WAITING[..5],
        &WAITING[5..8],
        &WAITING[8..],
        &DIFFERING,
        &COMPUTING[..1],
        &COMPUTING[1..],
    ] {
        let jobs = started(&cluster, &WITHOUT_TORCH, hook, some);
        for job in &jobs {
            verify(&scene, job);
        }
        verify_notices(&webhook, &jobs, &mut notices);
        if let Some(sleeping) = jobs.iter().find(|job| job.planted.fault == "sleep") {
            let mut notices = notices.iter();
            let notice = notices.find(|notice| notice.job() == sleeping.id).unwrap();
            page::browsed(
                &cluster,
                "why_page.py",
                notice.body["link"].as_str().unwrap(),
            );
        }
        verify_kept(&scene, jobs);
    }
    let before = notices.len();
    pauses_are_not_blamed(&scene, hook, 8);
    notices.extend(webhook.received());
    let all: Vec<&str> = notices.iter().map(Notice::job).collect();
    let jobs: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!((all.len(), before), (jobs.len(), jobs.len()), "{all:?}");
}

/// Asks `times` about healthy jobs: none of them is said to hang.
fn pauses_are_not_blamed(scene: &Scene<'_>, hook: &str, times: usize) {
    let healthy = ["none", "checkpoints", "evaluates", "compiles", "straggles"];
    let healthy = healthy.map(|pause| planted(pause, "healthy", &[], &[]));
    let jobs = started(scene.cluster, &WITHOUT_TORCH, hook, &healthy);
    for _ in 0..times {
        for job in &jobs {
            let (verdict, _) = why(scene, &job.id);
            let kind = verdict["verdict"].as_str().unwrap();
            assert!(
                ["healthy", "slow", "unknown"].contains(&kind),
                "{verdict:#}"
            );
            assert!(
                kind == "slow" || culprits(&verdict).is_empty(),
                "{verdict:#}"
            );
        }
    }
}

#[tokio::test]
#[ignore = "takes half an hour: by hand"]
async fn hundred_healthy_jobs_are_not_blamed() {
    let Some(cluster) = Cluster::up(NEWEST, 1, &[]) else {
        return;
    };
    let dir = hook_dir();
    let scene = Scene::new(&cluster);
    let _agents = ["head", "w1"].map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
    linked(&scene, 2);
    for round in 1..=20 {
        pauses_are_not_blamed(&scene, dir.path().to_str().unwrap(), 20);
        say(format!("{} healthy jobs were not blamed", 5 * round));
    }
}
