//! Whether its issuer still accepts a credential, beyond the relay's own checks.

use tokio::sync::watch;

/// Why its issuer no longer accepts a credential. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Withdrawn {
    /// It is no longer valid.
    #[error(
        "Kubernetes does not accept your token any more: it has expired, or what it was made for is deleted"
    )]
    NotAccepted,
    /// It grants less than before.
    #[error(
        "your roles in Kubernetes allow less than when you connected; connect again with what remains"
    )]
    AllowsLess,
    /// It now belongs to another user or other groups.
    #[error(
        "Kubernetes now attributes your token to another user, or to other groups; connect again"
    )]
    OtherUser,
    /// There was no answer in time.
    #[error(
        "Kubernetes has not answered the relay for kubernetes.outage_grace; connect again when it does"
    )]
    Unanswered,
}

/// Held by every principal of one credential. While any clone is held, its issuer is asked periodically.
#[derive(Debug, Clone)]
pub(super) struct Validity(watch::Receiver<Option<Withdrawn>>);

/// The sending end, held by the task that asks.
#[derive(Debug)]
pub(super) struct Revoker(watch::Sender<Option<Withdrawn>>);

/// Creates both ends for a credential that is accepted now.
pub(super) fn validity() -> (Revoker, Validity) {
    let (withdraw, validity) = watch::channel(None);
    (Revoker(withdraw), Validity(validity))
}

impl Validity {
    /// Returns why it is no longer accepted, if so.
    pub(super) fn is_withdrawn(&self) -> Option<Withdrawn> {
        *self.0.borrow()
    }

    /// Resolves when it is no longer accepted. Cancel safe.
    pub(super) async fn withdrawn(&self) {
        let mut withdrawn = self.0.clone();
        if withdrawn.wait_for(Option::is_some).await.is_err() {
            // No task asks any more: the relay is about to end on another path.
            std::future::pending().await
        }
    }
}

impl Revoker {
    /// Returns one more holder's end.
    pub(super) fn validity(&self) -> Validity {
        Validity(self.0.subscribe())
    }

    /// Publishes that it is no longer accepted, for good.
    pub(super) fn withdraw(&self, why: Withdrawn) {
        self.0.send_replace(Some(why));
    }

    /// Returns the number of holders.
    pub(super) fn holders(&self) -> usize {
        self.0.receiver_count()
    }

    /// Whether `validity` belongs to this sender.
    pub(super) fn is_of(&self, validity: &Validity) -> bool {
        self.0.subscribe().same_channel(&validity.0)
    }
}
