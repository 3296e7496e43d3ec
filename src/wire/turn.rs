//! How long one direction of a session may go on before everybody else's turn.

use std::pin::pin;
use std::task::{Context, Poll};

/// Bytes that are read of one direction before other sessions get their turn.
pub(crate) const TURN: usize = 128 * 1024;

/// The same where they are encrypted or decrypted on the way, which takes several times as long.
pub(crate) const SEALED_TURN: usize = TURN / 4;

/// Goes on after everybody else who can, and after a look at who can: with a plain wake the runtime would look only
/// at every 61st turn, and a small message would wait for all of those.
pub(crate) fn yield_turn<T>(cx: &mut Context<'_>) -> Poll<T> {
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}
