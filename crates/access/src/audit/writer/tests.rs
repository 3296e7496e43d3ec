//! Tests the writer without its thread: batches, disk failures, restarts.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::*;
use crate::audit::files::{each_line, in_order};
use crate::audit::verify::{Report, Verifier, Violation};
use ray_relay_base::config::{Audit as AuditConfig, AuditSink};

fn config(path: &Path) -> AuditConfig {
    AuditConfig {
        sink: AuditSink::File,
        file: Some(path.to_owned()),
        ..AuditConfig::default()
    }
}

fn start(config: &AuditConfig) -> Result<Writer, String> {
    start_keyed(config, Hashing::Plain)
}

fn start_keyed(config: &AuditConfig, hashing: Hashing) -> Result<Writer, String> {
    start_with(config, hashing, Metrics::new().unwrap())
}

fn start_with(
    config: &AuditConfig,
    hashing: Hashing,
    metrics: Arc<Metrics>,
) -> Result<Writer, String> {
    let sink = Sink::new(config).unwrap().unwrap();
    let (given_up, on_failure) = (Arc::default(), config.on_failure);
    let started = Writer::start(sink, hashing, on_failure, given_up, metrics)?;
    Ok(started.0)
}

/// A folder, and the path of an audit log in it.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    (dir, path)
}

#[track_caller]
fn assert_refused<T>(result: Result<T, String>, expected: &str) {
    let error = result.err().unwrap();
    assert!(error.contains(expected), "{error}");
}

fn line(name: &str) -> (SystemTime, String) {
    let entry = Entry::new(EntryKind::Decision).with("name", name);
    (SystemTime::now(), members(&entry))
}

fn verify(hashing: &Hashing, path: &Path) -> Report {
    verify_files(hashing, &in_order(&[path.to_owned()]).unwrap())
}

fn verify_files(hashing: &Hashing, files: &[PathBuf]) -> Report {
    let mut verifier = Verifier::new(hashing);
    for file in files {
        verifier.file(&file.display().to_string());
        let verified = each_line(std::fs::read(file).unwrap().as_slice(), |line| {
            verifier.line(line);
            true
        });
        verified.unwrap();
    }
    verifier.finish()
}

fn assert_intact(path: &Path) -> Report {
    let report = verify(&Hashing::Plain, path);
    assert_eq!(report.findings, []);
    report
}

/// Asserts that removed files are the only finding.
fn assert_only_beginning_missing(report: &Report) {
    assert!(
        matches!(report.findings[..], [Violation::NoBeginning { .. }]),
        "{report:?}"
    );
}

/// Returns the details of the lines about the audit log itself.
fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["action"] == "audit")
        .map(|line| line["details"].clone())
        .collect()
}

fn file_of(writer: &mut Writer) -> &mut crate::audit::sink::file::LogFile {
    match &mut writer.sink {
        Sink::File(file) => file,
        _ => panic!("another sink"),
    }
}

#[test]
fn queued_entries_share_one_write() {
    let (_dir, path) = folder();
    let metrics = Metrics::new().unwrap();
    let writer = start_with(&config(&path), Hashing::Plain, metrics.clone()).unwrap();
    let (jobs, queue) = mpsc::channel(200);
    let mut waiters = Vec::new();
    for i in 0..100 {
        let (time, members) = line(&i.to_string());
        let (done, waiter) = oneshot::channel();
        let job = WriterJob::Line {
            time,
            members,
            done,
        };
        jobs.try_send(job).ok().unwrap();
        waiters.push(waiter);
    }
    drop(jobs);
    writer.run(queue);
    for mut waiter in waiters {
        waiter.try_recv().unwrap().unwrap();
    }
    let text = metrics.render(&ray_relay_ray::ray::registry::Snapshot::default());
    assert!(text.contains("ray_relay_audit_lines_total 102\n"), "{text}");
    assert!(
        text.contains("ray_relay_audit_write_seconds_count 3\n"),
        "{text}"
    );
    assert_eq!(assert_intact(&path).lines, 102);
}

