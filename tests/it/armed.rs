//! Lines that are armed in a running job whose code says no `breakpoint()`. What stops, where, and that nothing stays armed is
//! read from the job itself.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::driver::Driver;
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST_MONITORED, job, write_hook};
use crate::support::scene::Scene;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// How long lines may stay armed behind the end of their lease.
const DISARM_TIMEOUT: Duration = Duration::from_secs(5);

/// A job of four ranks that count their steps.
struct Training {
    folder: tempfile::TempDir,
    driver: Driver,
    job_id: String,
    /// The line of `armed_train.py` that counts a step.
    line: u32,
}

impl Training {
    fn start(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("job");
        let reports = folder.path().join("reports");
        std::fs::create_dir(&sources).unwrap();
        std::fs::create_dir(&reports).unwrap();
        write_hook(&sources);
        let source = std::fs::read_to_string(job("armed_train.py")).unwrap();
        std::fs::write(sources.join("armed_train.py"), &source).unwrap();
        let at = source.lines().position(|line| line.ends_with("# step"));
        let env = [
            ("JOB_DIR", sources.to_str().unwrap()),
            ("REPORTS", reports.to_str().unwrap()),
        ];
        let mut driver = cluster.start_driver("armed.py", &env);
        let job_id = driver.line("JOB ");
        let training = Self {
            folder,
            driver,
            job_id,
            line: u32::try_from(at.unwrap()).unwrap() + 1,
        };
        eventually("the ranks train", Duration::from_secs(240), || {
            training.all(|report| report["steps"].as_u64() > Some(0))
        });
        training
    }

