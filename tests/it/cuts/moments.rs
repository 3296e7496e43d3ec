//! The schedule of a cut: all sessions get ready, begin the action to be cut, and are notified of the repair.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::support::say;

/// How long all sessions may take to get ready, and then to begin.
const TEST_TIMEOUT: Duration = Duration::from_secs(240);

/// The progress of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    Begins,
    Cut,
    Over,
}

/// One cut, as its sessions see it.
pub(super) struct Moments {
    all: usize,
    ready: AtomicUsize,
    begun: watch::Sender<usize>,
    phase: watch::Sender<Phase>,
    over: std::sync::OnceLock<Instant>,
}

/// A session during a cut. Once dropped, the others do not wait for it.
pub(super) struct Witness<'a> {
    moments: &'a Moments,
    /// The session that begins next.
    turn: usize,
    is_ready: bool,
    has_begun: bool,
}

impl Moments {
    /// For so many witnesses.
    pub(super) fn new(all: usize) -> Self {
        Self {
            all,
            ready: AtomicUsize::new(0),
            begun: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Before),
            over: std::sync::OnceLock::new(),
        }
    }

    /// Returns the session with this position in the order.
    pub(super) fn witness(&self, turn: usize) -> Witness<'_> {
        Witness {
            moments: self,
            turn,
            is_ready: false,
            has_begun: false,
        }
    }

    /// Cuts for so long.
    pub(super) async fn cut(&self, lasts: Duration, cut: impl FnOnce(), mend: impl FnOnce()) {
        let ready = async {
            while self.ready.load(Ordering::Relaxed) < self.all {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, ready)
            .await
            .expect("everybody is ready");
        self.phase.send_replace(Phase::Begins);
        let mut begun = self.begun.subscribe();
        let begins = begun.wait_for(|begun| *begun >= self.all);
        timeout(TEST_TIMEOUT, begins)
            .await
            .expect("everybody begins")
            .unwrap();
        cut();
        self.phase.send_replace(Phase::Cut);
        sleep(lasts).await;
        mend();
        self.over.get_or_init(Instant::now);
        self.phase.send_replace(Phase::Over);
        say("the cut is over");
    }

    pub(super) fn is_cut(&self) -> bool {
        *self.phase.borrow() == Phase::Cut
    }

    async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        let reached = phases.wait_for(|now| *now >= phase);
        timeout(TEST_TIMEOUT, reached).await.unwrap().unwrap();
    }
}

impl Witness<'_> {
    /// Is ready, and waits for its turn to begin.
    pub(super) async fn turn(&mut self) {
        self.ready();
        self.moments.reached(Phase::Begins).await;
        let turn = self.turn;
        let mut begun = self.moments.begun.subscribe();
        let is_its_turn = begun.wait_for(|begun| *begun >= turn);
        timeout(TEST_TIMEOUT, is_its_turn).await.unwrap().unwrap();
    }

    /// Has begun, and waits until the network is cut.
    pub(super) async fn cut(&mut self) {
        self.begins();
        self.moments.reached(Phase::Cut).await;
    }

    /// Waits until the network is mended.
    pub(super) async fn over(&self) {
        self.moments.reached(Phase::Over).await;
    }

    /// Returns how long ago the network was repaired.
    pub(super) fn since_over(&self) -> Duration {
        self.moments
            .over
            .get()
            .map_or(Duration::ZERO, Instant::elapsed)
    }

    fn ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.moments.ready.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begins(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.moments.begun.send_modify(|begun| *begun += 1);
        }
    }
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        self.ready();
        self.begins();
    }
}
