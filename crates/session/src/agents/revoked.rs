//! Propagates revocations to the relays linked with the same agents.
//!
//! A relay sends each agent its revocations when the agent links, and later ones as they come; the agent forwards them.
//! Messages are sealed with a key derived from `auth.ticket_key_file`: its holders may revoke, agents cannot.
//! Duplicates are ignored, and nothing is ever un-revoked. Without that file nothing is sent or accepted.
//!
//! Bounds: [`MAX_PAGES`] of [`MAX_LINES`] lines or [`MAX_BYTES`] to one agent, those that are the last to expire.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Agents;
use super::end::AgentLinkEnd;
use super::link::Link;
use ray_relay_access::audit::{Entry, EntryKind};
use ray_relay_access::identity::revocation::{Revocation, RevocationSeal, RevokeError, time};
use ray_relay_base::wire::tunnel::messages::{FromRelay, LetRun, MAX_ROWS, Parked, Revocations};
use ray_relay_base::wire::tunnel::text::{Hex, Text};
use ray_relay_ray::hold::{RemoteHold, RemoteHolds};

/// Lines of one message.
const MAX_LINES: usize = MAX_ROWS;

/// Bytes of the lines of one message.
const MAX_BYTES: usize = 32 * 1024;

/// Messages to an agent that links; agents keep as many of one relay.
const MAX_PAGES: usize = 16;

/// Deadline for writing another relay's revocations.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Remembered messages of other relays: each arrives through every agent.
const MAX_SEEN_MESSAGES: usize = 1024;

/// Revocation messages received from other relays.
#[derive(Default)]
pub(super) struct SeenRevocations {
    /// The newest last.
    macs: VecDeque<Hex<32>>,
    /// Whether the log already has the warning about an invalid seal.
    doubted: bool,
}

impl SeenRevocations {
    fn knows(&self, message: &Revocations) -> bool {
        self.macs.contains(&message.mac)
    }

    fn remember(&mut self, message: &Revocations) {
        if self.macs.len() >= MAX_SEEN_MESSAGES {
            self.macs.pop_front();
        }
        self.macs.push_back(message.mac);
    }
}

/// Packs `revocations` into messages, the last to expire first.
fn pages(seal: &RevocationSeal, mut revocations: Vec<Revocation>) -> Vec<Revocations> {
    // Deterministic: the same list gives the same messages at every relay.
    let first = |revocation: &Revocation| {
        let until = revocation.until;
        std::cmp::Reverse((until.is_none(), until, revocation.to_line()))
    };
    revocations.sort_by_cached_key(first);
    let mut pages: Vec<Vec<Text<2048>>> = Vec::new();
    let mut bytes = 0;
    for line in revocations.iter().map(Revocation::to_line) {
        let entry = Text::new(&line);
        // Skips lines that do not fit unchanged.
        if *entry != *line {
            continue;
        }
        bytes += line.len();
        match pages.last_mut() {
            Some(page) if page.len() < MAX_LINES && bytes <= MAX_BYTES => page.push(entry),
            _ => {
                bytes = line.len();
                pages.push(vec![entry]);
            }
        }
    }
    let sealed = pages.into_iter().map(|entries| Revocations {
        mac: Hex(seal.of(entries.iter().map(|entry| &**entry))),
        entries,
    });
    sealed.collect()
}

impl Agents {
    /// Sends the agent of `link` the current revocations.
    pub(super) fn send_revocations(&self, link: &Link) {
        let (Some(seal), Some(list)) = (self.auth.revocation_seal(), self.auth.revocations())
        else {
            return;
        };
        let list = Arc::clone(&list.borrow());
        send(
            link,
            pages(seal, list.iter().collect())
                .into_iter()
                .take(MAX_PAGES),
        );
    }

