//! Parsing of a head's responses, incrementally and within bounds: a head is untrusted, and its data is held for all
//! clients.
//!
//! Only the columns that are used are stored, and each is bounded. Each row is parsed by itself: an invalid one does
//! not affect the others.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// Largest id in bytes: those of Ray have 56.
pub(super) const MAX_ID_BYTES: usize = 256;

/// Largest text for people, in bytes.
const MAX_TEXT_BYTES: usize = 2 << 10;

/// Largest text that is searched, such as a traceback, in bytes.
const MAX_SEARCHED_BYTES: usize = 64 << 10;

/// Largest row in bytes: those of Ray have about one thousand, plus a runtime environment.
pub(super) const MAX_ROW_BYTES: usize = 1 << 20;

/// Largest number of resource kinds of one task.
const MAX_RESOURCE_KINDS: usize = 64;

/// The first `MAX_ROWS` of a list. An invalid row is skipped.
#[derive(Debug, Clone)]
pub(super) struct FirstRows<T, const MAX_ROWS: usize> {
    pub(super) read: Vec<T>,
    /// Number of rows beyond that, and of rows longer than [`MAX_ROW_BYTES`].
    pub(super) left_out: usize,
}

impl<T, const MAX_ROWS: usize> Default for FirstRows<T, MAX_ROWS> {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            left_out: 0,
        }
    }
}

impl<'de, T: DeserializeOwned, const MAX_ROWS: usize> Deserialize<'de> for FirstRows<T, MAX_ROWS> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(RowsVisitor(PhantomData))
    }
}

struct RowsVisitor<T, const MAX_ROWS: usize>(PhantomData<T>);

impl<'de, T: DeserializeOwned, const MAX_ROWS: usize> Visitor<'de> for RowsVisitor<T, MAX_ROWS> {
    type Value = FirstRows<T, MAX_ROWS>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Self::Value, A::Error> {
        let mut all = FirstRows::default();
        for _ in 0..MAX_ROWS {
            let Some(row) = rows.next_element::<Box<RawValue>>()? else {
                return Ok(all);
            };
            match row.get().len() {
                0..=MAX_ROW_BYTES => all.read.extend(serde_json::from_str::<T>(row.get())),
                _ => all.left_out += 1,
            }
        }
        while rows.next_element::<IgnoredAny>()?.is_some() {
            all.left_out += 1;
        }
        Ok(all)
    }
}

/// Parses a `T`; `None` if that fails.
pub(super) fn lenient<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw = Box::<RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

/// Numbers by name, at most [`MAX_RESOURCE_KINDS`]; `None` for anything else.
pub(super) fn amounts<'de, D>(from: D) -> Result<Option<BTreeMap<String, f64>>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(lenient::<D, Amounts>(from)?.map(|amounts| amounts.0))
}

struct Amounts(BTreeMap<String, f64>);

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(AmountsVisitor)
    }
}

struct AmountsVisitor;

impl<'de> Visitor<'de> for AmountsVisitor {
    type Value = Amounts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amounts by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Amounts, A::Error> {
        let mut read = BTreeMap::new();
        while read.len() < MAX_RESOURCE_KINDS
            && let Some((name, amount)) = values.next_entry()?
        {
            read.insert(name, amount);
        }
        while values.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Amounts(read))
    }
}

/// A number or a numeric string; `None` for anything else, including negative numbers and fractions.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(match NUMBER.deserialize(from)? {
        Value::Number(number) => Some(number),
        Value::Text(text) => text.trim().parse().ok(),
        Value::Fraction(_) | Value::Truth(_) | Value::Other => None,
    })
}

/// A time in milliseconds since 1970, which Ray also writes as `1795236270139.0`; `None` for zero and anything else.
pub(super) fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    /// The last millisecond of the year 9999.
    const LAST: u64 = 253_402_300_799_999;
    let read = match NUMBER.deserialize(from)? {
        Value::Number(number) => Some(number),
        // Not negative, and within the exact range of such a number.
        Value::Fraction(number) if (0.0..=LAST as f64).contains(&number) => Some(number as u64),
        Value::Text(text) => text.trim().parse().ok(),
        Value::Fraction(_) | Value::Truth(_) | Value::Other => None,
    };
    Ok(read.filter(|millis| (1..=LAST).contains(millis)))
}

/// A string of at most [`MAX_TEXT_BYTES`] bytes; empty for null and anything else.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    string(from, MAX_TEXT_BYTES)
}

