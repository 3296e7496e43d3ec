//! Replaces the debuggers' addresses in the list of workers of Ray's State API.
//!
//! Pure. [`super::dashboard`] feeds it with each piece of the text. It walks the JSON and replaces only the spans of
//! two values, `ip` and `debugger_port`, in rows with a debugger's port. All else stays the same to the byte: order of
//! keys, white space, numbers beyond 64 bits or with odd exponents, and the `NaN` that Python writes. Only text that
//! was parsed successfully is output.

use std::borrow::Cow;
use std::ops::Range;

/// Maximum nesting depth of a text. Ray's is 6.
const MAX_DEPTH: usize = 64;

/// The answer is not JSON, so its addresses cannot be located.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the Ray head's list of workers is not valid JSON at byte {at}, so its addresses could not be replaced; try again, and report it with the version of Ray if it stays so"
)]
pub struct NotJson {
    at: usize,
}

/// A worker, from a row with a debugger's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker<'a> {
    /// `worker_id`, if it is a string.
    pub id: Option<&'a str>,
    /// Whether a thread waits for a debugger (`num_paused_threads`) and the row does not call the worker dead
    /// (`is_alive`).
    pub paused: bool,
}

/// Replaces the address of every debugger in `text`: `address` appends a worker's host to the buffer, and returns the
/// port. `None` if there was nothing to replace. Rows without a port (`null`, or 0) stay unchanged; the port keeps its
/// JSON type.
///
/// # Errors
/// [`NotJson`] for a text that is not JSON.
pub fn rewrite(
    text: &[u8],
    address: &mut dyn FnMut(Worker<'_>, &mut Vec<u8>) -> u16,
) -> Result<Option<Vec<u8>>, NotJson> {
    let mut rewriter = Rewriter::new(address);
    let mut new = rewriter.feed(text)?;
    let any = rewriter.any;
    new.extend(rewriter.finish()?);
    Ok(any.then_some(new))
}

/// Streaming version of [`rewrite`]. It buffers only text that may still have to be replaced: about a row.
pub(crate) struct Rewriter<F> {
    address: F,
    /// The buffered end of the text so far. All offsets are relative to it.
    held: Vec<u8>,
    /// Offset of `held` in the whole text.
    base: usize,
    /// Offset up to which the text was parsed.
    at: usize,
    /// Offset up to which the incomplete token at `at` was scanned.
    scanned: usize,
    /// Whether the scanned part of the string at `at` contains an escape.
    escaped: bool,
    expect: Expect,
    levels: Vec<JsonLevel>,
    /// Relevant values of the open rows, in text order.
    found: Vec<FoundAddress>,
    edits: Vec<Edit>,
    /// The new addresses, concatenated.
    new: Vec<u8>,
    /// Whether anything has been replaced.
    any: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    /// Or the end of the array that has just begun.
    FirstValue,
    Key,
    /// Or the end of the object that has just begun.
    FirstKey,
    Colon,
    /// A comma, or the end of the array or object.
    Next,
    /// The document is complete, and only white space may follow.
    End,
}

/// An open array or object.
struct JsonLevel {
    start: usize,
    /// Whether it is an object.
    is_row: bool,
    /// The key of the value that is being parsed.
    key: RowKey,
    /// Number of values found in the enclosing rows.
    outside: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKey {
    Ip,
    Port,
    WorkerId,
    IsAlive,
    PausedThreads,
    Other,
}

/// A relevant value of a row. A duplicated key is replaced each time, whichever one a client reads.
struct FoundAddress {
    key: RowKey,
    span: Range<usize>,
}

/// A span of the text, and the span of [`Rewriter::new`] that replaces it.
struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

impl<F: FnMut(Worker<'_>, &mut Vec<u8>) -> u16> Rewriter<F> {
    pub(crate) fn new(address: F) -> Self {
        Self {
            address,
            held: Vec::new(),
            base: 0,
            at: 0,
            scanned: 0,
            escaped: false,
            expect: Expect::Value,
            levels: Vec::new(),
            found: Vec::new(),
            edits: Vec::new(),
            new: Vec::new(),
            any: false,
        }
    }

    /// Number of buffered bytes.
    pub(crate) fn held(&self) -> usize {
        self.held.len() + self.new.len()
    }

    /// Processes the next piece of the text, and returns the new text that is final by now.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<u8>, NotJson> {
        self.held.extend_from_slice(piece);
        self.walk(false)?;
        Ok(self.take_final())
    }

    /// Returns the rest of the new text.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, NotJson> {
        self.walk(true)?;
        match self.expect {
            Expect::End => Ok(self.take_final()),
            _ => Err(self.bad(self.at)),
        }
    }

    fn bad(&self, at: usize) -> NotJson {
        NotJson { at: self.base + at }
    }

    /// Parses all complete tokens; `last`: nothing more follows.
    fn walk(&mut self, last: bool) -> Result<(), NotJson> {
        let text = std::mem::take(&mut self.held);
        let walked = self.tokens(&text, last);
        self.held = text;
        walked
    }

    fn tokens(&mut self, text: &[u8], last: bool) -> Result<(), NotJson> {
        while let Some(byte) = text.get(self.at).copied() {
            match (self.expect, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                (Expect::FirstKey | Expect::Key, b'"') => {
                    let Some((span, escaped)) = self.string(text, last)? else {
                        return Ok(());
                    };
                    let key = key(&text[span], escaped);
                    if let Some(level) = self.levels.last_mut() {
                        level.key = key;
                    }
                    self.expect = match text.get(self.at) {
                        Some(b':') => {
                            self.at += 1;
                            Expect::Value
                        }
                        _ => Expect::Colon,
                    };
                }
                (Expect::Colon, b':') => {
                    self.at += 1;
                    self.expect = Expect::Value;
                }
                (Expect::Value | Expect::FirstValue, b'"') => {
                    let Some((span, _)) = self.string(text, last)? else {
                        return Ok(());
                    };
                    self.value(span);
                }
                (Expect::Next, b',') => {
                    self.at += 1;
                    self.expect = match self.in_row() {
                        true => Expect::Key,
                        false => Expect::Value,
                    };
                }
                (Expect::FirstKey | Expect::Next, b'}') if self.in_row() => self.close(text)?,
                (Expect::FirstValue | Expect::Next, b']') if !self.in_row() => self.close(text)?,
                (Expect::Value | Expect::FirstValue, b'{' | b'[')
                    if self.levels.len() < MAX_DEPTH =>
                {
                    self.open(byte == b'{');
                }
                (Expect::Value | Expect::FirstValue, _) => {
                    let Some(span) = self.scalar(text, last)? else {
                        return Ok(());
                    };
                    self.value(span);
                }
                _ => return Err(self.bad(self.at)),
            }
        }
        Ok(())
    }

    /// Whether the innermost open level is an object.
    fn in_row(&self) -> bool {
        self.levels.last().is_some_and(|level| level.is_row)
    }

    fn open(&mut self, is_row: bool) {
        self.levels.push(JsonLevel {
            start: self.at,
            is_row,
            key: RowKey::Other,
            outside: self.found.len(),
        });
        self.at += 1;
        self.expect = match is_row {
            true => Expect::FirstKey,
            false => Expect::FirstValue,
        };
    }

    fn close(&mut self, text: &[u8]) -> Result<(), NotJson> {
        self.at += 1;
        if let Some(level) = self.levels.pop() {
            self.replace(text, level.outside)?;
            self.found.truncate(level.outside);
            self.value(level.start..self.at);
        }
        Ok(())
    }

    /// Records a value that was parsed.
    fn value(&mut self, span: Range<usize>) {
        let Some(level) = self.levels.last() else {
            self.expect = Expect::End;
            return;
        };
        self.expect = Expect::Next;
        if level.key != RowKey::Other {
            let key = level.key;
            self.found.push(FoundAddress { key, span });
        }
    }

    /// Replaces the address in the row whose values begin at `first`.
    fn replace(&mut self, text: &[u8], first: usize) -> Result<(), NotJson> {
        let row = &self.found[first..];
        let all = |key| row.iter().filter(move |found| found.key == key);
        let is_port = |found: &FoundAddress| !is_no_port(&text[found.span.clone()]);
        if !all(RowKey::Port).any(is_port) {
            return Ok(());
        }
        let mut values = all(RowKey::Ip).chain(all(RowKey::Port));
        if let Some(found) = values.find(|found| matches!(text[found.span.start], b'{' | b'[')) {
            // An address in a shape that Ray never uses: an error is better than a leak.
            return Err(self.bad(found.span.start));
        }
        let last_value = |key| all(key).next_back().map(|found| &text[found.span.clone()]);
        let id = last_value(RowKey::WorkerId).and_then(plain);
        let dead = last_value(RowKey::IsAlive).is_some_and(|text| {
            text.eq_ignore_ascii_case(b"false") || text.eq_ignore_ascii_case(b"\"false\"")
        });
        let worker = Worker {
            id: id.as_deref(),
            paused: last_value(RowKey::PausedThreads).is_some_and(is_positive) && !dead,
        };
        self.any = true;
        // Both quoted. An unquoted port uses the span between the quotes.
        let new = &mut self.new;
        new.push(b'"');
        let from = new.len();
        let port = (self.address)(worker, new);
        new.push(b'"');
        let host = from - 1..new.len();
        new.extend_from_slice(format!("\"{port}\"").as_bytes());
        let port = host.end..new.len();
        for FoundAddress { key, span } in row {
            let value = match key {
                RowKey::Ip => host.clone(),
                RowKey::Port if text[span.start] == b'"' => port.clone(),
                RowKey::Port => port.start + 1..port.end - 1,
                RowKey::WorkerId | RowKey::IsAlive | RowKey::PausedThreads | RowKey::Other => {
                    continue;
                }
            };
            self.edits.push(Edit {
                old: span.clone(),
                new: value,
            });
        }
        Ok(())
    }

    /// Returns the new text up to the first value that may still have to be replaced, and drops the old text before it.
    fn take_final(&mut self) -> Vec<u8> {
        let end = self.final_length();
        // Rows nest (in theory), so edits are added in the order in which rows end.
        self.edits.sort_by_key(|edit| edit.old.start);
        let done = self.edits.partition_point(|edit| edit.old.start < end);
        let mut out = Vec::with_capacity(end + self.new.len());
        let mut copied = 0;
        for edit in self.edits.drain(..done) {
            out.extend_from_slice(&self.held[copied..edit.old.start]);
            out.extend_from_slice(&self.new[edit.new]);
            copied = edit.old.end;
        }
        out.extend_from_slice(&self.held[copied..end]);
        if self.edits.is_empty() {
            self.new.clear();
        }
        self.forget(end);
        out
    }

    /// Drops the text before `end`.
    fn forget(&mut self, end: usize) {
        self.held.drain(..end);
        self.base += end;
        self.at -= end;
        self.scanned = self.scanned.saturating_sub(end);
        let shift = |span: &mut Range<usize>| *span = span.start - end..span.end - end;
        self.found
            .iter_mut()
            .for_each(|found| shift(&mut found.span));
        self.edits.iter_mut().for_each(|edit| shift(&mut edit.old));
        for level in &mut self.levels {
            // The start is needed only while the whole level is buffered.
            level.start = level.start.saturating_sub(end);
        }
    }

    fn final_length(&self) -> usize {
        // Deeper values are further back.
        let found = self.found.first().map(|found| found.span.start);
        let mut end = found.unwrap_or(self.at);
        for (level, value) in self.levels.iter().zip(self.levels.iter().skip(1)) {
            // The value of this key is incomplete.
            if level.key != RowKey::Other {
                end = end.min(value.start);
            }
        }
        end
    }

    /// Parses the string at `at`. Returns its span, and whether it contains an escape.
    fn string(&mut self, text: &[u8], last: bool) -> Result<Option<(Range<usize>, bool)>, NotJson> {
        let mut from = self.scanned.max(self.at + 1);
        while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(from..).unwrap_or_default()) {
            let found = from + found;
            if text[found] == b'"' {
                let span = self.at..found + 1;
                self.at = span.end;
                return Ok(Some((span, std::mem::take(&mut self.escaped))));
            }
            self.escaped = true;
            // Skips a backslash and the character after it; the digits of \u are plain characters.
            from = found + 2;
            if from > text.len() {
                self.scanned = found;
                return if last { Err(self.bad(found)) } else { Ok(None) };
            }
        }
        self.scanned = text.len();
        if last {
            Err(self.bad(text.len()))
        } else {
            Ok(None)
        }
    }

    /// Parses a number or a word. Which ones are valid is up to Ray and its client.
    fn scalar(&mut self, text: &[u8], last: bool) -> Result<Option<Range<usize>>, NotJson> {
        let from = self.scanned.max(self.at);
        let within = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.');
        let end = from + text[from..].iter().take_while(within).count();
        if end == text.len() && !last {
            self.scanned = end;
            return Ok(None);
        }
        let span = self.at..end;
        if span.is_empty() {
            return Err(self.bad(self.at));
        }
        self.at = end;
        Ok(Some(span))
    }
}

