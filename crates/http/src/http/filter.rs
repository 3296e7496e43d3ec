//! Filters lists of Ray's State API by row, for principals that may not see all.
//!
//! Pure. [`super::dashboard`] feeds it with each piece of the text. A row is buffered until it is complete and judged;
//! a rejected row is dropped then. The output is built from the kept rows alone: neither totals nor warnings reveal the
//! others. An answer of another shape is refused and never passed through, so nothing may be sent before the end.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

/// Nesting depth of a row: `{"data": {"result": {"result": [ROW`.
const ROW_DEPTH: usize = 4;

/// The answer is not a list of the State API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Ray head did not answer with the list, so the relay cannot tell which rows you may see; try again, and report it with the version of Ray if it stays so"
)]
pub(super) struct NotAList;

/// Fields of a row that decide who may see it. A row that repeats one of them is invalid.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FilteredRow<'r> {
    #[serde(borrow)]
    worker_id: Field<'r>,
    #[serde(borrow)]
    task_id: Field<'r>,
    #[serde(borrow)]
    job_id: Field<'r>,
    #[serde(borrow)]
    submission_id: Field<'r>,
    #[serde(borrow)]
    debugger_port: Field<'r>,
    #[serde(borrow)]
    num_paused_threads: Field<'r>,
}

/// A field's value, as far as it matters.
#[derive(Debug, Default, PartialEq, Eq)]
enum Field<'r> {
    /// `null`, or no such field.
    #[default]
    Nothing,
    Text(Cow<'r, str>),
    Zero,
    Something,
}

impl FilteredRow<'_> {
    /// `worker_id`, if it is a string.
    pub(super) fn worker_id(&self) -> Option<&str> {
        self.worker_id.text()
    }

    /// `task_id`, if it is a string.
    pub(super) fn task_id(&self) -> Option<&str> {
        self.task_id.text()
    }

    /// `job_id`, if it is a string.
    pub(super) fn job_id(&self) -> Option<&str> {
        self.job_id.text()
    }

    /// `submission_id`, if it is a string.
    pub(super) fn submission_id(&self) -> Option<&str> {
        self.submission_id.text()
    }

    /// Whether a worker's row mentions a debugger.
    pub(super) fn has_debugger(&self) -> bool {
        let is_set = |field: &Field<'_>| match field {
            Field::Nothing | Field::Zero => false,
            Field::Text(text) => !matches!(&**text, "" | "0"),
            Field::Something => true,
        };
        is_set(&self.debugger_port) || is_set(&self.num_paused_threads)
    }
}

impl Field<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Nothing | Self::Zero | Self::Something => None,
        }
    }
}

impl<'de: 'r, 'r> Deserialize<'de> for Field<'r> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

/// Deserializes a [`Field`], and skips values that do not matter.
struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Field<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field<'de>, E> {
        Ok(Field::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Field<'de>, E> {
        Ok(Field::Text(text.to_owned().into()))
    }

    fn visit_unit<E>(self) -> Result<Field<'de>, E> {
        Ok(Field::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Field<'de>, E> {
        Ok(Field::Something)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Field<'de>, E> {
        Ok(match number {
            0 => Field::Zero,
            _ => Field::Something,
        })
    }

    fn visit_i64<E>(self, _: i64) -> Result<Field<'de>, E> {
        Ok(Field::Something)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Field<'de>, E> {
        Ok(Field::Something)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Field<'de>, A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Field::Something)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Field<'de>, A::Error> {
        while values.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field::Something)
    }
}

/// Streaming filter of a list. `judge` gets a row and its text, and appends the visible part to the kept text; `false`
/// drops the row.
pub(super) struct RowFilter<J> {
    judge: J,
    /// The list without its rows: each is replaced by its number among the kept rows, from 1, or by 0.
    outside: Vec<u8>,
    /// Text of an incomplete row.
    row: Vec<u8>,
    output: Vec<u8>,
    count: u64,
    /// Number of open objects and arrays.
    depth: usize,
    in_row: bool,
    in_text: bool,
    escaped: bool,
}

