//! Detects output that needs no sanitizing, without building it.
//!
//! Pure. A strict parser refuses a key that is not named here, or occurs twice. It also refuses alternative encodings
//! that serde would accept: an object as an array of its values, a text as an object with one key.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::fields::drives_terminal;

/// Marks logpoint output that a cluster session shows too: zero-width characters that the relay has debuggers prepend.
pub(crate) const LOG_MARK: &str = "\u{2063}\u{2060}\u{2063}";

/// Whether `body`, an `output` event, is only text for a console.
pub(super) fn output(body: &[u8]) -> bool {
    serde_json::from_slice::<Object<Output>>(body).is_ok()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Output {
    #[serde(rename = "seq")]
    _seq: IgnoredAny,
    #[serde(rename = "type")]
    _type: IgnoredAny,
    #[serde(rename = "event")]
    _event: IgnoredAny,
    #[serde(rename = "body")]
    _body: Object<OutputBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputBody {
    #[serde(rename = "category", default, deserialize_with = "category")]
    _category: (),
    #[serde(rename = "output", deserialize_with = "console_text")]
    _output: (),
}

fn category<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    from.deserialize_str(PlainText(|text| {
        matches!(text, "console" | "stdout" | "stderr")
    }))
}

/// A text that at most colours a terminal, and is not for another client as well. Read as bytes, in which the parser
/// finds the end several times as fast: it skips the check for control characters, which no reader misinterprets.
fn console_text<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    from.deserialize_bytes(PlainText(|text| {
        !drives_terminal(text) && !text.starts_with(LOG_MARK)
    }))
}

/// A text that needs no sanitizing.
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

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<(), E> {
        self.visit_str(str::from_utf8(text).map_err(E::custom)?)
    }
}

/// An object with the fields of `T`, which are only checked.
struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = Self;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(self)
    }
}
