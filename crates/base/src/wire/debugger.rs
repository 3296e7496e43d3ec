//! The debuggers that a worker may have, and what tells them apart.
//!
//! No code compares a [`Kind`] with another that is written down: what is asked of one is asked here, and what is done for
//! one is a `match` that names all. A further kind does not compile until each place has said what it does with it.

use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

/// Which of Ray's two debuggers listens on a port of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The Ray Distributed Debugger: a debugpy adapter on a port of the node.
    #[default]
    Debugpy,
    /// The legacy debugger (`RAY_DEBUG=legacy`): a pdb prompt on a port of the node, which any one connection consumes.
    Pdb,
}

impl Kind {
    /// The word in the API and between relays and agents, and the label in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debugpy => "debugpy",
            Self::Pdb => "pdb",
        }
    }

    /// The one that the API calls `word`; `None`: one of a newer relay's.
    pub fn named(word: &str) -> Option<Self> {
        let word: StrDeserializer<'_, Error> = word.into_deserializer();
        Self::deserialize(word).ok()
    }

    /// Whether editors can speak with it. What does not has a prompt of its own, for a person.
    pub fn speaks_dap(self) -> bool {
        match self {
            Self::Debugpy => true,
            Self::Pdb => false,
        }
    }

    /// Whether Ray lists it by an entry of its own in the GCS, which has all that there is to know of the stop and goes when
    /// a client enters it; otherwise it is in the row of its worker for as long as that lives.
    pub fn is_registered(self) -> bool {
        match self {
            Self::Debugpy => false,
            Self::Pdb => true,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_word_in_the_api_and_on_the_wire() {
        for (kind, word) in [(Kind::Debugpy, "debugpy"), (Kind::Pdb, "pdb")] {
            assert_eq!(kind.word(), word);
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
            assert_eq!(serde_json::from_value::<Kind>(word.into()).unwrap(), kind);
            assert_eq!(Kind::named(word), Some(kind));
        }
        assert_eq!(Kind::named("dap"), None);
    }
}