/// A string of at most [`MAX_SEARCHED_BYTES`] bytes.
pub(super) fn long<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    string(from, MAX_SEARCHED_BYTES)
}

/// The last [`MAX_SEARCHED_BYTES`] bytes of a string.
pub(super) fn end<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let mut text = string(from, MAX_ROW_BYTES)?;
    let from = text.ceil_char_boundary(text.len().saturating_sub(MAX_SEARCHED_BYTES));
    Ok(text.split_off(from))
}

/// A name to compare with others, so it must not be truncated: empty if it is longer than [`MAX_ID_BYTES`].
pub(super) fn id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    // Space for one more character shows that the text is longer.
    let mut id = string(from, MAX_ID_BYTES + 4)?;
    if id.len() > MAX_ID_BYTES {
        id = String::new();
    }
    Ok(id)
}

fn string<'de, D: Deserializer<'de>>(from: D, longest: usize) -> Result<String, D::Error> {
    Ok(match (Scalar { longest }).deserialize(from)? {
        Value::Text(text) => text,
        Value::Number(_) | Value::Fraction(_) | Value::Truth(_) | Value::Other => String::new(),
    })
}

/// A boolean or a word; null is true, like absence.
pub(super) fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(match NUMBER.deserialize(from)? {
        Value::Truth(truth) => truth,
        Value::Text(text) => !text.eq_ignore_ascii_case("false"),
        Value::Number(_) | Value::Fraction(_) | Value::Other => true,
    })
}

/// A value that is not nested, of which `longest` bytes are stored. Parsed directly: serde's buffer for untagged
/// values would cost more than everything else in a list of thousands.
struct Scalar {
    longest: usize,
}

/// A number or a word.
const NUMBER: Scalar = Scalar { longest: 64 };

enum Value {
    Truth(bool),
    Number(u64),
    Fraction(f64),
    Text(String),
    /// Null, and anything that a column has no use for.
    Other,
}

impl<'de> DeserializeSeed<'de> for Scalar {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scalar {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Truth(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(u64::try_from(number).map_or(Value::Other, Value::Number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Fraction(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        let end = text.floor_char_boundary(self.longest);
        Ok(Value::Text(text[..end].to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        while values.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Row {
        #[serde(default, deserialize_with = "id")]
        id: String,
        #[serde(default, deserialize_with = "text")]
        text: String,
        #[serde(default, deserialize_with = "end")]
        end: String,
        #[serde(default, deserialize_with = "amounts")]
        amounts: Option<BTreeMap<String, f64>>,
    }

    fn rows(text: &str) -> FirstRows<Row, 3> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rows_beyond_the_limit_are_counted_not_read() {
        let list = rows(r#"[{"id": "a"}, 5, {"id": "b"}, {"id": "c"}, {"id": "d"}]"#);
        let ids: Vec<_> = list.read.iter().map(|row| &*row.id).collect();
        assert_eq!((ids, list.left_out), (vec!["a", "b"], 2));
        let long = format!(
            r#"[{{"id": "a"}}, {{"text": "{}"}}]"#,
            "x".repeat(MAX_ROW_BYTES)
        );
        let list = rows(&long);
        assert_eq!((list.read.len(), list.left_out), (1, 1));
        assert!(serde_json::from_str::<FirstRows<Row, 3>>("{}").is_err());
    }

    #[test]
    fn names_are_truncated_and_overlong_ids_dropped() {
        let long = "é".repeat(MAX_SEARCHED_BYTES);
        let amounts: BTreeMap<_, _> = (0..1000).map(|n| (format!("r{n}"), 1.0)).collect();
        let row = serde_json::json!([{"id": "f".repeat(MAX_ID_BYTES + 1), "text": long, "end": format!("a{long}z"),
            "amounts": amounts}, {"id": "f".repeat(MAX_ID_BYTES), "text": 5, "amounts": {"CPU": "many"}}]);
        let list = rows(&row.to_string());
        let [first, second] = &list.read[..] else {
            panic!("{list:?}");
        };
        assert_eq!((first.id.len(), second.id.len()), (0, MAX_ID_BYTES));
        assert_eq!((first.text.len(), second.text.len()), (MAX_TEXT_BYTES, 0));
        assert!(first.end.len() <= MAX_SEARCHED_BYTES && first.end.ends_with("éz"));
        assert_eq!(first.amounts.as_ref().unwrap().len(), MAX_RESOURCE_KINDS);
        assert!(second.amounts.is_none());
    }
}
