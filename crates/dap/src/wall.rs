//! The wall: what a worker's debugger may have the client's editor do.
//!
//! Pure. The worker runs a job's code, and editors carry out what a debugger asks of them: run a program, start a session by
//! any configuration, open whatever a path names, follow a link. Through a relay there is only *attach*, so that is what
//! passes, and nothing else. [`super::messages`] has the decision for each message; this room has those for fields:
//!
//! | what | what passes |
//! |---|---|
//! | requests to the editor | `startDebugging` for a subprocess; any other is refused towards the worker |
//! | events | those that debugpy sends; any other is dropped |
//! | a child's configuration | made anew of the client's own arguments and the number of the process ([`Child`]); a pool's at once, and then one each second ([`Children`]) |
//! | `source` | its name, its number, and a path that names a file ([`fields`]) |
//! | failures | their sentence, without links |
//! | messages that are spliced | those without such a field, whatever they say they are ([`ray_relay_base::wire::dap::rest`]) |
//!
//! Source: debugpy 1.8.0 to 1.8.22; VS Code 1.139, nvim-dap, dape 0.27 and Helix 25.07, what each acts upon.

mod child;
mod children;
mod fields;
mod plain;
mod stack;
#[cfg(test)]
pub(super) mod tests;

use serde_json::Value;

pub(super) use self::child::Child;
pub(super) use self::children::{Children, Turn};
pub(super) use self::plain::LOGGED;
use super::messages::{FromWorker, OfWorker};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::dap::rest::Rest;

/// Whether the message with this `body` may go to a client as it came, in the worker's own bytes, and the relay has nothing
/// to do with it. In doubt it may not, and [`clean`] is for it.
pub(crate) fn as_it_came(body: &[u8]) -> bool {
    let mut walk = Walk::new(Depth::Deciding);
    let Peek::Known(kind, name) = walk.peek(body, body.len()) else {
        return false;
    };
    if !walk.is_usual(kind) {
        return false;
    }
    match OfWorker::of(kind, name).handling {
        FromWorker::Pass => {
            let mut rest = Rest::new();
            rest.pass(&body[walk.looked_at()..]).is_ok() && rest.is_over()
        }
        FromWorker::Look => {
            kind == MessageType::Event
                && name == Event::Output.as_str().as_bytes()
                && plain::output(body)
        }
        FromWorker::Stack => stack::is_plain(body),
        _ => false,
    }
}

/// Whether the message with this `body` tells where a thread stands.
pub(crate) fn is_stack(body: &[u8]) -> bool {
    let seen = Walk::new(Depth::Deciding).peek(body, body.len());
    matches!(seen, Peek::Known(kind, name) if OfWorker::of(kind, name).handling == FromWorker::Stack)
}

/// Takes out of a worker's `message` what no client may see of it. Whether the message passes at all is for its row to say.
pub fn clean(message: &mut Value) {
    let text = |key: &str| message.get(key).and_then(Value::as_str);
    match text("type") {
        Some("response") => fields::response(message),
        Some("event") => {
            let known = text("event").and_then(|name| Event::parse(name.as_bytes()));
            fields::event(message, known);
        }
        _ => {}
    }
}
