//! Output that has nothing to be taken out, told without building it.
//!
//! Pure. It is read by a parser, which refuses a key that is not named here, or is there twice.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, Visitor};

use super::fields::drives_terminal;

/// Whether `body`, an `output` event, is no more than a text in a console.
pub(super) fn output(body: &[u8]) -> bool {
    serde_json::from_slice::<Output>(body).is_ok()
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
    _body: OutputBody,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputBody {
    #[serde(rename = "category")]
    _category: Option<Category>,
    #[serde(rename = "output")]
    _output: Shown,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Category {
    Console,
    Stdout,
    Stderr,
}

/// A text that colours a terminal at most.
struct Shown;

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Harmless).map(|()| Self)
    }
}

struct Harmless;

impl Visitor<'_> for Harmless {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match drives_terminal(text) {
            false => Ok(()),
            true => Err(E::custom("there is something to take out")),
        }
    }
}
