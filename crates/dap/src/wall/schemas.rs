//! Schemas of the messages that pass in their own bytes, with the fields on which editors act.

use super::paths::names_file;
use crate::messages::{FromWorker, OfWorker};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::dap::peek::MessageType;
use ray_relay_base::wire::dap::schema::{Field, Fields, Schema, event_with, response_with};

/// Marks logpoint output that a cluster session shows too: zero-width characters that the relay has debuggers prepend.
pub(crate) const LOG_MARK: &str = "\u{2063}\u{2060}\u{2063}";

/// How output begins in JSON that may have the mark.
const LOG_MARK_STARTS: [&[u8]; 2] = [br"\u2063", "\u{2063}".as_bytes()];

/// A successful answer to `stackTrace`.
const STACK: Fields = Fields {
    known: &response_with(Schema::Object(&Fields {
        known: &[
            Field::new("stackFrames", Schema::List(&FRAME)),
            Field::new("totalFrames", Schema::Scalar),
        ],
        required: 1,
        others: Schema::Parsed,
    })),
    required: 5,
    others: Schema::Overwritten,
};

pub(super) const FRAME: Fields = Fields {
    known: &[
        Field::new("id", Schema::Scalar),
        Field::new("name", Schema::Scalar),
        Field::new("line", Schema::Scalar),
        Field::new("column", Schema::Scalar),
        Field::new("source", Schema::Object(&SOURCE)),
        Field::new("endLine", Schema::Scalar),
        Field::new("endColumn", Schema::Scalar),
        Field::new("moduleId", Schema::Scalar),
        Field::new("presentationHint", Schema::Scalar),
    ],
    required: 0,
    others: Schema::Overwritten,
};

pub(super) const SOURCE: Fields = Fields {
    known: &[
        Field::new("path", Schema::Path(names_file)),
        Field::new("sourceReference", Schema::Scalar),
        Field::new("name", Schema::Scalar),
        Field::new("presentationHint", Schema::Scalar),
    ],
    required: 0,
    others: Schema::Overwritten,
};

/// An event with text for a console.
const OUTPUT: Fields = Fields {
    known: &event_with(Schema::Object(&OUTPUT_BODY)),
    required: 2,
    others: Schema::Overwritten,
};

pub(super) const OUTPUT_BODY: Fields = Fields {
    known: &[
        Field::new("output", Schema::Console(&LOG_MARK_STARTS)),
        Field::new("category", Schema::OneOf(&["console", "stdout", "stderr"])),
        Field::new("source", Schema::Object(&SOURCE)),
        Field::new("line", Schema::Scalar),
        Field::new("column", Schema::Scalar),
        Field::new("variablesReference", Schema::Scalar),
        Field::new("group", Schema::Scalar),
    ],
    required: 1,
    others: Schema::Overwritten,
};

/// The fields with which a message that is sanitized may pass in its own bytes.
pub fn examined(kind: MessageType, name: &[u8]) -> Option<&'static Fields> {
    match OfWorker::of(kind, name).handling {
        FromWorker::Stack => Some(&STACK),
        FromWorker::Look
            if kind == MessageType::Event && Event::parse(name) == Some(Event::Output) =>
        {
            Some(&OUTPUT)
        }
        _ => None,
    }
}
