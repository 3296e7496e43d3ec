//! What this relay tells its predecessors and successors, and what becomes of what they tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::Takeover;
use super::link::PeerProcess;
use super::messages::{HeldWorker, MOST_REVOKED, MOST_ROWS, ProcessState, Restart};
use crate::audit::{Entry, EntryKind};
use crate::hold::{RemoteHold, held};
use crate::identity::revocation::Revocation;
use crate::ray::registry::{Breakpoint, Holder, RayNode};
use crate::wire::tunnel::messages::{Node, Replica};
use crate::wire::tunnel::text::Text;

/// How long it is waited for what another process has revoked to be written.
const TAKEN_IN: Duration = Duration::from_secs(5);

impl Takeover {
    /// What there is now.
    pub(super) fn own_state(&self) -> ProcessState {
        let list = self.registry.snapshot();
        let held = list.held().filter_map(|breakpoint| {
            let holder = breakpoint.holder().filter(|holder| holder.is_here())?;
            Some(row(breakpoint, holder, self.replica))
        });
        let reached: BTreeSet<String> = self
            .sessions
            .rows()
            .into_iter()
            .filter_map(|row| Some(row.breakpoint?.to_string()))
            .collect();
        let reached = reached.iter().take(MOST_ROWS);
        let is_parked = |b: &&Arc<Breakpoint>| {
            let holder = b.holder().filter(|holder| holder.is_here());
            holder.is_some_and(|holder| holder.parked_until.is_some())
        };
        let parked = list.held().filter(is_parked).take(MOST_ROWS);
        let families = self.families.names();
        let restarts = self.families.restarts();
        ProcessState {
            replica: self.replica,
            holds: held.take(MOST_ROWS).collect(),
            reached: reached.map(|id| id.as_str().into()).collect(),
            parked: parked.map(|b| b.id.to_string().as_str().into()).collect(),
            families: families
                .iter()
                .take(MOST_ROWS)
                .map(|name| name.as_str().into())
                .collect(),
            restarts: restarts
                .iter()
                .take(MOST_ROWS)
                .map(|(peer, client)| Restart {
                    peer: *peer,
                    client: client.as_str().into(),
                })
                .collect(),
            takes_parks: !self.shutdown.drain.is_cancelled(),
            revocations: self.revocations(),
        }
    }

    /// What is revoked, as lines.
    fn revocations(&self) -> Vec<Text<2048>> {
        let Some(list) = self.auth.revocations() else {
            return Vec::new();
        };
        let list = Arc::clone(&list.borrow());
        let mut bytes = 0;
        let lines = list.iter().map(|revocation| revocation.to_line());
        let whole = lines.filter_map(|line| {
            let text = Text::new(&line);
            // Nothing that is not said as it is.
            (*text == *line).then_some(text)
        });
        whole
            .take_while(|line| {
                bytes += line.len();
                bytes <= MOST_REVOKED
            })
            .collect()
    }

    /// Takes in what `neighbour` has told.
    pub(super) async fn take_in(&self, neighbour: &PeerProcess, state: ProcessState) {
        let holds = state.holds.iter().take(MOST_ROWS).map(|row| RemoteHold {
            node: RayNode {
                cluster: (*row.node.cluster).into(),
                node_id: (*row.node.node_id).into(),
                address: row.node.address,
            },
            held: row.held.clone(),
            at_neighbour: true,
        });
        self.agents.hear_neighbour(state.replica, holds.collect());
        let lines = state.revocations.clone();
        neighbour.set_state(state);
        self.revoke(neighbour, &lines).await;
    }

    async fn revoke(&self, neighbour: &PeerProcess, lines: &[Text<2048>]) {
        let read = lines.iter().filter_map(|line| Revocation::from_line(line));
        let said: Vec<_> = read.collect();
        if said.is_empty() || !self.auth.is_on() {
            return;
        }
        match timeout(TAKEN_IN, self.auth.hear(said)).await {
            Ok(Ok(news)) if !news.is_empty() => {
                let pid = neighbour.pid;
                info!(
                    revocations = news.len(),
                    pid, "another relay of this machine has revoked credentials"
                );
                let lines: Vec<_> = news.iter().map(Revocation::to_line).collect();
                let entry = Entry::new(EntryKind::Administration)
                    .with("command", "revoke")
                    .with("outcome", "heard")
                    .with("pid", pid)
                    .with("revocations", lines);
                if let Err(why) = self.audit.write(entry).await {
                    warn!(%why, "another relay's revocation is not on record");
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(why)) => warn!(%why, "another relay's revocation may not take effect here"),
            Err(_) => warn!("another relay's revocation takes too long to be written here"),
        }
    }
}

fn row(breakpoint: &Breakpoint, holder: &Holder, replica: Replica) -> HeldWorker {
    HeldWorker {
        node: Node {
            cluster: (&*breakpoint.cluster).into(),
            node_id: (&*breakpoint.node_id).into(),
            address: breakpoint.node_ip,
        },
        held: held(&breakpoint.worker(), holder, replica),
    }
}
