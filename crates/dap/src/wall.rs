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
//! | `source` | its name, its number, and a path that names a file ([`paths`]) |
//! | failures | their sentence, without links |
//! | spliced messages | what their schema lets pass ([`schemas`], [`ray_relay_base::wire::dap::schema`]) |
//!
//! Source: debugpy 1.8.0 to 1.8.22; VS Code 1.139, nvim-dap, dape 0.27 and Helix 25.07, and the fields on which each
//! acts.

mod child;
mod children;
mod fields;
mod paths;
mod schemas;
#[cfg(test)]
pub(super) mod tests;

use serde_json::Value;

pub(super) use self::child::Child;
pub(super) use self::children::{Children, Turn};
pub(super) use self::schemas::LOG_MARK;
pub use self::schemas::examined;
use super::messages::{FromWorker, OfWorker};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::dap::schema::plain;
use ray_relay_base::wire::dap::schema::walk::SchemaWalk;

/// A message that passes in its own bytes.
#[derive(Debug, Clone, Copy)]
pub struct InBytes {
    pub(crate) kind: MessageType,
    pub(crate) row: OfWorker,
    /// `request_seq` of a response, if it is a whole number.
    pub(crate) request_seq: Option<u64>,
}

/// Overwrites in `body` what no client may see. `None`: that is not possible in its bytes, and [`clean`] handles it.
pub fn overwrite(body: &mut [u8]) -> Option<InBytes> {
    let (kind, row, fields) = match Walk::new(Depth::Deciding).peek(body, body.len()) {
        Peek::Known(kind, name) => (kind, OfWorker::of(kind, name), examined(kind, name)),
        Peek::Unclear | Peek::More => return None,
    };
    let fields = match row.handling {
        FromWorker::Pass => plain(kind),
        _ => fields?,
    };
    let mut walk = SchemaWalk::new(fields);
    let read = walk.pass(body).ok()?;
    (read == body.len() && walk.is_over()).then(|| InBytes {
        kind,
        row,
        request_seq: walk.request_seq(),
    })
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
