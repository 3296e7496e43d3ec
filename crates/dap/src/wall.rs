//! The message sanitizer (towards the editor): what a worker's debugger may make the client's editor do.
//!
//! Pure. The worker runs a job's code, and editors obey a debugger: they run a program, start a session by any
//! configuration, open any path, follow a link. Through a relay there is only *attach*, so nothing else passes.
//! [`super::messages`] decides about each message, this module about fields:
//!
//! | message or field | what passes |
//! |---|---|
//! | requests to the editor | `startDebugging` for a subprocess; any other is refused towards the worker |
//! | events | those that debugpy sends; any other is dropped |
//! | a child's configuration | rebuilt from the client's own arguments and the pid ([`Child`]); a pool's at once, and then one each second ([`Children`]) |
//! | `source` | its name, its number, and a path that names a file ([`fields`]) |
//! | failures | their sentence, without links |
//! | spliced messages | those without such a field, whatever type they claim ([`ray_relay_base::wire::dap::rest`]) |
//!
//! Source: debugpy 1.8.0 to 1.8.22; VS Code 1.139, nvim-dap, dape 0.27 and Helix 25.07, and the fields on which each
//! acts.

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
pub(super) use self::plain::LOG_MARK;
use super::messages::{FromWorker, OfWorker};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::dap::rest::Rest;

/// Whether the message with this `body` may go to a client unchanged, in the worker's own bytes, without handling by
/// the relay. If in doubt it may not, and [`clean`] handles it.
pub(crate) fn passes_unchanged(body: &[u8]) -> bool {
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

/// Whether the message with this `body` has the location of a thread.
pub(crate) fn is_stack(body: &[u8]) -> bool {
    let seen = Walk::new(Depth::Deciding).peek(body, body.len());
    matches!(seen, Peek::Known(kind, name) if OfWorker::of(kind, name).handling == FromWorker::Stack)
}

/// Removes from a worker's `message` what no client may see. Its row decides whether it passes at all.
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