    /// Sends every agent new revocations, until `shutdown`.
    pub(super) async fn broadcast_revocations(&self, shutdown: CancellationToken) {
        let (Some(seal), Some(mut lists)) = (self.auth.revocation_seal(), self.auth.revocations())
        else {
            return shutdown.cancelled().await;
        };
        let mut known = Arc::clone(&lists.borrow_and_update());
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Ok(()) = lists.changed() => {}
            }
            let list = Arc::clone(&lists.borrow_and_update());
            let news = list.iter().filter(|revocation| !known.covers(revocation));
            let pages = pages(seal, news.collect());
            let links: Vec<_> = self.table.lock().all().cloned().collect();
            for link in links {
                send(&link, pages.iter().take(MAX_PAGES).cloned());
            }
            known = list;
        }
    }

    /// Applies a message that the agent of `link` forwards.
    pub(super) async fn apply_revocations(&self, link: &Link, message: Revocations) {
        if self.revocations.lock().knows(&message) {
            return;
        }
        let believed = match self.auth.revocation_seal() {
            Some(seal) => seal.is_of(&message.mac.0, message.entries.iter().map(|entry| &**entry)),
            None => false,
        };
        if !believed {
            // Logged once: it may arrive through every agent.
            if !std::mem::replace(&mut self.revocations.lock().doubted, true) {
                warn!(
                    agent = %link.about.hostname, peer = %link.peer,
                    "ignored revocations from an agent: they are not sealed with this relay's auth.ticket_key_file; give all relays the same file"
                );
            }
            return;
        }
        let entries = message.entries.iter();
        let revocations = entries.filter_map(|entry| Revocation::from_line(entry));
        // A slow disk must not block the link: revocations take effect before they are written.
        let applied = timeout(
            APPLY_TIMEOUT,
            self.auth.apply_revocations(revocations.collect()),
        )
        .await;
        match applied.unwrap_or(Err(RevokeError::Late)) {
            Ok(news) => {
                if !news.is_empty() {
                    self.revoked(link, &news).await;
                }
                self.revocations.lock().remember(&message);
            }
            Err(why) => warn!(%why, "another relay's revocation may not take effect here"),
        }
    }

    /// Has agents resume the tasks that they keep for a revoked credential. Agents know of no revocations: each linked
    /// relay checks.
    pub(super) fn end_revoked(&self) {
        let Some(revocations) = self.auth.revocations() else {
            return;
        };
        let revocations = Arc::clone(&revocations.borrow());
        if revocations.is_empty() {
            return;
        }
        let is_revoked = |parked: &Parked| {
            let credential = parked.credential.as_ref();
            credential.is_some_and(|credential| {
                let issued = credential.issued.and_then(time);
                revocations.revokes(&parked.owner, &credential.id, issued)
            })
        };
        for hold in self.registry.remote(RemoteHolds::sessions) {
            let RemoteHold { node, held, .. } = hold;
            if !held.parked.as_ref().is_some_and(is_revoked) {
                continue;
            }
            let table = self.table.lock();
            let link = table.of_node(&node.cluster, &node.node_id).cloned();
            drop(table);
            let notified =
                link.is_some_and(|link| link.try_send(FromRelay::LetRun(LetRun::of(&held))));
            info!(
                told = notified,
                "an agent keeps a worker for a revoked credential: its task is released"
            );
        }
    }

    /// Audits revocations that are in effect already, without waiting for durability.
    async fn revoked(&self, link: &Link, news: &[Revocation]) {
        info!(revocations = news.len(), agent = %link.about.hostname, "another relay has revoked credentials");
        let lines: Vec<_> = news.iter().map(Revocation::to_line).collect();
        let mut entry = Entry::new(EntryKind::Administration);
        entry.peer = Some(link.peer);
        let entry = entry
            .with("command", "revoke")
            .with("outcome", "heard")
            .with("link", link.id)
            .with("revocations", lines);
        self.on_record(entry).await;
    }
}

/// Sends `pages` on `link`. If its queue is full, the link ends, and the agent gets everything when it links again.
fn send(link: &Link, pages: impl Iterator<Item = Revocations>) {
    for page in pages {
        if !link.try_send(FromRelay::Revocations(page)) {
            return link.end(AgentLinkEnd::Broken);
        }
    }
}
