//! Tests armed lines: an agent, the hook and the engine in real Python processes, between a relay and a head that
//! stand in.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::stand_ins::*;
use crate::hook::tests::Hooked;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{
    Arm, ArmReport, ArmedLine, FromRelay, Hex, LineState, WorkerReport, read,
};

const STEP_TIMEOUT: Duration = Duration::from_secs(20);

const JOB: &str = "01000000";

/// A worker of the job with a thread that runs a loop. After each line that it reads it prints whether lines are armed
/// in it, once none is or 20 s have passed.
const PROGRAM: &str = r#"
import threading, time
Worker.current_job_id, Worker.current_node_id = bytes([JOB, 0, 0, 0]), bytes.fromhex("a1")
source = """import time
def train(rank):
    step = 0
    while True:
        step += 1
        time.sleep(0.01)
        done = step < 0
"""
names = {}
exec(compile(source, "/jobs/src/train.py", "exec"), names)
threading.Thread(target=names["train"], args=(3,), daemon=True).start()
hook["setup"]()
ready()
while True:
    until = time.monotonic() + 20
    is_armed = True
    while is_armed and time.monotonic() < until:
        time.sleep(0.01)
        is_armed = any(map(sys.monitoring.get_tool, range(6)))
    print("ARMED" if is_armed else "DISARMED", flush=True)
    sys.stdin.readline()
"#;

fn worker(job: u8, env: &[(&str, &str)]) -> Option<Hooked> {
    Hooked::monitored(&PROGRAM.replace("JOB", &job.to_string()), env)
}

struct Scene {
    agent: AgentWithProc,
    relay: Relay,
    link: Socket,
}

impl Scene {
    async fn new(hooked: &Hooked) -> Self {
        let head = head(Vec::new(), vec![node(NODE, "127.0.0.1")]).await;
        let relay = Relay::start(7).await;
        let agent = agent(head, &[&relay]);
        agent.proc.session(&hooked.folder());
        agent.proc.worker(hooked.pid());
        let (link, announce) = relay.link().await;
        assert!(announce.arms);
        Self { agent, relay, link }
    }

    /// Arms the line with a log message, and returns the reports.
    async fn arm(&mut self, log: &str) -> Reports {
        let line = ArmedLine {
            id: 4,
            file: "src/train.py".into(),
            or_file: None,
            line: 7,
            condition: Some("step > 0".into()),
            log: Some(log.into()),
            hit: None,
            once: false,
            counter: None,
            ranks: None,
        };
        let request = Arm {
            stream: Hex([1; 8]),
            secret: Hex([2; 16]),
            node_id: "a1".into(),
            job_id: JOB.into(),
            lines: vec![line],
        };
        send(&mut self.link, &FromRelay::Arm(request)).await;
        let (stream, first) = self.relay.stream().await;
        assert_eq!(first, r#"{"type":"dialled"}"#);
        Reports(BufReader::new(stream).lines())
    }
}

struct Reports(Lines<BufReader<ByteStream<TcpStream>>>);

impl Reports {
    async fn next(&mut self) -> ArmReport {
        let line = timeout(STEP_TIMEOUT, self.0.next_line()).await;
        let line = line.unwrap().unwrap().unwrap();
        read(&line).unwrap()
    }

    /// Returns the first report that `is_it` accepts.
    async fn until(&mut self, is_it: impl Fn(&WorkerReport) -> bool) -> ArmReport {
        loop {
            let report = self.next().await;
            if is_it(&report.report) {
                return report;
            }
        }
    }