impl<J, E> RowFilter<J>
where
    J: FnMut(&FilteredRow<'_>, &[u8], &mut Vec<u8>) -> Result<bool, E>,
    E: From<NotAList>,
{
    pub(super) fn new(judge: J) -> Self {
        Self {
            judge,
            outside: Vec::new(),
            row: Vec::new(),
            output: Vec::new(),
            count: 0,
            depth: 0,
            in_row: false,
            in_text: false,
            escaped: false,
        }
    }

    /// Buffered bytes.
    pub(super) fn held(&self) -> usize {
        self.outside.capacity() + self.row.capacity() + self.output.capacity()
    }

    /// Processes the next piece of the text.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), E> {
        // Start of the bytes that are not copied yet.
        let mut from = 0;
        let mut at = 0;
        while at < piece.len() {
            if self.in_text {
                at = self.text(piece, at);
                continue;
            }
            let byte = piece[at];
            match byte {
                b'"' => self.in_text = true,
                b'{' if self.depth == ROW_DEPTH => {
                    self.outside.extend_from_slice(&piece[from..at]);
                    (from, self.in_row) = (at, true);
                    self.depth += 1;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(NotAList)?;
                    if self.in_row && self.depth == ROW_DEPTH {
                        self.row.extend_from_slice(&piece[from..=at]);
                        (from, self.in_row) = (at + 1, false);
                        self.whole()?;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        let to = match self.in_row {
            true => &mut self.row,
            false => &mut self.outside,
        };
        to.extend_from_slice(&piece[from..]);
        Ok(())
    }

    /// Continues from `at` within a string, to its end or that of `piece`.
    fn text(&mut self, piece: &[u8], mut at: usize) -> usize {
        if std::mem::take(&mut self.escaped) {
            at += 1;
        }
        while let Some(found) = memchr::memchr2(b'"', b'\\', piece.get(at..).unwrap_or_default()) {
            at += found + 1;
            if piece[at - 1] == b'"' {
                self.in_text = false;
                return at;
            }
            if at == piece.len() {
                self.escaped = true;
                return at;
            }
            at += 1;
        }
        piece.len()
    }

    /// Judges the row, which is complete.
    fn whole(&mut self) -> Result<(), E> {
        let row: FilteredRow<'_> = serde_json::from_slice(&self.row).map_err(|_| NotAList)?;
        let before = self.output.len();
        if self.count > 0 {
            self.output.push(b',');
        }
        if (self.judge)(&row, &self.row, &mut self.output)? {
            self.count += 1;
            self.outside
                .extend_from_slice(self.count.to_string().as_bytes());
        } else {
            self.output.truncate(before);
            self.outside.push(b'0');
        }
        self.row.clear();
        Ok(())
    }

    /// Returns the list of the kept rows in three pieces: before the rows, the rows, and after them.
    pub(super) fn finish(self) -> Result<[Vec<u8>; 3], E> {
        let list: FilteredList = match self.in_row {
            true => return Err(NotAList.into()),
            false => serde_json::from_slice(&self.outside).map_err(|_| NotAList)?,
        };
        if list.data.result.result.0 != self.count {
            return Err(NotAList.into());
        }
        let count = self.count;
        let counts = json!({
            "total": count,
            "num_after_truncation": count,
            "num_filtered": count,
            "partial_failure_warning": "",
            "warnings": null,
        })
        .to_string();
        let before = br#"{"result":true,"msg":"","data":{"result":{"result":["#;
        let after = format!("],{}}}}}", &counts[1..]);
        Ok([before.to_vec(), self.output, after.into_bytes()])
    }
}

/// A list with numbers in place of its rows.
#[derive(Debug, Deserialize)]
struct FilteredList {
    data: FilteredData,
}

#[derive(Debug, Deserialize)]
struct FilteredData {
    result: ListAnswer,
}

#[derive(Debug, Deserialize)]
struct ListAnswer {
    result: RowRun,
}

/// Number of kept rows, which must be numbered in order: a row outside the list leaves a gap.
#[derive(Debug)]
struct RowRun(u64);

impl<'de> Deserialize<'de> for RowRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowRunVisitor;
        impl<'de> Visitor<'de> for RowRunVisitor {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rows")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<u64, A::Error> {
                let mut last = 0;
                while let Some(row) = rows.next_element::<u64>()? {
                    if row == last + 1 {
                        last = row;
                    } else if row != 0 {
                        return Err(A::Error::custom("it is not a row"));
                    }
                }
                Ok(last)
            }
        }
        deserializer.deserialize_seq(RowRunVisitor).map(RowRun)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "filter/tests.rs"]
mod tests;
