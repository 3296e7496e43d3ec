//! Output that has nothing to be taken out, told without building it.
//!
//! Pure. It is read by a parser, which refuses a key that is not named here, or is there twice. What would be read as such a
//! thing as well is none: an object as an array of its values, a text as an object with one key.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, Visitor};
use serde_json::value::RawValue;

use super::fields::drives_terminal;

/// What the relay has debuggers begin what a breakpoint logs with, where a cluster session shows it too: characters without a
/// width.
pub(in crate::dap) const LOGGED: &str = "\u{2063}\u{2060}\u{2063}";

/// Whether `body`, an `output` event, is no more than a text in a console.
pub(super) fn output(body: &[u8]) -> bool {
    let Ok(message) = serde_json::from_slice::<Output<'_>>(body) else {
        return false;
    };
    let body = message.body.get();
    body.starts_with('{') && serde_json::from_str::<OutputBody>(body).is_ok()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Output<'b> {
    #[serde(rename = "seq")]
    _seq: IgnoredAny,
    #[serde(rename = "type")]
    _type: IgnoredAny,
    #[serde(rename = "event")]
    _event: IgnoredAny,
    #[serde(borrow)]
    body: &'b RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputBody {
    #[serde(rename = "category", default, deserialize_with = "category")]
    _category: (),
    #[serde(rename = "output", deserialize_with = "shown")]
    _output: (),
}

fn category<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    from.deserialize_str(PlainText(|text| {
        matches!(text, "console" | "stdout" | "stderr")
    }))
}

/// A text that colours a terminal at most, and is not for another client as well.
fn shown<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    from.deserialize_str(PlainText(|text| {
        !drives_terminal(text) && !text.starts_with(LOGGED)
    }))
}

/// A text that has nothing to be taken out.
struct PlainText(fn(&str) -> bool);

impl Visitor<'_> for PlainText {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match (self.0)(text) {
            true => Ok(()),
            false => Err(E::custom("there is something to take out")),
        }
    }
}
