//! Whether a credential is still accepted by whoever issued it, beyond what the relay can see for itself.

use tokio::sync::watch;

/// Held by every principal of one credential. While any clone is held, its issuer is asked again and again.
#[derive(Debug, Clone)]
pub(super) struct Validity(watch::Receiver<bool>);

/// The other end, of whoever asks.
#[derive(Debug)]
pub(super) struct Revoker(watch::Sender<bool>);

/// A credential that is accepted now.
pub(super) fn validity() -> (Revoker, Validity) {
    let (withdraw, validity) = watch::channel(false);
    (Revoker(withdraw), Validity(validity))
}

impl Validity {
    /// It is not accepted any more.
    pub(super) fn is_withdrawn(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when it is not accepted any more. Cancel safe.
    pub(super) async fn withdrawn(&self) {
        let mut withdrawn = self.0.clone();
        if withdrawn.wait_for(|withdrawn| *withdrawn).await.is_err() {
            // Nobody asks any more: the relay is about to end, by another way.
            std::future::pending().await
        }
    }
}

impl Revoker {
    /// One more that holds it.
    pub(super) fn validity(&self) -> Validity {
        Validity(self.0.subscribe())
    }

    /// Says that it is not accepted any more, for good.
    pub(super) fn withdraw(&self) {
        self.0.send_replace(true);
    }

    /// How many hold it.
    pub(super) fn holders(&self) -> usize {
        self.0.receiver_count()
    }

    /// Whether `validity` is of this one.
    pub(super) fn is_of(&self, validity: &Validity) -> bool {
        self.0.subscribe().same_channel(&validity.0)
    }
}
