//! Tests that recordings are read back, and that sessions end if they cannot be recorded.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use proptest::prelude::*;

use super::format::{RecordedLine, read_header, read_line};
use super::*;
use crate::identity::Principal;
use ray_relay_ray::ray::registry::Snapshot;
use ray_relay_ray::ray::testing::paused;

struct Fixture {
    dir: tempfile::TempDir,
    config: config::Recording,
    metrics: Arc<Metrics>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            config: config::Recording {
                dir: Some(dir.path().to_owned()),
                ..config::Recording::default()
            },
            dir,
            metrics: Metrics::new().unwrap(),
        }
    }

    /// Begins a recording.
    async fn recorder(&self, session: u64) -> CaptureWriter {
        self.begin(session).await.unwrap().unwrap()
    }

    async fn begin(&self, session: u64) -> Result<Option<CaptureWriter>, CaptureError> {
        let recording = CaptureStore::new(self.config.clone(), self.metrics.clone());
        recording
            .begin(&Meta {
                began: SystemTime::now(),
                protocol: Protocol::Dap,
                session,
                principal: &Principal::anonymous(),
                peer: ([10, 0, 0, 9], 5000).into(),
                client: "VS Code",
                breakpoint: &paused("../train/é", 1),
            })
            .await
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }
}

#[tokio::test]
async fn recording_is_read_back() {
    let fixture = Fixture::new();
    let writer = fixture.recorder(3).await;
    let name = writer.name();
    assert!(name.ends_with("Z-s3-anonymous-___train__.jsonl"), "{name}");
    let messages: [(Direction, &[u8]); 3] = [
        (Direction::Up, br#"{"seq":1,"x":NaN}"#),
        (Direction::Down, b"\xff\x00"),
        (Direction::Down, "é\n\u{1b}".as_bytes()),
    ];
    for (direction, bytes) in messages {
        writer.frame(direction, bytes).unwrap();
    }
    writer.finish("client").await;
    let path = fixture.dir.path().join(name);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read(&path).unwrap();
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let header = read_header(lines.next().unwrap()).unwrap();
    assert_eq!(header.protocol, Protocol::Dap);
    assert_eq!(header.members["subject"], "anonymous");
    assert_eq!(header.members["peer"], "10.0.0.9:5000");
    for (direction, bytes) in messages {
        match read_line(lines.next().unwrap()).unwrap() {
            RecordedLine::Frame {
                direction: d,
                bytes: b,
                ..
            } => assert_eq!((d, &*b), (direction, bytes)),
            line => panic!("{line:?}"),
        }
    }
    match read_line(lines.next().unwrap()).unwrap() {
        RecordedLine::End { how: outcome, .. } => assert_eq!(outcome, "client"),
        line => panic!("{line:?}"),
    }
    assert_eq!(lines.next(), None);
}

#[tokio::test]
async fn recording_at_max_size_ends_the_session() {
    let mut fixture = Fixture::new();
    fixture.config.max_size = 1000;
    let writer = fixture.recorder(1).await;
    writer.frame(Direction::Down, &[b'x'; 100]).unwrap();
    writer.frame(Direction::Down, &[b'x'; 1000]).unwrap();
    let error = writer.failed().await.to_string();
    assert!(error.contains("recording.max_size"), "{error}");
    assert!(error.contains("has to be recorded"), "{error}");
    // Later messages of the client are refused.
    let tee = CaptureTee::new(Some(writer));
    assert!(tee.take(Direction::Up, b"x").is_err());
    tee.finish("failed").await;
    let size = std::fs::metadata(&fixture.files()[0]).unwrap().len();
    assert!(size <= 1000);
}

#[tokio::test]
async fn slow_disk_ends_the_session_with_bounded_memory() {
    let fixture = Fixture::new();
    let writer = fixture.recorder(1).await;
    // The writer thread receives no messages.
    let (queue, _waiting) = mpsc::channel(MAX_QUEUED_MESSAGES);
    *writer.queue.lock() = Some(queue);
    // One large message is accepted alone.
    writer
        .frame(Direction::Down, &vec![b'x'; 2 * MAX_QUEUED_BYTES])
        .unwrap();
    let error = writer.frame(Direction::Down, b"x").unwrap_err();
    assert!(error.to_string().contains("keep up"), "{error}");

    let writer = fixture.recorder(2).await;
    let (queue, _waiting) = mpsc::channel(MAX_QUEUED_MESSAGES);
    *writer.queue.lock() = Some(queue);
    for _ in 0..MAX_QUEUED_MESSAGES {
        writer.frame(Direction::Up, b"x").unwrap();
    }
    assert!(writer.frame(Direction::Up, b"x").is_err());
}

#[tokio::test]
async fn unrecorded_session_continues_if_allowed() {
    let mut fixture = Fixture::new();
    fixture.config.max_size = 500;
    fixture.config.on_failure = OnFailure::Allow;
    let writer = fixture.recorder(1).await;
    while writer.failed.borrow().is_none() {
        writer.frame(Direction::Up, b"x").unwrap();
        tokio::task::yield_now().await;
    }
    writer.frame(Direction::Up, b"x").unwrap();
    writer.finish("client").await;
    fixture.config.dir = Some(fixture.dir.path().join("missing"));
    assert!(fixture.begin(1).await.unwrap().is_none());
    let text = fixture.metrics.render(&Snapshot::default());
    let failures = "ray_relay_recording_failures_total 2\n";
    assert!(text.contains(failures), "{text}");
    // Without a configured folder there is no disk failure.
    fixture.config.dir = None;
    let error = fixture.begin(1).await.unwrap_err().to_string();
    assert!(error.contains("recording.dir"), "{error}");
}

#[tokio::test]
async fn oldest_recordings_are_deleted_and_live_ones_kept() {
    let mut fixture = Fixture::new();
    let active = fixture.recorder(0).await;
    for session in 1..5 {
        let writer = fixture.recorder(session).await;
        writer.frame(Direction::Up, &[b'x'; 1000]).unwrap();
        writer.finish("client").await;
        // File names have a resolution of one millisecond.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    std::fs::write(fixture.dir.path().join("notes.txt"), vec![0; 5000]).unwrap();
    fixture.config.keep = 3200;
    fixture.recorder(5).await.finish("client").await;
    let names = format!("{:?}", fixture.files());
    for kept_name in ["-s0-", "-s4-", "-s5-", "notes.txt"] {
        assert!(names.contains(kept_name), "{names}");
    }
    for removed_name in ["-s1-", "-s2-"] {
        assert!(!names.contains(removed_name), "{names}");
    }
    active.finish("client").await;
}

#[test]
fn recording_folder_is_created_and_checked() {
    let mut fixture = Fixture::new();
    let dir = fixture.dir.path().join("new");
    fixture.config.dir = Some(dir.clone());
    let prepare = |fixture: &Fixture| {
        CaptureStore::new(fixture.config.clone(), fixture.metrics.clone()).prepare()
    };
    prepare(&fixture).unwrap();
    let mode = std::fs::metadata(&dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    fixture.config.dir = Some(dir.join("a/b"));
    assert!(prepare(&fixture).unwrap_err().contains("recording.dir"));
}

proptest! {
    #[test]
    fn any_recorded_bytes_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..200), up in any::<bool>(), millis in 0u64..10_000_000) {
        let direction = if up { Direction::Up } else { Direction::Down };
        let elapsed = Duration::from_millis(millis);
        let line = format::frame(elapsed, direction, &bytes);
        prop_assert_eq!(line.matches('\n').count(), 1);
        match read_line(line.as_bytes()) {
            Ok(RecordedLine::Frame { elapsed: e, direction: d, bytes: b }) => {
                prop_assert_eq!((d, b), (direction, bytes));
                prop_assert!(e.abs_diff(elapsed) < Duration::from_millis(1));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_recording_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (read_header(&bytes), read_line(&bytes));
    }
}
