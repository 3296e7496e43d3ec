//! Captures the log of one test.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// Sends the log of this thread to `subscriber` until the guard is dropped.
///
/// tracing caches for the whole process whether a log statement is enabled. With a single subscriber it asks that of
/// the first thread that executes the statement. In another test that thread has no subscriber, and this one would
/// lose the line. So there is always a second subscriber, which enables nothing.
pub fn log_to(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
    LazyLock::force(&SECOND);
    tracing::subscriber::set_default(subscriber)
}

/// Captures the log of this thread, at all levels.
pub struct Log {
    text: Text,
    _guard: DefaultGuard,
}

impl Log {
    pub fn start() -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        Self {
            text,
            _guard: log_to(subscriber),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().clone()).unwrap()
    }
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn line_logged_first_by_another_test_is_captured() {
    fn logs() {
        tracing::debug!("the same line of two tests");
    }
    let log = Log::start();
    std::thread::spawn(logs).join().unwrap();
    logs();
    assert!(log.text().contains("the same line"), "{}", log.text());
}
