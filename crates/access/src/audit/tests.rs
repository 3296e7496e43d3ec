//! Tests the audit log through its public interface.
#![allow(clippy::unwrap_used)]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use serde_json::{Value, json};

use self::chain::Hash;
use super::*;
use crate::identity::Principal;
use ray_relay_base::config::{AuditSink, SyslogAddress};
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Names, Snapshot};
use ray_relay_ray::ray::testing::paused;

struct Log {
    dir: tempfile::TempDir,
    config: config::Audit,
    metrics: Arc<Metrics>,
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config::Audit {
            sink: AuditSink::File,
            file: Some(dir.path().join("audit.log")),
            ..config::Audit::default()
        };
        Self {
            dir,
            config,
            metrics: Metrics::new().unwrap(),
        }
    }

    fn open(&self) -> Arc<Audit> {
        Audit::open(&self.config, self.metrics.clone()).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn failures(&self) -> bool {
        !self
            .rendered()
            .contains("ray_relay_audit_failures_total 0\n")
    }

    fn rendered(&self) -> String {
        self.metrics.render(&Snapshot::default())
    }

    /// Replaces the file by a folder, so that no line can be written.
    fn obstruct(&self) {
        std::fs::remove_file(self.path()).unwrap();
        std::fs::create_dir(self.path()).unwrap();
    }
}

fn breakpoint() -> Arc<Breakpoint> {
    let worker = paused("train", 1);
    Arc::new(Breakpoint {
        id: BreakpointId::derive("default", "w"),
        worker_id: "w".into(),
        names: Arc::new(Names {
            job_id: Some("01000000".into()),
            submission_id: Some("raysubmit_1".into()),
            task_id: Some("t".into()),
            ..Names::clone(&worker.names)
        }),
        ..worker
    })
}

#[tokio::test]
async fn entry_names_user_action_and_worker() {
    let log = Log::new();
    let audit = log.open();
    let mut entry = Entry::new(EntryKind::SessionBegan).with("outcome", "allowed");
    entry.principal = Some(Principal::anonymous());
    entry.peer = Some(([10, 0, 0, 9], 5000).into());
    entry.session = Some(3);
    entry.breakpoint = Some(breakpoint());
    audit.write(entry).await.unwrap();
    audit.close().await;
    let lines = log.lines();
    let mut line = lines[1].clone();
    let keys: Vec<_> = line.as_object().unwrap().keys().map(|key| &**key).collect();
    assert_eq!(
        keys.join(" "),
        "time seq action subject credential peer session cluster breakpoint worker job submission task name details prev hash"
    );
    for key in ["time", "prev", "hash"] {
        line.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(
        line,
        json!({
            "seq": 2, "action": "session_began", "subject": "anonymous", "credential": "none",
            "peer": "10.0.0.9:5000", "session": 3, "cluster": "default",
            "breakpoint": BreakpointId::derive("default", "w"), "worker": "w", "job": "01000000",
            "submission": "raysubmit_1", "task": "t", "name": "train", "details": {"outcome": "allowed"},
        })
    );
    assert_eq!(lines[0]["details"]["event"], "started");
    assert_eq!(lines[2]["details"]["event"], "stopped");
    assert_eq!(lines[2]["prev"], lines[1]["hash"]);
    let error = audit
        .write(Entry::new(EntryKind::Decision))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("ending"), "{error}");
}

