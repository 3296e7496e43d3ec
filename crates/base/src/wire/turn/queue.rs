//! The queue of busy directions: as many as there are threads have their turn, and small messages get in between
//! turns.
//!
//! Left to the runtime, busy directions take turns among themselves before it polls for new input, and a small message
//! waits for all of them. Here they wait in one queue. [`serve`] admits as many as there are threads, and admits the
//! next once the runtime has polled for input and run the tasks that have some.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The queue of this process.
pub(super) static QUEUE: TurnQueue = TurnQueue {
    state: Mutex::new(WaitingTurns {
        waiting: VecDeque::new(),
        served: 0,
        servers: 0,
    }),
    length: AtomicUsize::new(0),
    joined: Notify::const_new(),
};

pub(super) struct TurnQueue {
    state: Mutex<WaitingTurns>,
    /// Number of waiting directions, to be read without the lock.
    length: AtomicUsize,
    joined: Notify,
}

struct WaitingTurns {
    /// A direction that vanishes while waiting leaves its waker: one turn passes unused.
    waiting: VecDeque<Waker>,
    /// Number of directions admitted so far: a smaller number has its turn.
    served: u64,
    /// Number of servers; without one no direction waits.
    servers: usize,
}

/// A number in the queue.
#[derive(Debug)]
pub(super) struct TurnNumber(u64);

/// Admits waiting directions, for as long as it is polled. Cancel safe: all continue at once when the last server is
/// dropped.
pub async fn serve() {
    let _serving = TurnServer::begin();
    let threads = Handle::current().metrics().num_workers();
    loop {
        let mut joined = pin!(QUEUE.joined.notified());
        joined.as_mut().enable();
        if !QUEUE.let_in(threads) {
            joined.await;
            continue;
        }
        // Continues behind all ready tasks, once the runtime has polled for input.
        tokio::task::yield_now().await;
    }
}

impl TurnQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Relaxed) == 0
    }

    /// Joins the queue at its end; `cx` is woken when it is the direction's turn. `None` without a server.
    pub(super) fn join(&self, cx: &mut Context<'_>) -> Option<TurnNumber> {
        let mut state = self.state.lock();
        if state.servers == 0 {
            return None;
        }
        let number = TurnNumber(state.served + state.waiting.len() as u64);
        state.waiting.push_back(cx.waker().clone());
        self.length.store(state.waiting.len(), Ordering::Relaxed);
        drop(state);
        self.joined.notify_waiters();
        Some(number)
    }

    /// Whether it is the turn of `number`.
    pub(super) fn poll_served(&self, number: &TurnNumber, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(ahead) = number.0.checked_sub(state.served) else {
            return Poll::Ready(());
        };
        // The session may have moved to another task.
        if let Some(waker) = state.waiting.get_mut(ahead as usize) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }

    /// Admits the first `most` directions; returns whether there was one.
    fn let_in(&self, most: usize) -> bool {
        let mut state = self.state.lock();
        let now = state.waiting.len().min(most);
        state.served += now as u64;
        let first: Vec<Waker> = state.waiting.drain(..now).collect();
        self.length.store(state.waiting.len(), Ordering::Relaxed);
        drop(state);
        first.into_iter().for_each(Waker::wake);
        now > 0
    }
}

/// Counts as a server, until dropped.
struct TurnServer;

impl TurnServer {
    fn begin() -> Self {
        QUEUE.state.lock().servers += 1;
        Self
    }
}

impl Drop for TurnServer {
    fn drop(&mut self) {
        let remaining = {
            let mut state = QUEUE.state.lock();
            state.servers -= 1;
            state.servers
        };
        if remaining == 0 {
            QUEUE.let_in(usize::MAX);
        }
    }
}
