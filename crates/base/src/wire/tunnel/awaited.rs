//! Requested WebSockets that the other side has not opened yet.
//!
//! Each has an id and a secret, and is opened once. `W` identifies the peer that was asked, `T` is the outcome.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::messages::StreamId;
use super::text::Hex;

/// Requested WebSockets that are not open yet.
#[derive(Debug)]
pub struct Awaited<W, T>(Mutex<HashMap<StreamId, AwaitedEntry<W, T>>>);

#[derive(Debug)]
struct AwaitedEntry<W, T> {
    secret: Hex<16>,
    peer: W,
    deliver: oneshot::Sender<T>,
}

/// A pending WebSocket. Dropping it cancels the wait.
#[derive(Debug)]
pub struct Expected<'a, W, T> {
    all: &'a Awaited<W, T>,
    pub stream: StreamId,
    pub secret: Hex<16>,
    delivered: oneshot::Receiver<T>,
}

impl<W, T> Default for Awaited<W, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W, T> Awaited<W, T> {
    /// Registers a WebSocket that `peer` is about to open; `None`: the system has no randomness.
    pub fn expect(&self, peer: W) -> Option<Expected<'_, W, T>> {
        let (stream, secret) = (Hex::random()?, Hex::random()?);
        let (deliver, delivered) = oneshot::channel();
        let entry = AwaitedEntry {
            secret,
            peer,
            deliver,
        };
        self.0.lock().insert(stream, entry);
        Some(Expected {
            all: self,
            stream,
            secret,
            delivered,
        })
    }

    /// Removes the entry `id`, if `presented` is its secret and its presenter is the peer that was asked. Returns that
    /// peer and the channel of the waiter. A second attempt finds nothing. A wrong secret reveals nothing.
    pub fn take(
        &self,
        id: &str,
        presented: &str,
        is_peer: impl FnOnce(&W) -> bool,
    ) -> Option<(W, oneshot::Sender<T>)> {
        let (id, presented) = (StreamId::parse(id)?, Hex::parse(presented)?);
        self.take_if(&id, |entry| {
            entry.secret.is_same_secret(&presented) && is_peer(&entry.peer)
        })
    }

    /// Delivers `answer` for the entry `id` in place of a WebSocket, if the sender is the peer that was asked. Returns
    /// whether it was still awaited.
    pub fn answer(&self, id: &StreamId, is_peer: impl FnOnce(&W) -> bool, answer: T) -> bool {
        let entry = self.take_if(id, |entry| is_peer(&entry.peer));
        entry.is_some_and(|(_, deliver)| deliver.send(answer).is_ok())
    }

    /// Cancels the entries of the peers for which `is_peer` holds.
    pub fn forget(&self, is_peer: impl Fn(&W) -> bool) {
        self.0.lock().retain(|_, entry| !is_peer(&entry.peer));
    }

    fn take_if(
        &self,
        id: &StreamId,
        fits: impl FnOnce(&AwaitedEntry<W, T>) -> bool,
    ) -> Option<(W, oneshot::Sender<T>)> {
        let mut all = self.0.lock();
        fits(all.get(id)?)
            .then(|| all.remove(id))
            .flatten()
            .map(|entry| (entry.peer, entry.deliver))
    }
}

impl<W, T> Expected<'_, W, T> {
    /// Waits for the outcome; `None`: there will be none. The caller bounds the wait. Cancel safe.
    pub async fn come(&mut self) -> Option<T> {
        (&mut self.delivered).await.ok()
    }

    /// Cancels the wait; returns whether nothing had arrived.
    pub fn give_up(&self) -> bool {
        self.all.0.lock().remove(&self.stream).is_some()
    }
}

impl<W, T> Drop for Expected<'_, W, T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn expected_stream_is_accepted_once_from_its_peer() {
        let all = Awaited::<&str, u32>::default();
        let mut expected = all.expect("ada").unwrap();
        let (id, secret) = (expected.stream.digits(), expected.secret.digits());
        let take =
            |id: &str, secret: &str, expected: &str| all.take(id, secret, |peer| *peer == expected);
        let wrong_secret = "0".repeat(32);
        for (id, secret, peer) in [
            (&*id, &*secret, "eve"),
            (&*id, &*wrong_secret, "ada"),
            (&wrong_secret[..16], &*secret, "ada"),
            ("", "", "ada"),
        ] {
            assert!(take(id, secret, peer).is_none());
        }
        let (_, deliver) = take(&id, &secret, "ada").unwrap();
        assert!(take(&id, &secret, "ada").is_none());
        deliver.send(7).unwrap();
        assert_eq!(expected.come().await, Some(7));
        assert!(!expected.give_up());
    }

    #[tokio::test]
    async fn abandoned_stream_is_not_delivered() {
        let all = Awaited::<u8, u32>::default();
        let dropped = all.expect(1).unwrap();
        let (id, secret) = (dropped.stream, dropped.secret);
        drop(dropped);
        assert!(!all.answer(&id, |_| true, 1));
        assert!(all.take(&id.digits(), &secret.digits(), |_| true).is_none());
        let (mut one, mut other) = (all.expect(1).unwrap(), all.expect(2).unwrap());
        all.forget(|peer| *peer == 1);
        assert_eq!(one.come().await, None);
        assert!(!all.answer(&other.stream, |peer| *peer == 1, 3));
        assert!(all.answer(&other.stream, |peer| *peer == 2, 3));
        assert_eq!(other.come().await, Some(3));
    }
}
