//! What the two ends of a link say beside the bytes: texts, where the bytes are binary messages and an empty one is their end.

use serde::{Deserialize, Serialize};

use crate::wire::tunnel::messages::Replica;
use crate::wire::tunnel::text::Hex;

/// What names a link. No secret.
pub type LinkId = Hex<8>;

/// What shows that a link is resumed by its opener.
pub type LinkSecret = Hex<16>;

/// Which command opens a link. Of two at the same place of the same person, the later one has followed the earlier one, which
/// is gone: a port is listened on once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    /// The machine, the user and the port, unreadably.
    pub place: Hex<8>,
    /// The process, by a random number.
    pub process: Hex<8>,
}

impl Opener {
    /// What its header says.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, process) = text.split_once('.')?;
        Some(Self {
            place: Hex::parse(place)?,
            process: Hex::parse(process)?,
        })
    }

    /// What its header says.
    pub fn text(&self) -> String {
        format!("{}.{}", self.place.digits(), self.process.digits())
    }

    /// Whether it is another process at the place of `earlier`.
    pub fn follows(&self, earlier: &Self) -> bool {
        self.place == earlier.place && self.process != earlier.process
    }
}

/// A message of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResumeMessage {
    /// The relay's first word on a new link.
    Begun {
        /// Its name.
        link: LinkId,
        /// What it is resumed with.
        secret: LinkSecret,
        /// Which relay it is.
        replica: Replica,
        /// How long it is held without a transport, in seconds.
        held: u64,
    },
    /// The relay's first word where a link was resumed.
    Resumed {
        /// It has everything before that.
        received: u64,
    },
    /// The command's word that a client has connected: until then the link waits for one. Said again over every transport.
    Used,
    /// Everything before that was taken, and as much more may come.
    Taken {
        /// The position.
        before: u64,
    },
    /// The reader here is gone.
    Gone,
    /// Of another version: nothing to go by.
    #[serde(other)]
    Unknown,
}