/// Maps the key `quoted`; `escaped`: it contains an escape.
fn key(quoted: &[u8], escaped: bool) -> RowKey {
    let plain = if escaped { plain(quoted) } else { None };
    let name = match &plain {
        Some(name) => name.as_bytes(),
        None => &quoted[1..quoted.len() - 1],
    };
    match name {
        b"ip" => RowKey::Ip,
        b"debugger_port" => RowKey::Port,
        b"worker_id" => RowKey::WorkerId,
        b"is_alive" => RowKey::IsAlive,
        b"num_paused_threads" => RowKey::PausedThreads,
        _ => RowKey::Other,
    }
}

fn is_no_port(value: &[u8]) -> bool {
    matches!(value, b"null" | b"0" | b"\"\"" | b"\"0\"")
}

/// Whether it is a whole number above 0, quoted or not.
fn is_positive(value: &[u8]) -> bool {
    let digits = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    digits.iter().all(u8::is_ascii_digit) && digits.iter().any(|digit| *digit != b'0')
}

/// Decodes the string `quoted`; `None` for another value.
fn plain(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice::<String>(quoted)
            .ok()
            .map(Into::into);
    }
    std::str::from_utf8(inner).ok().map(Into::into)
}

#[cfg(test)]
#[path = "rewrite/tests.rs"]
mod tests;
