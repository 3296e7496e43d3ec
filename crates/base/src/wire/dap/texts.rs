//! Visits every text of a message without building the message.
//!
//! Pure. For code that forwards a message unchanged if nothing in it has to change. A parser reads the message, so a
//! text looks as its reader will see it, whatever its escapes, and both values of two equal keys are visited.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::peek::MessageType;

/// The declared type of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Front {
    /// The `type`.
    pub kind: MessageType,
    /// The `command` or `event`.
    pub name: String,
    /// `request_seq`, if it is a whole number.
    pub request_seq: Option<u64>,
}

/// Passes each text among the values in `body` to `continues`, in order. `None` if that returns false, if `body` is no
/// JSON object, or if its type is unclear: a deciding key is missing, duplicated, or of another shape.
pub fn look_through(body: &[u8], continues: impl FnMut(&str) -> bool) -> Option<Front> {
    let mut parser = serde_json::Deserializer::from_slice(body);
    let front = parser.deserialize_map(Top(Texts(continues))).ok()?;
    parser.end().ok()?;
    Some(front)
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum TextKey {
    Type,
    Command,
    Event,
    RequestSeq,
    #[serde(other)]
    Other,
}

/// The object that is the message.
struct Top<F>(Texts<F>);

impl<'de, F: FnMut(&str) -> bool> Visitor<'de> for Top<F> {
    type Value = Front;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Front, A::Error> {
        let (mut kind, mut command, mut event, mut seq) = (None, None, None, None);
        while let Some(key) = map.next_key()? {
            let slot = match key {
                TextKey::Type => &mut kind,
                TextKey::Command => &mut command,
                TextKey::Event => &mut event,
                TextKey::RequestSeq => &mut seq,
                TextKey::Other => {
                    map.next_value_seed(&mut self.0)?;
                    continue;
                }
            };
            if slot.replace(map.next_value::<Value>()?).is_some() {
                return Err(A::Error::duplicate_field("a key that decides"));
            }
        }
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let front = match text(kind).as_deref() {
            Some("request") => text(command).map(|name| (MessageType::Request, name)),
            Some("response") => text(command).map(|name| (MessageType::Response, name)),
            Some("event") => text(event).map(|name| (MessageType::Event, name)),
            _ => None,
        };
        let (kind, name) = front.ok_or_else(|| A::Error::custom("no type or no name"))?;
        Ok(Front {
            kind,
            name,
            request_seq: seq.and_then(|seq| seq.as_u64()),
        })
    }
}

/// Any value.
struct Texts<F>(F);

impl<'de, F: FnMut(&str) -> bool> DeserializeSeed<'de> for &mut Texts<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str) -> bool> Visitor<'de> for &mut Texts<F> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match (self.0)(text) {
            true => Ok(()),
            false => Err(E::custom("enough is seen")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(&mut *self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(body: &str) -> (Option<Front>, Vec<String>) {
        let mut texts = Vec::new();
        let header = look_through(body.as_bytes(), |text| {
            texts.push(text.to_owned());
            true
        });
        (header, texts)
    }

    #[test]
    fn every_text_is_visited_even_under_repeated_keys() {
        let (header, texts) = look(
            r#"{"seq": 1, "body": {"a": "x\u0070\n", "a": ["y", {"b": "\\z", "n": [1, -2, 0.5, null, true]}]}, "type": "event",
                "event": "out\u0070ut", "message": "m"}"#,
        );
        assert_eq!(texts, ["xp\n", "y", "\\z", "m"]);
        let expected = Front {
            kind: MessageType::Event,
            name: "output".to_owned(),
            request_seq: None,
        };
        assert_eq!(header, Some(expected));
        let (header, _) =
            look(r#"{"type": "response", "command": "x", "request_seq": 7, "event": "y"}"#);
        let header = header.map(|header| (header.kind, header.name, header.request_seq));
        assert_eq!(
            header,
            Some((MessageType::Response, "x".to_owned(), Some(7)))
        );
    }

    #[test]
    fn malformed_message_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"type":"event"}"#,
            r#"{"type":"event","command":"x"}"#,
            r#"{"type":"Event","event":"x"}"#,
            r#"{"type":"event","event":7}"#,
            r#"{"type":"event","event":"x"} {}"#,
            r#"{"type":"event","event":"x","body":"\udc80"}"#,
            r#"{"type":"event","event":"x","body":NaN}"#,
            r#"{"type":"event","event":"x","\u0065vent":"y"}"#,
            r#"{"type":"response","command":"x","request_seq":1,"request_seq":2}"#,
        ] {
            assert_eq!(look(body).0, None, "{body}");
        }
        let stopped = look_through(
            br#"{"type":"event","event":"x","body":["a","b"]}"#,
            |text| text == "a",
        );
        assert_eq!(stopped, None);
    }
}
