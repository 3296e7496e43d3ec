//! A process that has taken over, for tests of what it is given; and one that hands over.
#![allow(clippy::unwrap_used)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use super::link::{OutgoingMessage, PeerProcess, UnlinkedPeer, Who};
use super::messages::{Message, PROTOCOL, ProcessState};
use super::{PassedPark, Takeover};
use crate::hold::{RemoteHold, held};
use crate::ray::registry::{Breakpoint, Holder, RayNode};
use crate::wire::descriptors::channel;
use crate::wire::tunnel::messages::Replica;
use crate::wire::tunnel::text::Hex;

/// Which process a predecessor is.
const PREDECESSOR: Replica = Hex([7; 8]);

fn another() -> Who {
    Who {
        protocol: PROTOCOL,
        version: "".into(),
        pid: 0,
        generation: 1,
    }
}

/// What a predecessor says of `breakpoint`, which its session of `holder` has.
pub(crate) fn held_by_predecessor(breakpoint: &Breakpoint, holder: &Holder) -> RemoteHold {
    RemoteHold {
        node: RayNode {
            cluster: Arc::clone(&breakpoint.cluster),
            node_id: Arc::clone(&breakpoint.node_id),
            address: breakpoint.node_ip,
        },
        held: held(&breakpoint.worker(), holder, PREDECESSOR),
        at_neighbour: true,
    }
}

/// See the module.
pub(crate) struct TestSuccessor {
    peer: Arc<PeerProcess>,
    state: ProcessState,
    given: mpsc::Receiver<OutgoingMessage>,
}

impl Takeover {
    /// Another process has taken over, and has told nothing yet.
    pub(crate) fn succeeded_by(&self) -> TestSuccessor {
        let UnlinkedPeer { neighbour, to_say } = self.enter(&another(), false);
        self.succeeded.cancel();
        TestSuccessor {
            peer: neighbour,
            state: self.own_state(),
            given: to_say,
        }
    }
}

impl Takeover {
    /// What comes of it here where a predecessor says that it has `hold`, hands that over, and has it no longer.
    pub(crate) async fn handed_over(
        &self,
        hold: RemoteHold,
        connection: OwnedFd,
        stored: Value,
    ) -> PassedPark {
        self.agents.hear_neighbour(PREDECESSOR, vec![hold]);
        self.take_park(connection, stored);
        self.agents.hear_neighbour(PREDECESSOR, Vec::new());
        self.coming_parks().unwrap().recv().await.unwrap()
    }

    /// A predecessor has said that it has `hold`, and has ended.
    pub(crate) async fn loses_predecessor(self: &Arc<Self>, hold: RemoteHold) {
        let entered = self.enter(&another(), true);
        entered.neighbour.set_state(ProcessState {
            replica: PREDECESSOR,
            ..self.own_state()
        });
        self.agents.hear_neighbour(PREDECESSOR, vec![hold]);
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let (reader, writer) = channel(near);
        self.link(entered, reader, writer);
        while self
            .registry
            .remote(|said| said.processes().next().is_some())
        {
            yield_now().await;
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
                    hold: None,
                };
            }
        }
    }
}
