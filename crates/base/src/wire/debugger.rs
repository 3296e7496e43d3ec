//! The debuggers that a worker may have, and their properties.
//!
//! No code compares a [`Kind`] with a literal: properties are methods here, and actions are a `match` that names all
//! kinds. A new kind does not compile until each of these handles it.

use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

/// The one of Ray's two debuggers that listens on a port of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The Ray Distributed Debugger: a debugpy adapter on a port of the node.
    #[default]
    Debugpy,
    /// The legacy debugger (`RAY_DEBUG=legacy`): a pdb prompt on a port of the node, which accepts a single
    /// connection.
    Pdb,
}

impl Kind {
    /// The name in the API and between relays and agents, and the label in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debugpy => "debugpy",
            Self::Pdb => "pdb",
        }
    }

    /// The kind that the API calls `word`; `None`: one of a newer relay.
    pub fn named(word: &str) -> Option<Self> {
        let word: StrDeserializer<'_, Error> = word.into_deserializer();
        Self::deserialize(word).ok()
    }

    /// Whether editors can talk to it. A debugger without DAP has a prompt for people.
    pub fn speaks_dap(self) -> bool {
        match self {
            Self::Debugpy => true,
            Self::Pdb => false,
        }
    }

    /// Whether Ray lists it in an entry of its own in the GCS, which describes the stop completely and disappears when
    /// a client enters it. Otherwise it is in the row of its worker for the worker's lifetime.
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
    fn debugger_kind_has_one_name_everywhere() {
        for (kind, word) in [(Kind::Debugpy, "debugpy"), (Kind::Pdb, "pdb")] {
            assert_eq!(kind.word(), word);
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
            assert_eq!(serde_json::from_value::<Kind>(word.into()).unwrap(), kind);
            assert_eq!(Kind::named(word), Some(kind));
        }
        assert_eq!(Kind::named("dap"), None);
    }
}
