//! Gossip between the relays linked with this agent: which relays there are, and what they have revoked. The agent
//! cannot read it: relays seal their notices with a secret that agents do not have.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use ray_relay_base::wire::tunnel::messages::{Hex, MAX_RELAYS, Replica, Revocations};

/// Notices of one relay that are stored, so that none crowds out another's.
const MAX_NOTICES_PER_RELAY: usize = 16;

/// Notices of all relays that are stored, also of those that have gone, for relays that link later.
const MAX_NOTICES: usize = 64;

/// A notice and the relay that sent it.
pub(super) type Bulletin = (Replica, Arc<Revocations>);

/// The gossip of all links.
#[derive(Debug)]
pub(super) struct RevocationGossip {
    relays: Arc<watch::Sender<Vec<Replica>>>,
    notices: watch::Sender<Arc<[Bulletin]>>,
}

/// The claim of the one link to a relay process, which several addresses may lead to.
pub(super) struct ProcessLink {
    relays: Arc<watch::Sender<Vec<Replica>>>,
    replica: Replica,
}

/// The position of one link: which notices it has passed on.
#[derive(Debug)]
pub(super) struct GossipReader {
    notices: watch::Receiver<Arc<[Bulletin]>>,
    replica: Replica,
    /// The notices that its relay has.
    delivered: HashSet<Hex<32>>,
}

impl RevocationGossip {
    pub(super) fn new() -> Self {
        Self {
            relays: Arc::default(),
            notices: watch::Sender::new(Arc::new([])),
        }
    }

    /// Registers a link with `replica`. `None`: there is one already.
    pub(super) fn claim(&self, replica: Replica) -> Option<ProcessLink> {
        let registered = self.relays.send_if_modified(|relays| {
            let is_new = !relays.contains(&replica);
            if is_new {
                relays.push(replica);
            }
            is_new
        });
        // Created only if entered: dropping it would remove the other link's entry.
        registered.then(|| ProcessLink {
            relays: Arc::clone(&self.relays),
            replica,
        })
    }

    /// Subscribes to the list of linked relays.
    pub(super) fn relays(&self) -> watch::Receiver<Vec<Replica>> {
        self.relays.subscribe()
    }

    /// Stores the notice of `replica` for the other relays. A repeated notice is not news.
    pub(super) fn put(&self, replica: Replica, notice: Revocations) {
        self.notices.send_if_modified(|notices| {
            if notices
                .iter()
                .any(|(_, other)| other.mac == notice.mac && **other == notice)
            {
                return false;
            }
            let mut all = notices.to_vec();
            all.push((replica, Arc::new(notice)));
            let own = |(of, _): &Bulletin| *of == replica;
            if all.iter().filter(|notice| own(notice)).count() > MAX_NOTICES_PER_RELAY
                && let Some(oldest) = all.iter().position(own)
            {
                all.remove(oldest);
            }
            if all.len() > MAX_NOTICES {
                all.remove(0);
            }
            *notices = all.into();
            true
        });
    }

    /// Returns a reader of the notices for the relay `replica`, from now on.
    pub(super) fn reader(&self, replica: Replica) -> GossipReader {
        GossipReader {
            notices: self.notices.subscribe(),
            replica,
            delivered: HashSet::new(),
        }
    }
}

impl GossipReader {
    /// Returns the next notice that the relay does not have.
    fn next(&mut self) -> Option<Arc<Revocations>> {
        let notices = Arc::clone(&self.notices.borrow_and_update());
        // Forgets notices that are no longer stored.
        self.delivered
            .retain(|mac| notices.iter().any(|(_, notice)| notice.mac == *mac));
        let others = notices.iter().filter(|(of, _)| *of != self.replica);
        let mut undelivered = others.filter(|(_, notice)| !self.delivered.contains(&notice.mac));
        let notice = Arc::clone(&undelivered.next()?.1);
        self.delivered.insert(notice.mac);
        Some(notice)
    }

    /// Waits for the next notice, at the earliest at `after`. Cancel safe.
    pub(super) async fn next_after(&mut self, after: Instant) -> Arc<Revocations> {
        sleep_until(after).await;
        loop {
            if let Some(notice) = self.next() {
                return notice;
            }
            if self.notices.changed().await.is_err() {
                // The gossip outlives every link.
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for ProcessLink {
    fn drop(&mut self) {
        let replica = self.replica;
        self.relays
            .send_modify(|relays| relays.retain(|known| *known != replica));
    }
}

/// Truncates `relays` to as many as a message holds.
pub(super) fn few(relays: &[Replica]) -> Vec<Replica> {
    relays.iter().take(MAX_RELAYS).copied().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn notice(mac: u8) -> Revocations {
        Revocations {
            entries: vec!["{}".into()],
            mac: Hex([mac; 32]),
        }
    }

    fn all(reader: &mut GossipReader) -> Vec<u8> {
        std::iter::from_fn(|| Some(reader.next()?.mac.0[0])).collect()
    }

    #[test]
    fn notice_reaches_every_other_relay_once_and_late_ones() {
        let gossip = RevocationGossip::new();
        let (one, other) = (Hex([1; 8]), Hex([2; 8]));
        let (mut first, mut second) = (gossip.reader(one), gossip.reader(other));
        gossip.put(one, notice(1));
        gossip.put(other, notice(1));
        gossip.put(other, notice(2));
        assert_eq!(all(&mut first), [2]);
        assert_eq!(all(&mut second), [1]);
        assert!(all(&mut second).is_empty());
        gossip.put(one, notice(3));
        assert_eq!(all(&mut second), [3]);
        assert_eq!(all(&mut gossip.reader(Hex([3; 8]))), [1, 2, 3]);
    }

    #[test]
    fn notices_of_one_relay_evict_only_its_own() {
        let gossip = RevocationGossip::new();
        gossip.put(Hex([1; 8]), notice(0));
        for mac in 1..=200 {
            gossip.put(Hex([2; 8]), notice(mac));
        }
        let remaining = all(&mut gossip.reader(Hex([3; 8])));
        assert_eq!(remaining.first(), Some(&0));
        assert_eq!(
            (remaining.len(), remaining.last()),
            (1 + MAX_NOTICES_PER_RELAY, Some(&200))
        );
    }

    #[test]
    fn relay_process_gets_one_link() {
        let gossip = RevocationGossip::new();
        let relays = gossip.relays();
        let link = gossip.claim(Hex([1; 8])).unwrap();
        assert!(gossip.claim(Hex([1; 8])).is_none());
        let other = gossip.claim(Hex([2; 8]));
        assert_eq!(*relays.borrow(), [Hex([1; 8]), Hex([2; 8])]);
        drop(link);
        assert_eq!(*relays.borrow(), [Hex([2; 8])]);
        drop(other);
        assert!(gossip.claim(Hex([1; 8])).is_some());
    }
}
