//! The messages of a link's two ends: texts, while bytes are binary messages and an empty one is their end.

use serde::{Deserialize, Serialize};

use crate::wire::tunnel::messages::Replica;
use crate::wire::tunnel::text::Hex;

/// The id of a link. Not secret.
pub type LinkId = Hex<8>;

/// The secret that proves that a link is resumed by its opener.
pub type LinkSecret = Hex<16>;

/// The command that opens a link. Of two with the same `place` and user, the later one replaces the earlier one, which
/// is gone: only one process can listen on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    /// A hash of the machine, the user and the port.
    pub place: Hex<8>,
    /// The process, as a random number.
    pub process: Hex<8>,
}

impl Opener {
    /// Parses the header.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, process) = text.split_once('.')?;
        Some(Self {
            place: Hex::parse(place)?,
            process: Hex::parse(process)?,
        })
    }

    /// Formats the header.
    pub fn text(&self) -> String {
        format!("{}.{}", self.place.digits(), self.process.digits())
    }

    /// Whether it is another process with the `place` of `earlier`.
    pub fn follows(&self, earlier: &Self) -> bool {
        self.place == earlier.place && self.process != earlier.process
    }
}

/// A message of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResumeMessage {
    /// The relay's first message on a new link.
    Begun {
        /// The id of the link.
        link: LinkId,
        /// The secret for resuming it.
        secret: LinkSecret,
        /// The relay process.
        replica: Replica,
        /// How long the link is held without a transport, in seconds.
        held: u64,
    },
    /// The relay's first message on a resumed link.
    Resumed {
        /// Position before which the relay has everything.
        received: u64,
    },
    /// The command reports that a client has connected; until then the link waits for one. Repeated over every
    /// transport.
    Used,
    /// Acknowledges that everything before this position was consumed, and as much more may be sent.
    Taken {
        /// The position.
        before: u64,
    },
    /// The reader of this side is gone.
    Gone,
    /// A message of another version, to be ignored.
    #[serde(other)]
    Unknown,
}
