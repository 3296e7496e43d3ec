//! The environment of the tests: Ray environments and clusters, the relay's process, a DAP client.

pub(crate) mod agent;
pub(crate) mod capture;
pub(crate) mod connect;
pub(crate) mod dap_client;
pub(crate) mod driver;
pub(crate) mod guarded;
mod http;
pub(crate) mod issuer;
pub(crate) mod keeper;
pub(crate) mod loopback;
pub(crate) mod namespaces;
pub(crate) mod nc;
pub(crate) mod prompt;
pub(crate) mod ray;
pub(crate) mod relay;
pub(crate) mod scene;
pub(crate) mod screen;
pub(crate) mod shared;
pub(crate) mod turn;

use std::fmt::Display;
use std::io::Write as _;
use std::time::Duration;

/// A line that `cargo test` shows at once (it holds back only what the print macros write).
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "it: {text}");
}

/// Says that a test cannot run here, or fails where `CI` is set.
pub(crate) fn skip(why: impl std::fmt::Display) {
    assert!(
        std::env::var_os("CI").is_none(),
        "cannot run under CI: {why}"
    );
    say(format_args!("SKIPPED a test: {why}"));
}

/// How often a test loses and restores the same session; more often with `RAY_RELAY_LONG`.
pub(crate) fn parks_in_a_row() -> usize {
    match std::env::var_os("RAY_RELAY_LONG") {
        Some(_) => 200,
        None => 20,
    }
}

/// Calls `probe` until it returns a value. Panics with `what` after `max_wait`.
pub(crate) fn eventually<T>(
    what: impl Display,
    max_wait: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let end = std::time::Instant::now() + max_wait;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(
            std::time::Instant::now() < end,
            "{what}: not within {} s",
            max_wait.as_secs()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
