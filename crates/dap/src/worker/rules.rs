//! Selects the messages that the session must see.

use crate::message_filter::{Captures, Examined, MessageFilter};
use crate::messages;
use ray_relay_base::wire::dap::peek::{Depth, MessageType};
use ray_relay_base::wire::dap::scanner::Rules;
use ray_relay_session::context::Context;
use ray_relay_session::session::live::Live;

/// Captures every message of both directions, for a session that is recorded.
fn captures_everything(_: MessageType, _: &[u8]) -> bool {
    true
}

/// The capture rules for messages of the client and of the worker.
pub(super) fn rules(context: &Context, live: &Live<'_>, filter: &MessageFilter) -> (Rules, Rules) {
    let dap = &context.config.dap;
    let up = Rules {
        depth: Depth::Whole,
        captures: match live.capture.is_on() {
            true => captures_everything,
            false => filter.captures_from_client(match live.audit.wants_commands() {
                true => messages::captures_for_record,
                false => messages::captures_from_client,
            }),
        },
        examined: |_, _| None,
        max_captured: dap.max_frame,
        max_passed: dap.max_frame,
    };
    let (captures, examined): (Captures, Examined) = match live.capture.is_on() {
        true => (captures_everything, |_, _| None),
        false => (filter.captures_from_worker(), filter.examined()),
    };
    let down = Rules {
        depth: Depth::Deciding,
        captures,
        examined,
        max_captured: dap.max_frame,
        // Forwarded as it arrives, without buffering, so its size is the client's concern.
        max_passed: usize::MAX / 2,
    };
    (up, down)
}
