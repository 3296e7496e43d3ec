//! Polls a future next to a busy one only if it was woken itself.
//!
//! A session is woken for every message. Its other events (of its principal, its limits, the relay's end) are eight
//! futures, each with a lock or a timer to check. Polling them with every message costs a tenth of a busy relay. A
//! connection has such futures too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A waker that records its own wakes and forwards them to the task.
pub struct WakeForwarder {
    woken: Arc<Woken>,
    waker: Waker,
}

#[derive(Default)]
struct Woken {
    since_polled: AtomicBool,
    task: AtomicWaker,
}

impl Default for WakeForwarder {
    fn default() -> Self {
        let woken = Arc::new(Woken::default());
        Self {
            waker: Waker::from(Arc::clone(&woken)),
            woken,
        }
    }
}

impl WakeForwarder {
    /// Runs `future`, which is polled at once and then whenever it was woken. Cancel safe if `future` is. Borrowed,
    /// because a future that owns another one stores it twice.
    pub async fn run<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        self.woken.since_polled.store(true, Ordering::Relaxed);
        std::future::poll_fn(|cx| {
            // Registered before the check, so that a wake in between is noticed by one of the two.
            self.woken.task.register(cx.waker());
            match self.woken.since_polled.swap(false, Ordering::AcqRel) {
                true => future.as_mut().poll(&mut Context::from_waker(&self.waker)),
                false => Poll::Pending,
            }
        })
        .await
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.since_polled.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn future_is_polled_only_when_woken() {
        let (polls, ready, busy) = (Cell::new(0), Notify::new(), Notify::new());
        let forwarder = WakeForwarder::default();
        let counted = pin!(async {
            let mut ready = pin!(ready.notified());
            std::future::poll_fn(|cx| {
                polls.set(polls.get() + 1);
                ready.as_mut().poll(cx)
            })
            .await;
        });
        let mut forwarded = pin!(forwarder.run(counted));
        for _ in 0..100 {
            tokio::select! {
                () = &mut forwarded => panic!("nothing has happened"),
                () = busy.notified() => {}
                () = async { busy.notify_one(); tokio::task::yield_now().await; std::future::pending().await } => {}
            }
        }
        assert_eq!(polls.get(), 1);
        ready.notify_one();
        forwarded.await;
        assert_eq!(polls.get(), 2);
    }
}
