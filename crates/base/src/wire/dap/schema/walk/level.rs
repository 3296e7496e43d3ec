//! An open object in a walk, and its next field.

use super::super::{Field, Fields, Irregular, Schema};
use crate::wire::dap::inside::{rest_of_text, spaces};

/// An open object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) fields: &'static Fields,
    /// The fields of each object in the list that is open within it.
    pub(super) list: Option<&'static Fields>,
    /// The known fields so far.
    pub(super) seen: u32,
    /// The known field that is expected next.
    pub(super) expected: u8,
    /// Whether it has a field.
    pub(super) begun: bool,
    /// Whether one of them passes.
    pub(super) kept: bool,
}

/// The next token of an object.
pub(super) enum Token {
    Field(Begun),
    /// The end of the object, so many bytes on.
    End(usize),
    /// It is incomplete.
    Cut,
}

/// The beginning of a field, up to its value.
pub(super) struct Begun {
    /// Where its comma is.
    pub(super) comma: Option<usize>,
    /// Where its value begins.
    pub(super) value: usize,
    pub(super) schema: Schema,
    /// Its bit among the known fields.
    pub(super) bit: u32,
    /// The known field that is expected next.
    pub(super) next: u8,
}

impl Level {
    pub(super) fn new(fields: &'static Fields) -> Self {
        Self {
            fields,
            list: None,
            seen: 0,
            expected: 0,
            begun: false,
            kept: false,
        }
    }

    pub(super) fn has_required(&self) -> bool {
        self.seen.trailing_ones() as usize >= self.fields.required
    }

    /// Index of the next known field that is at the start of `bytes`, with at most one space in each place, and where
    /// its value begins.
    pub(super) fn usual_field(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let space = |at: usize| usize::from(bytes.get(at) == Some(&b' '));
        let mut at = match (self.begun, self.kept) {
            (false, _) => 0,
            (true, true) if bytes.first() == Some(&b',') => 1 + space(1),
            _ => return None,
        };
        let name = bytes.get(at + 1..).filter(|_| bytes[at] == b'"')?;
        let from = usize::from(self.expected);
        let known = self.fields.known.iter().enumerate().skip(from);
        let (index, field) = known.clone().find(|(_, field)| field.is_at(name))?;
        at += field.name.len() + 2;
        let is_new = self.seen & 1 << index == 0;
        (is_new && bytes.get(at) == Some(&b':')).then(|| (index, at + 1 + space(at + 1)))
    }

    /// The field or the end at the start of `bytes`.
    pub(super) fn field(&self, bytes: &[u8]) -> Result<Token, Irregular> {
        let mut at = spaces(bytes);
        let comma = match bytes.get(at) {
            None => return Ok(Token::Cut),
            Some(b'}') => return Ok(Token::End(at + 1)),
            Some(b',') if self.begun => {
                let comma = at;
                at += 1 + spaces(&bytes[at + 1..]);
                Some(comma)
            }
            Some(_) if self.begun => return Err(Irregular),
            Some(_) => None,
        };
        let key = at;
        let Some((index, length)) = self.key(&bytes[at..])? else {
            return Ok(Token::Cut);
        };
        at += length;
        at += spaces(&bytes[at..]);
        match bytes.get(at) {
            None => return Ok(Token::Cut),
            Some(b':') => at += 1,
            Some(_) => return Err(Irregular),
        }
        let value = at + spaces(&bytes[at..]);
        if value == bytes.len() {
            return Ok(Token::Cut);
        }
        Ok(Token::Field(match index {
            Some(index) => {
                let bit = 1 << index;
                let schema = self.fields.known[index].schema;
                Begun {
                    comma,
                    value,
                    // Readers differ about which of two equal keys counts.
                    schema: match self.seen & bit == 0 {
                        true => schema,
                        false => Schema::Parsed,
                    },
                    bit,
                    next: index as u8 + 1,
                }
            }
            None => Begun {
                comma,
                value,
                schema: match bytes[key..key + length].contains(&b'\\') {
                    // No debugger writes a key with escapes.
                    true => Schema::Parsed,
                    false => self.fields.others,
                },
                bit: 0,
                next: self.expected,
            },
        }))
    }

    /// Index, if it is known, and length of the key at the start of `bytes`; `None`: it is incomplete.
    fn key(&self, bytes: &[u8]) -> Result<Option<(Option<usize>, usize)>, Irregular> {
        match bytes.first() {
            None => return Ok(None),
            Some(b'"') => {}
            Some(_) => return Err(Irregular),
        }
        let (read, ends) = rest_of_text(&bytes[1..]);
        if !ends {
            return Ok(None);
        }
        let name = &bytes[1..read];
        let is_name = |known: &Field| known.name.as_bytes() == name;
        Ok(Some((self.fields.known.iter().position(is_name), read + 1)))
    }
}
