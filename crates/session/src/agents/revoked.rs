//! What is revoked at one relay is revoked at those that are linked with the same agents.
//!
//! A relay tells each agent what is in force when that links, and whatever comes to it later; the agent passes it on. The
//! lines are sealed with a key that comes of `auth.ticket_key_file`: who has that may revoke, agents have not. What was
//! said before changes nothing, and nothing is ever taken back. Without that file nothing is said, and nothing believed.
//!
//! Bounds: [`PAGES`] of [`LINES`] lines or [`BYTES`] to one agent, those that are the last to expire.

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
const LINES: usize = MAX_ROWS;

/// Bytes of the lines of one message.
const BYTES: usize = 32 * 1024;

/// Messages that an agent that links is told, which is what agents keep of one relay.
const PAGES: usize = 16;

/// How long it is waited for what another relay has revoked to be written.
const TAKEN_IN: Duration = Duration::from_secs(5);

/// Messages of others that are known again: each comes through every agent.
const KNOWN: usize = 1024;

/// What other relays have said.
#[derive(Default)]
pub(super) struct SeenRevocations {
    /// The newest last.
    macs: VecDeque<Hex<32>>,
    /// It was said in the log that something was not believed.
    doubted: bool,
}

impl SeenRevocations {
    fn knows(&self, said: &Revocations) -> bool {
        self.macs.contains(&said.mac)
    }

    fn remember(&mut self, said: &Revocations) {
        if self.macs.len() >= KNOWN {
            self.macs.pop_front();
        }
        self.macs.push_back(said.mac);
    }
}

/// `revocations` as messages, those that are the last to expire first.
fn pages(seal: &RevocationSeal, mut revocations: Vec<Revocation>) -> Vec<Revocations> {
    // The same list gives the same messages, whichever relay says them.
    let first = |revocation: &Revocation| {
        let until = revocation.until;
        std::cmp::Reverse((until.is_none(), until, revocation.to_line()))
    };
    revocations.sort_by_cached_key(first);
    let mut pages: Vec<Vec<Text<2048>>> = Vec::new();
    let mut bytes = 0;
    for line in revocations.iter().map(Revocation::to_line) {
        let entry = Text::new(&line);
        // Nothing that is not said as it is.
        if *entry != *line {
            continue;
        }
        bytes += line.len();
        match pages.last_mut() {
            Some(page) if page.len() < LINES && bytes <= BYTES => page.push(entry),
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
    /// Tells the agent of `link`, which is there now, what is revoked.
    pub(super) fn tell_what_is_revoked(&self, link: &Link) {
        let (Some(seal), Some(list)) = (self.auth.revocation_seal(), self.auth.revocations())
        else {
            return;
        };
        let list = Arc::clone(&list.borrow());
        tell(
            link,
            pages(seal, list.iter().collect()).into_iter().take(PAGES),
        );
    }

    /// Tells every agent what comes to be revoked, until `shutdown`.
    pub(super) async fn tell_revocations(&self, shutdown: CancellationToken) {
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
                tell(&link, pages.iter().take(PAGES).cloned());
            }
            known = list;
        }
    }

    /// Takes in what the agent of `link` passes on.
    pub(super) async fn hear_revocations(&self, link: &Link, said: Revocations) {
        if self.heard.lock().knows(&said) {
            return;
        }
        let believed = match self.auth.revocation_seal() {
            Some(seal) => seal.is_of(&said.mac.0, said.entries.iter().map(|entry| &**entry)),
            None => false,
        };
        if !believed {
            // Once: it may come through every agent.
            if !std::mem::replace(&mut self.heard.lock().doubted, true) {
                warn!(
                    agent = %link.about.hostname, peer = %link.peer,
                    "ignored revocations from an agent: they are not sealed with this relay's auth.ticket_key_file; give all relays the same file"
                );
            }
            return;
        }
        let read = said.entries.iter();
        let revocations = read.filter_map(|entry| Revocation::from_line(entry));
        // A disk that hangs holds up no link: what is revoked holds before it is written.
        let heard = timeout(TAKEN_IN, self.auth.apply_revocations(revocations.collect())).await;
        match heard.unwrap_or(Err(RevokeError::Late)) {
            Ok(news) => {
                if !news.is_empty() {
                    self.revoked(link, &news).await;
                }
                self.heard.lock().remember(&said);
            }
            Err(why) => warn!(%why, "another relay's revocation may not take effect here"),
        }
    }

    /// Has agents let the tasks run that they keep for a person whose credential is revoked. Agents know of no revocations:
    /// whichever relay is linked with them looks.
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
            let told = link.is_some_and(|link| link.tell(FromRelay::LetRun(LetRun::of(&held))));
            info!(
                told,
                "an agent keeps a worker for a revoked credential: its task is released"
            );
        }
    }

    /// Puts on record what holds already: nothing waits for the record to be safe.
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

/// Says `pages` on `link`. Where it takes them not, it ends, and is told everything when it comes again.
fn tell(link: &Link, pages: impl Iterator<Item = Revocations>) {
    for page in pages {
        if !link.tell(FromRelay::Revocations(page)) {
            return link.end(AgentLinkEnd::Broken);
        }
    }
}
