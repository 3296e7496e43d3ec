//! Whether a credential is still accepted by its issuer, beyond what the relay can see for itself.

use tokio::sync::watch;

/// Why a credential is not accepted any more by its issuer. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Withdrawn {
    /// It is no credential any more.
    #[error(
        "Kubernetes does not accept your token any more: it has expired, or what it was made for is deleted"
    )]
    NotAccepted,
    /// It permits less than before.
    #[error(
        "your roles in Kubernetes allow less than when you connected; connect again with what remains"
    )]
    AllowsLess,
    /// It says another name.
    #[error(
        "Kubernetes now attributes your token to another user, or to other groups; connect again"
    )]
    OtherUser,
    /// No word has come.
    #[error(
        "Kubernetes has not answered the relay for kubernetes.outage_grace; connect again when it does"
    )]
    Unanswered,
}

/// Held by every principal of one credential. While any clone is held, its issuer is asked again and again.
#[derive(Debug, Clone)]
pub(super) struct Validity(watch::Receiver<Option<Withdrawn>>);

/// The other end, of the task that asks.
#[derive(Debug)]
pub(super) struct Revoker(watch::Sender<Option<Withdrawn>>);

/// A credential that is accepted now.
pub(super) fn validity() -> (Revoker, Validity) {
    let (withdraw, validity) = watch::channel(None);
    (Revoker(withdraw), Validity(validity))
}

impl Validity {
    /// Why it is not accepted any more, where it is not.
    pub(super) fn is_withdrawn(&self) -> Option<Withdrawn> {
        *self.0.borrow()
    }

    /// Resolves when it is not accepted any more. Cancel safe.
    pub(super) async fn withdrawn(&self) {
        let mut withdrawn = self.0.clone();
        if withdrawn.wait_for(Option::is_some).await.is_err() {
            // No task asks any more: the relay is about to end, by another way.
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
    pub(super) fn withdraw(&self, why: Withdrawn) {
        self.0.send_replace(Some(why));
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