#[tokio::test]
async fn client_input_is_one_bounded_line() {
    /// Longer than any line, and short for a busy machine, where a line has 2 s.
    const LONG: usize = 1 << 17;
    let log = Log::new();
    let audit = log.open();
    let token = format!("eyJ{0}.{0}.{0}", "a".repeat(40));
    let mut deep = json!("end");
    for _ in 0..100 {
        deep = json!([deep]);
    }
    for details in [
        json!({"expression": format!("f('{token}')\n\u{1b}[2J\u{0}")}),
        json!({"expression": "\u{1}".repeat(LONG)}),
        json!({"expression": "é".repeat(LONG)}),
        json!({"deep": deep, "wide": vec!["x".repeat(5000); 100]}),
        Value::Object(
            (0..100)
                .map(|i| (format!("{i}{}", "k".repeat(3000)), json!("v".repeat(3000))))
                .collect(),
        ),
        json!({"expression": format!("{}{token}", "x".repeat(2000))}),
    ] {
        let mut entry = Entry::new(EntryKind::Command);
        entry.details.insert("command".into(), "evaluate".into());
        entry.details.extend(details.as_object().unwrap().clone());
        audit.write(entry).await.unwrap();
    }
    audit.close().await;
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(!text.contains("eyJ"), "no token");
    assert_eq!(text.lines().count(), 8);
    for line in text.lines() {
        assert!(line.len() < chain::MAX_LINE_BYTES, "{}", line.len());
        assert!(!line.contains(|c: char| c.is_control()), "{line}");
    }
    let lines = log.lines();
    assert_eq!(
        lines[1]["details"]["expression"],
        "f('[token]')\n\u{1b}[2J\u{0}"
    );
    let truncated = lines[3]["details"]["expression"].as_str().unwrap();
    let sha256 = Hash::plain("é".repeat(LONG).as_bytes());
    let suffix = format!("é… (262144 bytes, SHA-256 {sha256})");
    assert!(truncated.ends_with(&suffix), "{truncated}");
    for line in &lines[1..7] {
        assert_eq!(line["details"]["command"], "evaluate", "{line}");
    }
    let wide = lines[4]["details"]["wide"].as_array().unwrap();
    let rest = json!(vec!["x".repeat(5000); 100 - (wide.len() - 1)]).to_string();
    let sha256 = Hash::plain(rest.as_bytes());
    let suffix = format!("({} bytes, SHA-256 {sha256})", rest.len());
    let truncated = wide.last().unwrap().as_str().unwrap();
    assert!(truncated.ends_with(&suffix), "{wide:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_share_one_ordered_chain() {
    let log = Log::new();
    let audit = log.open();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let audit = audit.clone();
        tasks.spawn(async move {
            for i in 0..20 {
                let entry = Entry::new(EntryKind::Command)
                    .with("task", task)
                    .with("i", i);
                audit.write(entry).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    audit.close().await;
    let mut next = [0; 20];
    let lines = log.lines();
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line["seq"], i as u64 + 1);
        if i > 0 {
            assert_eq!(line["prev"], lines[i - 1]["hash"]);
        }
        if let Some(task) = line["details"]["task"].as_u64() {
            let next = &mut next[usize::try_from(task).unwrap()];
            assert_eq!(line["details"]["i"], *next);
            *next += 1;
        }
    }
    assert_eq!(next, [20; 20]);
    assert!(!log.failures());
}

#[tokio::test]
async fn unrecorded_action_is_refused_unless_configured() {
    let mut log = Log::new();
    let audit = log.open();
    log.obstruct();
    for _ in 0..2 {
        let error = audit
            .write(Entry::new(EntryKind::Decision))
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("allows nothing without"),
            "{error}"
        );
    }
    assert!(log.failures());
    audit.close().await;
    std::fs::remove_dir(log.path()).unwrap();

    log.config.on_failure = OnFailure::Allow;
    log.metrics = Metrics::new().unwrap();
    let audit = log.open();
    std::fs::remove_file(log.path()).unwrap();
    audit.write(Entry::new(EntryKind::Decision)).await.unwrap();
    assert!(log.failures());
    audit.write(Entry::new(EntryKind::Decision)).await.unwrap();
    audit.close().await;
    assert_eq!(log.lines()[0]["details"]["on_failure"], "allow");
}

#[tokio::test]
async fn write_fails_after_the_writer_ended() {
    let log = Log::new();
    let sink = sink::Sink::new(&log.config).unwrap().unwrap();
    let started = Audit::start(sink, Hashing::Plain, &log.config, log.metrics.clone());
    let (audit, _writer, jobs) = started.unwrap();
    let write = audit.write(Entry::new(EntryKind::Decision));
    let (written, ()) = tokio::join!(write, async { drop(jobs) });
    assert!(written.unwrap_err().to_string().contains("ending"));
    assert!(log.failures());
}

#[tokio::test]
async fn unopenable_sink_fails_at_startup() {
    let mut log = Log::new();
    log.config.file = Some(log.dir.path().join("missing/audit.log"));
    let assert_fails = |log: &Log, expected: &str| {
        let error = Audit::open(&log.config, log.metrics.clone()).err();
        let error = error.unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    assert_fails(&log, "cannot open");
    log.config.key_file = Some(log.dir.path().join("key"));
    assert_fails(&log, "audit.key_file");
    std::fs::write(log.dir.path().join("key"), "short").unwrap();
    assert_fails(&log, "openssl");
    log.config.sink = AuditSink::Syslog;
    log.config.key_file = None;
    log.config.syslog = SyslogAddress::Unix(log.dir.path().join("log"));
    assert_fails(&log, "cannot reach syslog");
    log.config.sink = AuditSink::Off;
    let disabled = Audit::open(&log.config, log.metrics.clone()).unwrap();
    assert!(!disabled.wants_commands());
    disabled
        .write(Entry::new(EntryKind::Decision))
        .await
        .unwrap();
    disabled.close().await;
}

#[tokio::test]
async fn stalled_syslog_times_out_after_two_seconds() {
    let mut log = Log::new();
    let path = log.dir.path().join("log");
    let daemon = UnixDatagram::bind(&path).unwrap();
    log.config.sink = AuditSink::Syslog;
    log.config.syslog = SyslogAddress::Unix(path.clone());
    let audit = log.open();
    // The socket is never read, so its short queue fills up.
    let error = loop {
        if let Err(error) = audit.write(Entry::new(EntryKind::Decision)).await {
            break error.to_string();
        }
    };
    assert!(error.contains("within 2 s"), "{error}");
    drop(daemon);
    let error = loop {
        match audit.write(Entry::new(EntryKind::Decision)).await {
            Err(error) if error.to_string().contains("cannot reach") => break error,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(error.to_string().contains("syslog"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let daemon = UnixDatagram::bind(&path).unwrap();
    audit.write(Entry::new(EntryKind::Decision)).await.unwrap();
    let mut bytes = [0; 4096];
    let n = daemon.recv(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes[..n]);
    assert!(text.contains(r#""event":"recovered""#), "{text}");
}

/// An audit log whose thread writes nothing.
fn stalled(log: &Log) -> (Arc<Audit>, Writer, mpsc::Receiver<WriterJob>) {
    let sink = sink::Sink::new(&log.config).unwrap().unwrap();
    Audit::start(sink, Hashing::Plain, &log.config, log.metrics.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn summary_and_entry_share_one_deadline() {
    let log = Log::new();
    let (audit, mut writer, mut jobs) = stalled(&log);
    let refused = || Entry::new(EntryKind::Decision).with("outcome", "denied");
    let flood = async {
        for _ in 0..70 {
            audit.write(refused()).await.unwrap();
        }
    };
    let works = async {
        while let Some(job) = jobs.recv().await {
            writer.work(job, &mut jobs);
        }
    };
    tokio::select! {
        () = flood => {}
        () = works => {}
    }
    // The next line has a summary before it, and the thread writes neither.
    tokio::time::advance(Duration::from_secs(10)).await;
    let began = Instant::now();
    audit.write(refused()).await.unwrap_err();
    assert_eq!(began.elapsed(), WRITE_TIMEOUT);
    assert_eq!(jobs.len(), 2, "the summary, and the entry");
}

#[tokio::test(start_paused = true)]
async fn writers_behind_owed_entries_wait_no_longer() {
    let log = Log::new();
    let (audit, _writer, _jobs) = stalled(&log);
    audit.owe(Entry::new(EntryKind::SessionEnded));
    let began = Instant::now();
    let write = || audit.write(Entry::new(EntryKind::SessionBegan));
    let (a, b, c) = tokio::join!(write(), write(), write());
    for written in [a, b, c] {
        written.unwrap_err();
    }
    assert_eq!(began.elapsed(), WRITE_TIMEOUT);
}

#[tokio::test]
async fn commands_are_recorded_only_if_configured() {
    assert!(Log::new().open().wants_commands());
    let mut log = Log::new();
    log.config.commands = false;
    let audit = log.open();
    assert!(!audit.wants_commands());
    audit.write(Entry::new(EntryKind::Command)).await.unwrap();
    audit
        .write(Entry::new(EntryKind::SessionEnded))
        .await
        .unwrap();
    assert_eq!(log.lines().len(), 2);
}

#[tokio::test]
async fn refusal_flood_is_summarised_and_actions_are_not() {
    let log = Log::new();
    let audit = log.open();
    let decide = async |outcome: &str| {
        let mut entry = Entry::new(EntryKind::Decision).with("outcome", outcome);
        entry.principal = Some(Principal::anonymous());
        audit.write(entry).await.unwrap();
    };
    for i in 0..500 {
        decide("denied").await;
        if i % 10 == 0 {
            decide("allowed").await;
        }
    }
    audit.close().await;
    let lines = log.lines();
    let with_outcome = |outcome: &str| -> Vec<&Value> {
        let has_outcome = |line: &&Value| line["details"]["outcome"] == outcome;
        lines.iter().filter(has_outcome).collect()
    };
    let denied = with_outcome("denied").len();
    assert!((60..70).contains(&denied), "{denied}");
    assert_eq!(with_outcome("allowed").len(), 50);
    let sums = with_outcome("left_out");
    let suppressed: u64 = sums
        .iter()
        .map(|s| s["details"]["lines"].as_u64().unwrap())
        .sum();
    assert_eq!(suppressed, 500 - denied as u64);
    for sum in sums {
        assert_eq!(sum["subject"], "anonymous");
        assert!(sum["details"]["since"].as_str() <= sum["details"]["until"].as_str());
    }
}

#[tokio::test]
async fn failing_log_is_reported_by_metrics_and_readiness() {
    let log = Log::new();
    let audit = log.open();
    let assert_gauge = |value: u8| {
        let line = format!("\nray_relay_audit_failing {value}\n");
        assert!(log.rendered().contains(&line), "{line}");
    };
    assert_gauge(0);
    assert_eq!(audit.failing(), None);
    log.obstruct();
    let begin_session = || audit.write(Entry::new(EntryKind::SessionBegan));
    for _ in 0..2 {
        begin_session().await.unwrap_err();
    }
    assert!(audit.failing().is_some());
    assert_gauge(1);
    std::fs::remove_dir(log.path()).unwrap();
    begin_session().await.unwrap();
    assert_eq!(audit.failing(), None);
    assert_gauge(0);
}
