//! A process that has taken over, for tests of what it is given.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use tokio::sync::mpsc;

use super::link::{OutgoingMessage, PeerProcess, UnlinkedPeer, Who};
use super::messages::{Message, PROTOCOL, ProcessState};
use super::{PassedPark, Takeover};

/// See the module.
pub(crate) struct TestSuccessor {
    peer: Arc<PeerProcess>,
    state: ProcessState,
    given: mpsc::Receiver<OutgoingMessage>,
}

impl Takeover {
    /// Another process has taken over, and has told nothing yet.
    pub(crate) fn succeeded_by(&self) -> TestSuccessor {
        let who = Who {
            protocol: PROTOCOL,
            version: "".into(),
            pid: 0,
            generation: 1,
        };
        let UnlinkedPeer { neighbour, to_say } = self.enter(&who, false);
        self.succeeded.cancel();
        TestSuccessor {
            peer: neighbour,
            state: self.own_state(),
            given: to_say,
        }
    }
}

impl TestSuccessor {
    /// It tells that it takes parks.
    pub(crate) fn takes_parks(&self) {
        self.peer.set_state(self.state.clone());
    }

    /// The next park that it is given.
    pub(crate) async fn next(&mut self) -> PassedPark {
        loop {
            if let (Message::Parked { stored }, Some(connection)) = self.given.recv().await.unwrap()
            {
                return PassedPark {
                    connection,
                    stored,
                    claim: None,
                };
            }
        }
    }
}
