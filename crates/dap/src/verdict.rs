//! Decisions of a filter about messages.

use serde_json::{Value, json};

use ray_relay_access::policy::Scope;
use ray_relay_base::wire::dap::message;
use ray_relay_base::wire::dap::names::Command;

/// A decision of the filter about a message.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Send to the worker, after the relay's own handling.
    ToWorker(Value),
    /// A request of the relay's own: send to the worker unchanged.
    Ask(Value),
    /// Send to the client, after the relay's own handling.
    ToClient(Value),
    /// Refuse a request: `answer` goes to the client.
    Refuse {
        /// The request, fit for a log.
        command: String,
        /// The missing permission.
        missing: Option<Scope>,
        /// The answer to the client.
        answer: Value,
    },
}

/// First `seq` that clients may not use: the relay's own requests have numbers from here on.
pub const FIRST_OWN_SEQ: u64 = 0x6000_0000;

/// Has the worker's debugger evaluate an expression of the relay's own in `frame`.
pub(super) fn ask(seq: u64, frame: u64, expression: &str) -> Action {
    let arguments = json!({"expression": expression, "frameId": frame, "context": "clipboard"});
    Action::Ask(message::request(seq, Command::Evaluate, arguments))
}

pub(super) fn pass(seq: u64, command: impl AsRef<str>, arguments: Value) -> Action {
    Action::ToWorker(message::request(seq, command, arguments))
}
