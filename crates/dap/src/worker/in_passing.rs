//! Fast path: messages that are inspected and forwarded before anything else in the session runs.
//!
//! They are nearly all. The session's other events need no check after each, as they do after a message that the
//! session acts on.

use tokio::task::yield_now;

use crate::message_filter::MessageFilter;
use crate::source_folder;
use ray_relay_base::wire::dap::splice::{Side, Splice, SpliceEvent};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::Worker;

/// Bytes that are inspected before other tasks get a turn.
const MAX_TURN_BYTES: usize = 64 * 1024;

/// Resolves with the next event of `splice` that the session must see. Forwards messages that `filter` alone decides
/// about, and evaluations if they are `free`: neither audited nor refused. If the session `wants_stacks`, it sees
/// those. Cancel safe: nothing is held across awaits.
pub(super) async fn next<S: PeerStream>(
    splice: &mut Splice<S, Worker>,
    filter: &MessageFilter,
    free: bool,
    wants_stacks: bool,
) -> SpliceEvent {
    let mut looked_through = 0;
    loop {
        if looked_through >= MAX_TURN_BYTES {
            looked_through = 0;
            yield_now().await;
        }
        let passes = |from, body: &mut [u8]| match from {
            Side::Worker => filter.passes(body, wants_stacks),
            Side::Client => free && source_folder::is_expression(body),
        };
        match splice.next_but(passes).await {
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
