//! Messages that are looked at and passed on before anybody else in the session hears of them.
//!
//! They are nearly all. What else can befall a session has not to be looked at again for each, as after a message that the
//! session acts on.

use tokio::task::yield_now;

use crate::dap::message_filter::MessageFilter;
use crate::debugger::Worker;
use crate::wire::dap::splice::{Side, Splice, SpliceEvent};
use crate::wire::peer_stream::PeerStream;

/// Bytes that are looked through before everybody else has a turn.
const TURN: usize = 64 * 1024;

/// The next event of `splice` that the session has to see; messages that `filter` alone decides on are passed on. Cancel
/// safe: whatever it waits for, nothing is held here.
pub(super) async fn next<S: PeerStream>(
    splice: &mut Splice<S, Worker>,
    filter: &mut MessageFilter,
) -> SpliceEvent {
    let mut looked_through = 0;
    loop {
        if looked_through >= TURN {
            looked_through = 0;
            yield_now().await;
        }
        match splice.next().await {
            SpliceEvent::Captured(Side::Worker, body) if filter.passes(&body) => {
                looked_through += body.len();
                splice.insert_body(Side::Client, &body);
            }
            SpliceEvent::Captured(Side::Client, body) => match filter.narrowed(&body) {
                Some(request) => {
                    looked_through += body.len();
                    splice.insert_body(Side::Worker, request.as_bytes());
                }
                None => return SpliceEvent::Captured(Side::Client, body),
            },
            event => return event,
        }
    }
}
