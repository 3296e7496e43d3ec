//! Raw values: settings as they were written, before they are interpreted.
//!
//! The TOML file, the environment and the flags all become [`RawEntry`] values, so that each key is
//! checked once and in the same way wherever it was given. Deserialising into a struct would
//! stop at the first mistake; this keeps all of them.

use std::path::Path;
use std::{fmt, io};

use toml::de::DeValue;

use super::problem::printable;

const MAX_FILE_BYTES: u64 = 1 << 20;

/// A value before it is interpreted.
#[derive(Debug, Clone, PartialEq)]
pub enum RawValue {
    /// A TOML string.
    Text(String),
    /// Text from the environment or a flag, which has no other types.
    Word(String),
    /// A TOML integer that fits.
    Integer(i64),
    /// A TOML boolean.
    Bool(bool),
    /// A TOML array.
    List(Vec<RawValue>),
    /// Anything else, by the name of its type.
    Other(&'static str),
}

impl RawValue {
    /// The texts of an array that holds nothing else.
    pub fn texts(&self) -> Option<Vec<&str>> {
        let Self::List(items) = self else {
            return None;
        };
        let texts = items.iter().map(|item| match item {
            Self::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "\"{}\"", printable(text)),
            Self::Word(word) => f.write_str(&printable(word)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::List(items) => write!(f, "an array of {}", items.len()),
            Self::Other(kind) => write!(f, "a {kind}"),
        }
    }
}

/// A value, the name under which it was given, and its location.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawEntry {
    /// `listen.address`, `RAY_RELAY_LISTEN_ADDRESS` or `--listen`.
    pub(super) label: String,
    /// Location of the value, for messages: `relay.toml line 12`.
    pub(super) place: String,
    /// The value as it was written.
    pub(super) value: RawValue,
}

/// Converts a TOML value to the types that keys accept.
pub fn raw_value(value: DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::Text(text.into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(RawValue::Other("integer out of range"), RawValue::Integer),
        DeValue::Boolean(truth) => RawValue::Bool(truth),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| raw_value(item.into_inner()));
            RawValue::List(items.collect())
        }
        other => RawValue::Other(other.type_str()),
    }
}

/// The text of a file with settings or rules, at most 1 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    std::fs::read_to_string(path)
}

/// Turns byte offsets into line numbers.
pub struct ConfigText<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Text of the file.
    pub text: &'a str,
}

impl ConfigText<'_> {
    /// `relay.toml line 12`.
    pub fn place(&self, offset: usize) -> String {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{} line {line}", self.file)
    }
}
