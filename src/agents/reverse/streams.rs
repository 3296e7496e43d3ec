//! The streams that a person's command is to open, one for each worker: waited for here, delivered by whoever takes the
//! request.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::{Agents, Socket, is_same, secret};
use crate::identity::Principal;
use crate::wire::tunnel::messages::StreamId;
use crate::wire::tunnel::text::Hex;

/// Streams that are waited for, by their ids.
pub(super) type Streams = Mutex<HashMap<StreamId, Waiting>>;

pub(super) struct Waiting {
    secret: Hex<16>,
    person: Principal,
    deliver: oneshot::Sender<Delivered>,
}

/// A stream that has come.
pub(crate) struct Delivered {
    pub(crate) socket: Socket,
    /// Dropped, it tells that the stream is over.
    pub(crate) open: oneshot::Sender<()>,
}

/// A stream that is waited for. Dropped, it is no longer.
pub(crate) struct Expected {
    agents: Arc<Agents>,
    pub(crate) stream: StreamId,
    pub(crate) secret: Hex<16>,
    delivered: oneshot::Receiver<Delivered>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.agents.reverse.streams.lock().remove(&self.stream);
    }
}

impl Expected {
    /// The stream, once it has come. To be bounded by the caller. Cancel safe.
    pub(crate) async fn come(&mut self) -> Option<Delivered> {
        (&mut self.delivered).await.ok()
    }
}

/// Whoever waits for a stream that a person's command is about to open.
pub(crate) struct Handover(oneshot::Sender<Delivered>);

impl Handover {
    /// Hands `socket` over, and returns when the stream is over.
    pub(crate) async fn hand_over(self, socket: Socket) {
        let (open, closed) = oneshot::channel();
        if self.0.send(Delivered { socket, open }).is_ok() {
            // Nothing is ever sent.
            let _ = closed.await;
        }
    }
}

impl Agents {
    /// Waits for a stream of `person`'s command; `None`: the system has no randomness.
    pub(crate) fn expect(self: &Arc<Self>, person: &Principal) -> Option<Expected> {
        let (stream, secret) = (secret()?, secret()?);
        let (deliver, delivered) = oneshot::channel();
        let waiting = Waiting {
            secret,
            person: person.clone(),
            deliver,
        };
        self.reverse.streams.lock().insert(stream, waiting);
        Some(Expected {
            agents: Arc::clone(self),
            stream,
            secret,
            delivered,
        })
    }

    /// A stream of that name is waited for.
    pub(in crate::agents) fn is_expected(&self, id: &StreamId) -> bool {
        self.reverse.streams.lock().contains_key(id)
    }

    /// Who waits for the stream `id`, where `person` is who was told of it and `shown` is its secret. Once: whoever comes with
    /// the same later finds nobody. Of a wrong secret nothing becomes known.
    pub(crate) fn expected(&self, id: &str, shown: &str, person: &Principal) -> Option<Handover> {
        let (id, shown) = (StreamId::parse(id)?, Hex::<16>::parse(shown)?);
        let mut all = self.reverse.streams.lock();
        let waiting = all.get(&id)?;
        // A token may have been renewed since the link began.
        let same = waiting.person.subject() == person.subject();
        if !is_same(&waiting.secret, &shown) || !same {
            return None;
        }
        all.remove(&id).map(|waiting| Handover(waiting.deliver))
    }
}
