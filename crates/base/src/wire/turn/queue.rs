//! The queue of busy directions: one for each thread has its turn, and between two turns come those who have little to say.
//!
//! Left to the runtime, busy directions take turns among themselves before it looks for what has come in meanwhile, and a small
//! message waits for all of them. Here they wait in one line. [`serve`] lets in as many as there are threads, and lets in the
//! next once the runtime has looked for input and run what has some.

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
    /// How many wait, to be read without the lock.
    length: AtomicUsize,
    joined: Notify,
}

struct WaitingTurns {
    /// Who is not there any more when it is let in has left its waker: one turn passes unused.
    waiting: VecDeque<Waker>,
    /// How many have been let in so far: a smaller number has its turn.
    served: u64,
    /// Without one no direction waits.
    servers: usize,
}

/// A number in the queue.
#[derive(Debug)]
pub(super) struct TurnNumber(u64);

/// Lets in the directions that wait, for as long as it is polled. Cancel safe: all go on at once when the last is dropped.
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
        // It goes on behind everybody who can, once the runtime has looked for input.
        tokio::task::yield_now().await;
    }
}

impl TurnQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Relaxed) == 0
    }

    /// Joins it at its end; `cx` is woken when it is the direction's turn. `None` where none is served.
    pub(super) fn join(&self, cx: &mut Context<'_>) -> Option<TurnNumber> {
        let mut state = self.state.lock();
        if state.servers == 0 {
            return None;
        }
        let place = TurnNumber(state.served + state.waiting.len() as u64);
        state.waiting.push_back(cx.waker().clone());
        self.length.store(state.waiting.len(), Ordering::Relaxed);
        drop(state);
        self.joined.notify_waiters();
        Some(place)
    }

    /// Whether it is the turn of who has `place`.
    pub(super) fn poll_served(&self, place: &TurnNumber, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(ahead) = place.0.checked_sub(state.served) else {
            return Poll::Ready(());
        };
        // The session may be another task's by now.
        if let Some(waker) = state.waiting.get_mut(ahead as usize) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }

    /// Lets in the first, at most so many; whether there was one.
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

/// There is one who serves.
struct TurnServer;

impl TurnServer {
    fn begin() -> Self {
        QUEUE.state.lock().servers += 1;
        Self
    }
}

impl Drop for TurnServer {
    fn drop(&mut self) {
        let left = {
            let mut state = QUEUE.state.lock();
            state.servers -= 1;
            state.servers
        };
        if left == 0 {
            QUEUE.let_in(usize::MAX);
        }
    }
}
