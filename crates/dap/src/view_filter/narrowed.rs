//! Narrows requests that only show something while they are parsed.
//!
//! Pure. The same result as [`super::requests`], without building the message: these are nearly all requests of a
//! view-only client. If in doubt there is no result, and the request is judged there.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::requests::{ForView, MAX_ID, MAX_TEXT, Shape, Shapes};
use crate::verdict::FIRST_OWN_SEQ;
use ray_relay_base::wire::dap::names::Command;

/// Narrows the request `command` in `body`, which names no other.
pub(crate) fn narrowed(body: &[u8], command: Command, view: ForView) -> Option<String> {
    let ForView::Arguments(shapes) = view else {
        return None;
    };
    let mut parser = serde_json::Deserializer::from_slice(body);
    let (seq, arguments) = parser.deserialize_map(TopLevel(shapes)).ok()?;
    parser.end().ok()?;
    let command = command.as_str();
    (seq < FIRST_OWN_SEQ).then(|| {
        format!(r#"{{"seq":{seq},"type":"request","command":"{command}","arguments":{arguments}}}"#)
    })
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum NarrowedKey {
    Seq,
    Arguments,
    #[serde(other)]
    Other,
}

/// Visitor of the message: returns its `seq`, and its rewritten arguments.
struct TopLevel(Shapes);

impl<'de> Visitor<'de> for TopLevel {
    type Value = (u64, String);

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut seq, mut arguments) = (None, None);
        while let Some(key) = map.next_key()? {
            let again = match key {
                NarrowedKey::Seq => seq.replace(map.next_value()?).is_some(),
                NarrowedKey::Arguments => {
                    let narrow = map.next_value_seed(Narrow(self.0))?;
                    arguments.replace(narrow).is_some()
                }
                NarrowedKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if again {
                return Err(A::Error::custom("a key is there twice"));
            }
        }
        let seq = seq.ok_or_else(|| A::Error::missing_field("seq"))?;
        Ok((seq, arguments.flatten().unwrap_or_else(|| "{}".to_owned())))
    }
}

/// Visitor of an object, or null, that keeps these keys.
struct Narrow(Shapes);

/// A string of the client.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Narrow {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Narrow {
    type Value = Option<String>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut narrowed, mut seen) = (String::from("{"), 0_u64);
        while let Some(Text(name)) = map.next_key()? {
            let known = self.0.iter().zip(0..).find(|((key, _), _)| *key == name);
            let Some(((key, shape), at)) = known else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen & (1 << at) != 0 {
                return Err(A::Error::duplicate_field(key));
            }
            seen |= 1 << at;
            if let Some(value) = value(&mut map, shape)? {
                let comma = if narrowed.len() > 1 { "," } else { "" };
                write!(narrowed, r#"{comma}"{key}":{value}"#).map_err(A::Error::custom)?;
            }
        }
        narrowed.push('}');
        Ok(Some(narrowed))
    }
}

/// A value of this shape as JSON; `None` if it is null.
fn value<'de, A: MapAccess<'de>>(map: &mut A, shape: &Shape) -> Result<Option<String>, A::Error> {
    let beyond = || A::Error::custom("a value beyond its bounds");
    match shape {
        Shape::Id => match map.next_value::<Option<u64>>()? {
            Some(id) if id > MAX_ID => Err(beyond()),
            id => Ok(id.map(|id| id.to_string())),
        },
        Shape::Flag => Ok(map
            .next_value::<Option<bool>>()?
            .map(|flag| flag.to_string())),
        Shape::Text | Shape::OneOf(_) => {
            let Some(Text(text)) = map.next_value()? else {
                return Ok(None);
            };
            let fits = match shape {
                Shape::OneOf(words) => words.contains(&&*text),
                _ => text.len() <= MAX_TEXT,
            };
            let written = serde_json::to_string(&text).map_err(A::Error::custom)?;
            fits.then_some(Some(written)).ok_or_else(beyond)
        }
        Shape::Object(shapes) => map.next_value_seed(Narrow(shapes)),
    }
}