    async fn close(self) {
        let mut stream = self.0.into_inner().into_inner();
        stream.shutdown().await.unwrap();
    }
}

fn is_hit(report: &WorkerReport) -> bool {
    matches!(report, WorkerReport::Hit { .. })
}

#[tokio::test]
async fn messages_come_until_the_stream_closes_and_nothing_stays_armed() {
    let Some(mut hooked) = worker(1, &[("RANK", "3")]) else {
        return;
    };
    let mut scene = Scene::new(&hooked).await;
    let mut reports = scene.arm("{step}").await;
    let status = reports.next().await;
    assert_eq!((status.pid, &*status.worker_id), (hooked.pid(), "beef"));
    let WorkerReport::Status { lines } = status.report else {
        panic!("{status:?}");
    };
    assert_eq!(
        (lines[0].id, lines[0].state, &*lines[0].at),
        (4, LineState::Armed, &[7][..])
    );
    let mut steps = Vec::new();
    while steps.len() < 5 {
        let hit = reports.until(is_hit).await.report;
        let WorkerReport::Hit {
            id: 4,
            rank: Some(3),
            text,
            ..
        } = hit
        else {
            panic!("{hit:?}");
        };
        steps.push(text.parse::<u32>().unwrap());
    }
    assert!(steps.is_sorted_by(|a, b| a + 1 == *b), "{steps:?}");
    let marker = hooked.folder().join("ray-relay-node-a1/armed");
    assert!(marker.exists());
    reports.close().await;
    assert_eq!(hooked.resume(), "DISARMED");
    while marker.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn lines_are_disarmed_when_the_agent_ends() {
    let Some(mut hooked) = worker(1, &[]) else {
        return;
    };
    let mut scene = Scene::new(&hooked).await;
    let mut reports = scene.arm("{step}").await;
    reports.until(is_hit).await;
    scene.agent.ending.cancel();
    assert_eq!(hooked.resume(), "DISARMED");
}

#[tokio::test]
async fn worker_that_starts_later_is_armed() {
    let (Some(first), Some(second)) = (worker(1, &[]), worker(1, &[])) else {
        return;
    };
    let mut scene = Scene::new(&first).await;
    let mut reports = scene.arm("{step}").await;
    reports.until(is_hit).await;
    // The second worker's socket moves into the session of the first.
    scene.agent.proc.worker(second.pid());
    let name = format!("ray-relay-{}", second.pid());
    std::fs::rename(second.folder().join(&name), first.folder().join(&name)).unwrap();
    let of_second = |report: &ArmReport| report.pid == second.pid() && is_hit(&report.report);
    while !of_second(&reports.next().await) {}
    drop(second);
    let gone = reports.until(|report| *report == WorkerReport::Gone).await;
    assert_ne!(gone.pid, first.pid());
}

/// Waits before the hook begins, which then has a socket for a while before it listens.
const LATE_SETUP: &str = r#"ready()
import socket
listen = socket.socket.listen
def listens_late(self, *args):
    time.sleep(0.6)
    listen(self, *args)
socket.socket.listen = listens_late
hook["setup"]()"#;

#[tokio::test]
async fn worker_that_listens_late_is_armed() {
    let program = PROGRAM.replace("JOB", "1");
    let program = program.replace("hook[\"setup\"]()", LATE_SETUP);
    let Some(mut hooked) = Hooked::monitored(&program, &[]) else {
        return;
    };
    let mut scene = Scene::new(&hooked).await;
    let mut reports = scene.arm("{step}").await;
    assert_eq!(hooked.resume(), "READY");
    reports.until(is_hit).await;
}

#[tokio::test]
async fn worker_of_another_job_is_not_armed() {
    let (Some(mut other), Some(own)) = (worker(2, &[]), worker(1, &[])) else {
        return;
    };
    let mut scene = Scene::new(&own).await;
    scene.agent.proc.worker(other.pid());
    let name = format!("ray-relay-{}", other.pid());
    std::fs::rename(other.folder().join(&name), own.folder().join(&name)).unwrap();
    let mut reports = scene.arm("{step}").await;
    for _ in 0..20 {
        assert_eq!(reports.next().await.pid, own.pid());
    }
    assert_eq!(other.resume(), "DISARMED");
}

#[tokio::test]
async fn refused_lines_state_the_reason() {
    for (policy, log, reason) in [
        ("look", "{step}", "RAY_RELAY_HOOK=look"),
        ("", "{step", "log message is not valid"),
    ] {
        let Some(mut hooked) = worker(1, &[("RAY_RELAY_HOOK", policy)]) else {
            return;
        };
        let mut scene = Scene::new(&hooked).await;
        let mut reports = scene.arm(log).await;
        let refused = reports.next().await;
        let text = json!(refused.report).to_string();
        assert!(
            matches!(refused.report, WorkerReport::Refused { .. }),
            "{text}"
        );
        assert!(text.contains(reason), "{text}");
        assert_eq!(hooked.resume(), "DISARMED");
    }
}

#[tokio::test]
async fn failed_expression_ends_the_line_and_is_reported_once() {
    let Some(mut hooked) = worker(1, &[]) else {
        return;
    };
    let mut scene = Scene::new(&hooked).await;
    let mut reports = scene.arm("{step / 0}").await;
    let is_ended = |report: &WorkerReport| match report {
        WorkerReport::Status { lines } => lines[0].state == LineState::Ended,
        _ => false,
    };
    let WorkerReport::Status { lines } = reports.until(is_ended).await.report else {
        panic!();
    };
    assert_eq!(
        lines[0].error.as_deref(),
        Some("ZeroDivisionError: division by zero")
    );
    assert_eq!(hooked.resume(), "DISARMED");
}
