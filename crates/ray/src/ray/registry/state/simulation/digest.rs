//! Distinguishes the states of the world in as few steps as possible: otherwise it would take most of a schedule's time.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::world::{Channel, Connection, Message, World};

/// Distinguishes states in as few steps as possible.
#[derive(Default)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn put(&mut self, one: usize, two: usize) {
        let both = (one as u64) << 32 ^ two as u64;
        self.0 = (self.0 ^ both).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 ^= self.0 >> 29;
    }

    fn end(self) -> u64 {
        self.0
    }
}

/// Of digests, which are as good as random.
#[derive(Default)]
pub(super) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("digests are numbers");
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

/// Digests of states.
pub(super) type Digests = HashSet<u64, BuildHasherDefault<Same>>;

impl World {
    /// Tells one state from another as far as that matters for what may come.
    pub(super) fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for worker in &self.workers {
            let (by, relay) = match worker.connection {
                None => (0, 0),
                Some(Connection::Direct(relay, _)) => (1, relay),
                Some(Connection::Agent) => (2, 0),
                Some(Connection::Keeper(machine)) => (3, machine),
            };
            let flags = 2 * usize::from(worker.is_paused) + usize::from(worker.is_dead);
            digest.put(8 * by + flags, 16 * relay + worker.owner.map_or(3, |p| p));
        }
        for agent in &self.agents {
            agent.digest(self.ms, &mut digest);
        }
        for relay in self.relays.iter().filter(|relay| relay.is_alive) {
            relay.digest(self.ms, &mut digest);
        }
        for (channel, queue) in &self.net {
            digest.put(channel.kind(), queue.len());
            for message in queue {
                digest.put(6, message.kind());
            }
        }
        for (relay, agent) in self.cuts.keys() {
            digest.put(16 * relay + agent, self.keeper_parks.len());
        }
        digest.end()
    }
}

impl Channel {
    pub(super) fn kind(self) -> usize {
        match self {
            Self::Poll(_) => 0,
            Self::ToAgent(..) => 1,
            Self::ToRelay(..) => 2,
            Self::Up(_) => 3,
            Self::Down(_) => 4,
        }
    }

    /// One of two for each kind.
    pub(super) fn lane(self) -> usize {
        let is_other = match self {
            Self::Poll(relay) => relay % 2 == 1,
            Self::ToAgent(relay, ..) | Self::ToRelay(relay, ..) => relay % 2 == 1,
            Self::Up(stream) | Self::Down(stream) => stream % 2 == 1,
        };
        if is_other { 6 } else { 0 }
    }
}

impl Message {
    fn kind(&self) -> usize {
        match self {
            Self::Rows(_, _, requested) if requested.is_empty() => 0,
            Self::Rows(..) => 12,
            Self::Report(..) => 1,
            Self::Open(..) => 2,
            Self::Resume(..) => 3,
            Self::Refused(_) => 4,
            Self::Connected(_) => 5,
            Self::Terms(..) => 6,
            Self::Detach(_) => 7,
            Self::Closed => 8,
            Self::Shutdown => 9,
        }
    }
}
