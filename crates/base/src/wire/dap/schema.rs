//! Schemas: what passes of a message, field by field, in the bytes in which it came.
//!
//! Pure. A [`Walk`](walk::SchemaWalk) reads each byte once, in pieces of any size, and overwrites with spaces what its
//! schema does not let pass. So a message keeps its length, and nothing is built or copied. What it cannot express is
//! [`Irregular`]: the message is parsed and written anew, unless a part of it has been forwarded already.

pub mod console;
mod scalar;
#[cfg(test)]
mod tests;
pub mod walk;

use super::peek::MessageType;

/// The part of a value that passes.
#[derive(Debug, Clone, Copy)]
pub enum Schema {
    /// Any value.
    Any,
    /// A text in printable ASCII, an integer, or a word: every reader takes it for the same.
    Scalar,
    /// The number of the answered request.
    RequestSeq,
    /// `true`.
    True,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Null, or a path for which this holds; anything else is overwritten. An absolute and normalised one without `:`,
    /// `?` and `[` passes unasked.
    Path(fn(&str) -> bool),
    /// Text for a console, which may colour it and no more. One that begins in one of these ways, in its JSON form, is
    /// parsed.
    Console(&'static [&'static [u8]]),
    /// An object.
    Object(&'static Fields),
    /// Any value, of which an object has these fields.
    AnyOrObject(&'static Fields),
    /// A list of objects.
    List(&'static Fields),
    /// Nothing that passes unparsed.
    Parsed,
    /// Nothing: it is overwritten.
    Overwritten,
}

/// A known field of an object.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    name: &'static str,
    schema: Schema,
    /// The first eight bytes of the name and its closing quote, and which of them there are.
    word: u64,
    mask: u64,
}

impl Field {
    /// A field of this name.
    pub const fn new(name: &'static str, schema: Schema) -> Self {
        let (mut word, mut mask, mut index) = (0, 0, 0);
        while index <= name.len() && index < 8 {
            let byte = match index < name.len() {
                true => name.as_bytes()[index],
                false => b'"',
            };
            word |= (byte as u64) << (8 * index);
            mask |= 0xff << (8 * index);
            index += 1;
        }
        Self {
            name,
            schema,
            word,
            mask,
        }
    }

    /// Whether `bytes`, of which there are at least eight, begin with its name and the quote behind it.
    fn is_at(&self, bytes: &[u8]) -> bool {
        let Some(first) = bytes.first_chunk() else {
            return false;
        };
        let length = self.name.len();
        (u64::from_le_bytes(*first) ^ self.word) & self.mask == 0
            && (length < 8
                || bytes.get(8..length) == Some(&self.name.as_bytes()[8..])
                    && bytes.get(length) == Some(&b'"'))
    }
}

/// The fields of an object. Each may occur once.
#[derive(Debug)]
pub struct Fields {
    /// The known ones, at most 32, for speed in the order in which debuggers write them.
    pub known: &'static [Field],
    /// The first so many have to be there.
    pub required: usize,
    /// All others.
    pub others: Schema,
}

/// The message does not fit its schema, and the walk cannot make it fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Irregular;

impl Fields {
    /// Whether a field of this name may pass.
    pub fn passes(&self, name: &str) -> bool {
        let passes = |schema: &Schema| !matches!(schema, Schema::Overwritten);
        let known = self.known.iter().find(|known| known.name == name);
        passes(known.map_or(&self.others, |known| &known.schema))
    }
}

/// Fields of a body by which a reader opens files, shows links, or renders. A message with one of them is parsed,
/// whatever its declared type: a response is matched with its request by its number alone.
const PLAIN_BODY: Fields = Fields {
    known: &[
        Field::new("stackFrames", Schema::Parsed),
        Field::new("source", Schema::Parsed),
        Field::new("sources", Schema::Parsed),
        Field::new("content", Schema::Parsed),
        Field::new("mimeType", Schema::Parsed),
        Field::new("breakpoint", Schema::Parsed),
        Field::new("breakpoints", Schema::Parsed),
        Field::new("error", Schema::Parsed),
    ],
    required: 0,
    others: Schema::Any,
};

/// A successful response without fields on which an editor acts.
pub const PLAIN_RESPONSE: Fields = Fields {
    known: &response_with(Schema::AnyOrObject(&PLAIN_BODY)),
    required: 4,
    others: Schema::Overwritten,
};

/// An event without fields on which an editor acts.
pub const PLAIN_EVENT: Fields = Fields {
    known: &event_with(Schema::AnyOrObject(&PLAIN_BODY)),
    required: 2,
    others: Schema::Overwritten,
};

/// Any request.
const REQUEST: Fields = Fields {
    known: &[
        Field::new("type", Schema::Scalar),
        Field::new("command", Schema::Scalar),
        Field::new("seq", Schema::Any),
        Field::new("arguments", Schema::Any),
    ],
    required: 2,
    others: Schema::Any,
};

/// The fields of a successful response with this body, of which the first four or five are required.
pub const fn response_with(body: Schema) -> [Field; 7] {
    [
        Field::new("type", Schema::Scalar),
        Field::new("request_seq", Schema::RequestSeq),
        Field::new("success", Schema::True),
        Field::new("command", Schema::Scalar),
        Field::new("body", body),
        Field::new("seq", Schema::Scalar),
        // Only failures have one, and say so before or behind it.
        Field::new("message", Schema::Parsed),
    ]
}

/// The fields of an event with this body, of which the first two or three are required.
pub const fn event_with(body: Schema) -> [Field; 4] {
    [
        Field::new("type", Schema::Scalar),
        Field::new("event", Schema::Scalar),
        Field::new("body", body),
        Field::new("seq", Schema::Scalar),
    ]
}

/// The fields of a message that the relay has no other rules for.
pub fn plain(kind: MessageType) -> &'static Fields {
    match kind {
        MessageType::Request => &REQUEST,
        MessageType::Response => &PLAIN_RESPONSE,
        MessageType::Event => &PLAIN_EVENT,
    }
}