#[test]
fn rotated_files_and_restarts_are_one_chain() {
    let (_dir, path) = folder();
    let mut config = config(&path);
    config.max_size = 2000;
    config.keep = 3;
    for round in 0..7 {
        let mut writer = start(&config).unwrap();
        for i in 0..5 {
            writer.write(&[line(&format!("{round} {i}"))]).unwrap();
        }
    }
    let files = in_order(std::slice::from_ref(&path)).unwrap();
    assert_eq!(files.len(), 4, "{files:?}");
    for file in &files[..3] {
        assert!(std::fs::metadata(file).unwrap().len() <= 2000);
    }
    let report = verify(&Hashing::Plain, &path);
    let first = report.first.unwrap();
    assert!(first > 1, "the oldest were removed");
    assert_only_beginning_missing(&report);
    assert_eq!(report.last.unwrap().seq, first + report.lines - 1);
    // The order of the arguments does not matter.
    let mut shuffled = files.clone();
    shuffled.rotate_left(2);
    assert_eq!(in_order(&shuffled).unwrap(), files);
    use std::os::unix::fs::PermissionsExt;
    for file in &files {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn without_keep_no_file_is_removed() {
    let (_dir, path) = folder();
    let mut config = config(&path);
    config.max_size = 2000;
    let mut writer = start(&config).unwrap();
    for i in 0..100 {
        writer.write(&[line(&format!("{i}"))]).unwrap();
    }
    assert!(in_order(std::slice::from_ref(&path)).unwrap().len() > 15);
    assert_eq!(assert_intact(&path).first, Some(1));
}

#[test]
fn torn_last_line_is_chained_over() {
    let (_dir, path) = folder();
    let mut writer = start(&config(&path)).unwrap();
    writer.write(&[line("a"), line("b")]).unwrap();
    drop(writer);
    let original = std::fs::read(&path).unwrap();
    for removed in [1, 2, 40, 70, 200] {
        std::fs::write(&path, &original[..original.len() - removed]).unwrap();
        start(&config(&path)).unwrap().write(&[line("c")]).unwrap();
        let report = assert_intact(&path);
        let torn = usize::from(removed > 1);
        assert_eq!(report.torn.len(), torn, "{removed}");
        assert_eq!(events(&path)[1].get("torn").is_some(), torn == 1);
        // Only the relay can write such a line.
        let text = std::fs::read_to_string(&path).unwrap();
        let edited: Vec<&str> = text.lines().filter(|l| !l.contains("torn")).collect();
        if torn == 1 {
            std::fs::write(&path, edited.join("\n")).unwrap();
            assert!(verify(&Hashing::Plain, &path).found > 0);
        }
    }
    // The first line of the file may be incomplete, too.
    std::fs::write(&path, &original[..30]).unwrap();
    start(&config(&path)).unwrap();
    assert_eq!(assert_intact(&path).torn.len(), 1);
}

#[test]
fn torn_line_on_a_full_disk_is_recovered_once_there_is_room() {
    let (_dir, path) = folder();
    let mut writer = start(&config(&path)).unwrap();
    writer.write(&[line("a")]).unwrap();
    // As after an append that wrote a part, and could not be cut off again.
    let mut whole = std::fs::File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut whole, b"{\"time\":\"20").unwrap();
    file_of(&mut writer).close();
    for _ in 0..3 {
        let lines = [line("b")];
        let before = writer.prepare(&lines).unwrap();
        file_of(&mut writer).fill_disk();
        assert_refused(writer.append(&before), "No space left");
    }
    assert!(matches!(
        verify(&Hashing::Plain, &path).findings[..],
        [Violation::Torn(_)]
    ));
    writer.write(&[line("c")]).unwrap();
    assert_eq!(assert_intact(&path).torn.len(), 1);
    // A start has the same room.
    drop(writer);
    std::io::Write::write_all(&mut whole, b"{").unwrap();
    let mut file = crate::audit::sink::file::LogFile::new(path.clone(), 1 << 20, 0);
    for _ in 0..3 {
        assert!(file.open(&Hashing::Plain).unwrap().torn.is_some());
        file.fill_disk();
        assert_refused(file.append(b"x\n"), "No space left");
    }
    start(&config(&path)).unwrap();
    assert_eq!(assert_intact(&path).torn.len(), 2);
}

#[test]
fn torn_line_stays_in_the_file_that_has_its_record() {
    let (_dir, path) = folder();
    let mut config = config(&path);
    config.max_size = 1500;
    let mut writer = start(&config).unwrap();
    while std::fs::metadata(&path).unwrap().len() < 1100 {
        writer.write(&[line("a")]).unwrap();
    }
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, &[b'x'; 200]).unwrap();
    file_of(&mut writer).close();
    writer.write(&[line("b")]).unwrap();
    assert_eq!(in_order(std::slice::from_ref(&path)).unwrap().len(), 1);
    assert_eq!(assert_intact(&path).torn.len(), 1);
    writer.write(&[line("c")]).unwrap();
    assert_eq!(in_order(std::slice::from_ref(&path)).unwrap().len(), 2);
    assert_eq!(assert_intact(&path).torn.len(), 1);
}