    /// The report of the rank; `None`: there is none yet.
    fn report(&self, rank: usize) -> Option<Value> {
        let path = self.folder.path().join(format!("reports/{rank}.json"));
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    fn steps(&self, rank: usize) -> u64 {
        self.report(rank).unwrap()["steps"].as_u64().unwrap()
    }

    fn all(&self, is_it: impl Fn(&Value) -> bool) -> Option<()> {
        (0..4)
            .all(|rank| self.report(rank).is_some_and(|report| is_it(&report)))
            .then_some(())
    }

    fn is_armed_everywhere(&self) {
        eventually("armed in all", MAX_WAIT, || {
            self.all(|report| report["armed"] == true)
        });
    }

    fn is_armed_nowhere(&self) {
        eventually("disarmed in all", DISARM_TIMEOUT, || {
            self.all(|report| report["armed"] == false)
        });
    }

    /// Waits until these ranks alone make steps.
    fn only_run(&self, running: &[usize]) {
        let before: Vec<u64> = (0..4).map(|rank| self.steps(rank)).collect();
        eventually("steps", MAX_WAIT, || {
            running
                .iter()
                .all(|rank| self.steps(*rank) > before[*rank] + 5)
                .then_some(())
        });
        for rank in (0..4).filter(|rank| !running.contains(rank)) {
            assert_eq!(self.steps(rank), before[rank], "rank {rank} runs");
        }
    }

    fn place(&self) -> String {
        format!("armed_train.py:{}", self.line)
    }

    fn end(mut self) {
        std::fs::write(self.folder.path().join("reports/end"), "").unwrap();
        assert_eq!(self.driver.result(), json!(4));
    }
}

/// A command that arms a line until it is ended.
struct Arming {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Arming {
    fn start(scene: &Scene<'_>, args: &[&str]) -> Self {
        let mut command = scene.command(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn end(mut self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Arming {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(scene: &Scene<'_>, args: &[&str]) -> String {
    let output = scene.command(args).output().unwrap();
    let text = [&*output.stdout, &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

/// The rank that the condition names stops on the line, before it runs; the others train on.
fn break_stops_the_rank_of_its_condition(scene: &Scene<'_>, training: &Training) {
    let (place, condition) = (training.place(), "rank == 2 and STEPS[0] % 7 == 0");
    let args = [
        "break",
        &place,
        "--job",
        &training.job_id,
        "--if",
        condition,
    ];
    let mut arming = Arming::start(scene, &args);
    let stop = arming.line();
    let begin = format!("rank 2 stopped at {place}; debug it with `ray-relay debug ");
    let id = stop.strip_prefix(&*begin).unwrap();
    let id = id.strip_suffix('`').unwrap();
    training.only_run(&[0, 1, 3]);
    let steps = training.steps(2);
    scene.wait_listed(1);
    let text = run(
        scene,
        &[
            "exec",
            "--continue",
            id,
            "--",
            "where",
            "p STEPS[0] % 7, STEPS[0], rank",
        ],
    );
    assert!(
        text.contains(&format!("armed_train.py({})train()", training.line)),
        "{text}"
    );
    assert!(text.contains(&format!("(0, {steps}, 2)")), "{text}");
    // `--continue` resumes it: it stops again seven steps later.
    assert_eq!(arming.line(), stop);
    let sessions = run(scene, &["sessions"]);
    let row = format!("{place} in {}, 2 hits", training.job_id);
    assert!(sessions.contains(&row), "{sessions}");
    arming.end(Signal::INT);
    training.is_armed_nowhere();
    training.only_run(&[0, 1, 3]);
    // The worker reports its stop before the head is asked again.
    scene.wait_listed(1);
    run(scene, &["release", id]);
    training.only_run(&[0, 1, 2, 3]);
}

/// Messages of all ranks, in which nothing stops; a killed command leaves nothing armed.
fn trace_prints_from_all_ranks(scene: &Scene<'_>, training: &Training) {
    let args = [
        "trace",
        &training.place(),
        "{rank} {loss:.2f}",
        "--job",
        &training.job_id,
    ];
    let mut arming = Arming::start(scene, &args);
    let mut seen = [false; 4];
    while seen != [true; 4] {
        let line = arming.line();
        let rank: usize = line.strip_prefix("rank ").unwrap()[..1].parse().unwrap();
        // Planted in the job: 1 / (rank + 1).
        let loss = ["1.00", "0.50", "0.33", "0.25"][rank];
        assert_eq!(line, format!("rank {rank}  {rank} {loss}"));
        seen[rank] = true;
    }
    training.only_run(&[0, 1, 2, 3]);
    arming.end(Signal::KILL);
    training.is_armed_nowhere();
}

async fn session(scene: &Scene<'_>, folder: &Path, selector: Value) -> DapClient {
    let mut editor = scene.connect(Editor::VsCode).await;
    let folder = folder.to_str().unwrap();
    let arguments = scene.arguments(Editor::VsCode, folder, selector);
    editor.start(arguments, None).await;
    editor
}

/// A breakpoint in the gutter stops the rank of its condition, which opens as a session on that line. At the end of the session
/// nothing is armed.
async fn editor_stops_a_rank_on_its_breakpoint(scene: &Scene<'_>, training: &Training) {
    let folder = training.folder.path().join("job");
    let file = folder.join("armed_train.py");
    let set = |breakpoint: Value| json!({"source": {"path": file.to_str().unwrap()}, "breakpoints": [breakpoint]});
    // Without the name of a job nothing is armed.
    let mut nameless = session(scene, &folder, json!({"all": true})).await;
    let answer = nameless
        .call("setBreakpoints", set(json!({"line": training.line})))
        .await;
    assert_eq!(answer["breakpoints"][0]["verified"], false, "{answer}");

    let selector = json!({"all": true, "job": training.job_id});
    let mut editor = session(scene, &folder, selector).await;
    let condition = json!({"line": training.line, "condition": "ray.rank == 1"});
    editor.call("setBreakpoints", set(condition)).await;
    let child = editor.child().await;
    assert!(child["name"].as_str().unwrap().contains('1'), "{child:?}");
    training.only_run(&[0, 2, 3]);
    let mut task = scene.connect(Editor::VsCode).await;
    task.start(child, None).await;
    let (thread, _) = task.stopped().await;
    let frames = task.frames(thread).await;
    let top = &frames[0];
    assert_eq!((&*top.name, top.line), ("train", training.line));
    assert_eq!(top.path, file.to_str().unwrap());
    assert_eq!(task.evaluate(top.id, "rank").await, "1");

    // A log message in its place: the task resumes, and all ranks print to the console of the parent.
    let log = json!({"line": training.line, "logMessage": "{rank} of 4"});
    editor.call("setBreakpoints", set(log)).await;
    task.resume(thread).await;
    for rank in 0..4 {
        editor
            .output_with(&format!("rank {rank}  {rank} of 4\n"))
            .await;
    }
    training.only_run(&[0, 1, 2, 3]);
    training.is_armed_everywhere();
    task.disconnect().await;
    editor.disconnect().await;
    training.is_armed_nowhere();
    training.only_run(&[0, 1, 2, 3]);
    nameless.disconnect().await;
}

#[tokio::test]
async fn lines_of_a_running_job_stop_and_print_and_nothing_stays_armed() {
    let Some(cluster) = Cluster::up(NEWEST_MONITORED, 1, &[]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("relay.toml");
    std::fs::write(&config, "[dap]\nallow_attach = true\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.to_str().unwrap()]);
    let nodes = ["head", "w1"];
    let agents = nodes.map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
    linked(&scene, nodes.len());
    let training = Training::start(&cluster);
    training.is_armed_nowhere();
    break_stops_the_rank_of_its_condition(&scene, &training);
    trace_prints_from_all_ranks(&scene, &training);
    editor_stops_a_rank_on_its_breakpoint(&scene, &training).await;

    // The end of the agents, which no session survives.
    let args = [
        "trace",
        &training.place(),
        "{rank}",
        "--job",
        &training.job_id,
    ];
    let mut arming = Arming::start(&scene, &args);
    arming.line();
    training.is_armed_everywhere();
    drop(agents);
    training.is_armed_nowhere();
    // A new one arms the line again.
    let agents = nodes.map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
    training.is_armed_everywhere();
    drop(agents);
    training.is_armed_nowhere();
    arming.end(Signal::KILL);
    training.end();
}