#[test]
fn foreign_file_is_not_overwritten() {
    let (dir, path) = folder();
    for text in [
        "hello\n".to_owned(),
        format!("x\n{}", "y".repeat(40_000)),
        "\n".to_owned(),
    ] {
        std::fs::write(&path, &text).unwrap();
        assert_refused(start(&config(&path)), "does not end with an audit line");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
    assert_refused(start(&config(&path)), "symbolic link");
    assert_refused(start(&config(dir.path())), "cannot open");
    let _writer = start(&config(&dir.path().join("one"))).unwrap();
    assert_refused(start(&config(&dir.path().join("one"))), "another process");
}

#[test]
fn changed_key_starts_a_new_file() {
    let (_dir, path) = folder();
    start(&config(&path)).unwrap().write(&[line("a")]).unwrap();
    let key = Hashing::new(Some(&[1; 32])).unwrap();
    start_keyed(&config(&path), key.clone()).unwrap();
    let files = in_order(std::slice::from_ref(&path)).unwrap();
    assert!(files[0].ends_with("audit.log.000000000002"), "{files:?}");
    assert_eq!(
        events(&path)[0]["unverified_previous_file"],
        "audit.log.000000000002"
    );
    std::fs::remove_file(&files[0]).unwrap();
    assert_only_beginning_missing(&verify(&key, &path));
}

#[test]
fn full_disk_refuses_and_the_gap_is_recorded_later() {
    let (_dir, path) = folder();
    let mut writer = start(&config(&path)).unwrap();
    writer.write(&[line("a")]).unwrap();
    file_of(&mut writer).fill_disk();
    assert_refused(writer.write(&[line("b"), line("c")]), "No space left");
    assert!(!std::fs::read_to_string(&path).unwrap().contains("\"b\""));
    writer.write(&[line("d")]).unwrap();
    assert_intact(&path);
    let recovered = &events(&path)[1];
    assert_eq!(recovered["event"], "recovered");
    assert_eq!(recovered["not_confirmed"], 2);
    assert!(recovered["why"].as_str().unwrap().contains("No space left"));
    writer.write(&[line("e")]).unwrap();
    assert_eq!(events(&path).len(), 2);
}

#[test]
fn unflushed_lines_are_adopted_on_restart() {
    let (dir, path) = folder();
    let mut writer = start(&config(&path)).unwrap();
    // After a failed fdatasync and a failed truncation, unacknowledged bytes remain in the file.
    let mut head = writer.head;
    let (_, members) = line("b");
    let text = head.seal(&Hashing::Plain, "2026-11-21T10:55:01.123Z", &members);
    use std::io::Write as _;
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    writer.uncertain_heads = vec![head];
    file_of(&mut writer).close();
    writer.write(&[line("c")]).unwrap();
    assert_eq!(assert_intact(&path).lines, 4);
    // The same line from another process is an attack, or a second relay.
    file.write_all(text.as_bytes()).unwrap();
    assert_refused(writer.write(&[line("d")]), "another process has written");
    for _ in 0..2 {
        assert_refused(writer.write(&[line("d")]), "move it away");
    }
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    writer.write(&[line("e")]).unwrap();
    assert_eq!(events(&path)[0]["not_confirmed"], 3);
}

#[test]
fn removed_replaced_or_truncated_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logs").join("audit.log");
    let moved = dir.path().join("moved");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let mut writer = start(&config(&path)).unwrap();
    writer.write(&[line("a")]).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    assert_refused(writer.write(&[line("b")]), "removed or renamed");
    writer.write(&[line("c")]).unwrap();
    assert_eq!(events(&path)[0]["event"], "recovered");
    // Both files together are one chain.
    let report = verify_files(&Hashing::Plain, &[moved.clone(), path.clone()]);
    assert_eq!(report.findings, []);

    std::fs::copy(&path, &moved).unwrap();
    std::fs::rename(&moved, &path).unwrap();
    assert_refused(writer.write(&[line("d")]), "replaced");
    writer.write(&[line("e")]).unwrap();

    std::fs::write(&path, "").unwrap();
    assert_refused(writer.write(&[line("f")]), "has cut");
    writer.write(&[line("g")]).unwrap();
    assert_eq!(events(&path).len(), 1);

    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    for _ in 0..2 {
        assert!(writer.write(&[line("h")]).is_err());
    }
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    writer.write(&[line("i")]).unwrap();
    assert_eq!(events(&path)[0]["not_confirmed"], 2);
    assert_only_beginning_missing(&verify(&Hashing::Plain, &path));
}

#[test]
fn rotation_never_overwrites() {
    let (dir, path) = folder();
    let mut config = config(&path);
    config.max_size = 1500;
    let mut writer = start(&config).unwrap();
    let existing: Vec<_> = (1..30)
        .map(|n| dir.path().join(format!("audit.log.{n:012}")))
        .collect();
    for path in &existing {
        std::fs::write(path, "precious").unwrap();
    }
    let error = loop {
        if let Err(error) = writer.write(&[line("x")]) {
            break error;
        }
    };
    assert!(error.contains("is there already"), "{error}");
    for path in &existing {
        assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
        std::fs::remove_file(path).unwrap();
    }
    writer.write(&[line("y")]).unwrap();
    assert_intact(&path);
}
