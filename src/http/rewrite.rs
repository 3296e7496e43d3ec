//! Workers answers of Ray's State API, with the debuggers' addresses replaced.
//!
//! Pure, called by [`super::dashboard`] with each piece of the text as it comes. Walks the JSON and replaces only the spans
//! of two values in rows that carry a debugger's port, `ip` and `debugger_port`. All else stays as it was to the byte: order
//! of keys, white space, numbers beyond 64 bits or with odd exponents, and the `NaN` that Python writes. A text that cannot
//! be walked is refused, never let through: what has been given out for its beginning is to be thrown away.

use std::borrow::Cow;
use std::ops::Range;

/// Nesting beyond which a text is refused. Ray's is 6 deep.
const MAX_DEPTH: usize = 64;

/// The answer is not JSON, so addresses in it cannot be told apart.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the Ray head's list of workers is not valid JSON at byte {at}, so its addresses could not be replaced; ask for it again, and report it with the version of Ray if it stays so"
)]
pub struct NotJson {
    at: usize,
}

/// What a row with a debugger's port says of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker<'a> {
    /// `worker_id`, where it is text.
    pub id: Option<&'a str>,
    /// A thread of it waits for a debugger (`num_paused_threads`) and it is not said to be dead
    /// (`is_alive`).
    pub paused: bool,
}

/// The text with `address(worker)` in place of every debugger's address. `None` where there
/// was nothing to replace. Rows without a port (`null`, or 0) stay untouched; the port keeps its
/// JSON type.
///
/// # Errors
/// [`NotJson`] for a text that is no JSON.
pub fn rewrite(
    text: &[u8],
    address: &mut dyn FnMut(Worker<'_>) -> (String, u16),
) -> Result<Option<Vec<u8>>, NotJson> {
    let mut rewriter = Rewriter::new(address);
    let mut new = rewriter.feed(text)?;
    let any = rewriter.any;
    new.extend(rewriter.finish()?);
    Ok(any.then_some(new))
}

/// The same for a text that comes in pieces. Holds of it what may still have to be replaced: about a row.
pub(crate) struct Rewriter<F> {
    address: F,
    /// The text from `base` on.
    held: Vec<u8>,
    /// Where `held` begins in the whole text. All other places are in the whole text too.
    base: usize,
    /// Up to where the text has been walked.
    at: usize,
    /// How far the token at `at`, which is not all there yet, has been looked through.
    scanned: usize,
    /// The string at `at` has something escaped in what has been looked through.
    escaped: bool,
    expect: Expect,
    levels: Vec<Level>,
    edits: Vec<Edit>,
    /// What comes in, one behind the other.
    new: Vec<u8>,
    /// Anything has been replaced.
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
    /// The list is over, and nothing more may come.
    End,
}

/// An array or object that has begun.
struct Level {
    start: usize,
    /// `None`: an array.
    row: Option<Row>,
    /// The key of the value that is being walked.
    key: Key,
}

#[derive(Debug, Clone, Copy)]
enum Key {
    Ip,
    Port,
    WorkerId,
    IsAlive,
    PausedThreads,
    Other,
}

/// A span of the text, and the span of [`Rewriter::new`] that takes its place.
struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

/// What one object says. A key that comes twice counts each time: whichever a client takes, it
/// is replaced.
#[derive(Default)]
struct Row {
    ips: Vec<Range<usize>>,
    ports: Vec<Range<usize>>,
    worker_id: Option<Range<usize>>,
    is_alive: Option<Range<usize>>,
    num_paused_threads: Option<Range<usize>>,
    /// Where the first of these values is.
    first: Option<usize>,
}

impl<F: FnMut(Worker<'_>) -> (String, u16)> Rewriter<F> {
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
            edits: Vec::new(),
            new: Vec::new(),
            any: false,
        }
    }

    /// Takes the next piece of the text, and gives what of the new text is certain by now.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<u8>, NotJson> {
        self.held.extend_from_slice(piece);
        while self.step(false)? {}
        Ok(self.certain())
    }

    /// The end of the new text.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, NotJson> {
        while self.step(true)? {}
        match self.expect {
            Expect::End => Ok(self.certain()),
            _ => Err(self.bad()),
        }
    }

    fn bad(&self) -> NotJson {
        NotJson { at: self.at }
    }

    fn text(&self, span: Range<usize>) -> &[u8] {
        &self.held[span.start - self.base..span.end - self.base]
    }

    /// What has come and is at `at` or behind it.
    fn rest(&self, at: usize) -> &[u8] {
        &self.held[at - self.base..]
    }

    /// Walks one token; `false`: it is not there, or not all of it unless `last`.
    fn step(&mut self, last: bool) -> Result<bool, NotJson> {
        let blanks = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.at += self
            .rest(self.at)
            .iter()
            .take_while(|byte| blanks(byte))
            .count();
        let Some(byte) = self.rest(self.at).first().copied() else {
            return Ok(false);
        };
        match (self.expect, byte) {
            (Expect::FirstValue | Expect::Next, b']') if !self.in_row() => return self.close(),
            (Expect::FirstKey | Expect::Next, b'}') if self.in_row() => return self.close(),
            (Expect::Next, b',') => {
                self.at += 1;
                self.expect = if self.in_row() {
                    Expect::Key
                } else {
                    Expect::Value
                };
            }
            (Expect::Colon, b':') => {
                self.at += 1;
                self.expect = Expect::Value;
            }
            (Expect::Value | Expect::FirstValue, b'{' | b'[') if self.levels.len() < MAX_DEPTH => {
                self.open(byte == b'{');
            }
            (Expect::Value | Expect::FirstValue, b'"') => {
                let Some((span, _)) = self.string(last)? else {
                    return Ok(false);
                };
                self.value(span);
            }
            (Expect::Value | Expect::FirstValue, _) => {
                let Some(span) = self.scalar(last)? else {
                    return Ok(false);
                };
                self.value(span);
            }
            (Expect::Key | Expect::FirstKey, b'"') => {
                let Some((span, escaped)) = self.string(last)? else {
                    return Ok(false);
                };
                let key = self.key(span, escaped);
                if let Some(level) = self.levels.last_mut() {
                    level.key = key;
                }
                self.expect = Expect::Colon;
            }
            _ => return Err(self.bad()),
        }
        Ok(true)
    }

    /// What is being walked is an object.
    fn in_row(&self) -> bool {
        self.levels.last().is_some_and(|level| level.row.is_some())
    }

    fn open(&mut self, object: bool) {
        self.levels.push(Level {
            start: self.at,
            row: object.then(Row::default),
            key: Key::Other,
        });
        self.at += 1;
        self.expect = match object {
            true => Expect::FirstKey,
            false => Expect::FirstValue,
        };
    }

    fn close(&mut self) -> Result<bool, NotJson> {
        self.at += 1;
        if let Some(level) = self.levels.pop() {
            if let Some(row) = level.row {
                self.replace(row)?;
            }
            self.value(level.start..self.at);
        }
        Ok(true)
    }

    /// Takes note of a value that has been walked.
    fn value(&mut self, span: Range<usize>) {
        self.expect = Expect::Next;
        let Some(Level { row, key, .. }) = self.levels.last_mut() else {
            self.expect = Expect::End;
            return;
        };
        let Some(row) = row else { return };
        let start = span.start;
        match key {
            Key::Ip => row.ips.push(span),
            Key::Port => row.ports.push(span),
            Key::WorkerId => row.worker_id = Some(span),
            Key::IsAlive => row.is_alive = Some(span),
            Key::PausedThreads => row.num_paused_threads = Some(span),
            Key::Other => return,
        }
        row.first.get_or_insert(start);
    }

    fn key(&self, span: Range<usize>, escaped: bool) -> Key {
        let plain = if escaped {
            plain(self.text(span.clone()))
        } else {
            None
        };
        let name = match &plain {
            Some(name) => name.as_bytes(),
            None => self.text(span.start + 1..span.end - 1),
        };
        match name {
            b"ip" => Key::Ip,
            b"debugger_port" => Key::Port,
            b"worker_id" => Key::WorkerId,
            b"is_alive" => Key::IsAlive,
            b"num_paused_threads" => Key::PausedThreads,
            _ => Key::Other,
        }
    }

    fn replace(&mut self, row: Row) -> Result<(), NotJson> {
        if row
            .ports
            .iter()
            .all(|port| is_no_port(self.text(port.clone())))
        {
            return Ok(());
        }
        let begins = |at: usize| self.rest(at).first().copied();
        let mut values = row.ips.iter().chain(&row.ports);
        if let Some(span) = values.find(|span| matches!(begins(span.start), Some(b'{' | b'['))) {
            // An address in a shape that no Ray has: better no answer than one with it in.
            return Err(NotJson { at: span.start });
        }
        let held = |span: Range<usize>| &self.held[span.start - self.base..span.end - self.base];
        let id = row.worker_id.and_then(|span| plain(held(span)));
        let dead = row.is_alive.is_some_and(|span| {
            let text = held(span);
            text.eq_ignore_ascii_case(b"false") || text.eq_ignore_ascii_case(b"\"false\"")
        });
        let waits = row
            .num_paused_threads
            .is_some_and(|span| is_positive(held(span)));
        let (ip, port) = (self.address)(Worker {
            id: id.as_deref(),
            paused: waits && !dead,
        });
        self.any = true;
        for old in row.ips {
            self.edit(old, &[b"\"", ip.as_bytes(), b"\""]);
        }
        let port = port.to_string();
        for old in row.ports {
            let quoted = self.rest(old.start).starts_with(b"\"");
            let quote: &[u8] = if quoted { b"\"" } else { b"" };
            self.edit(old, &[quote, port.as_bytes(), quote]);
        }
        Ok(())
    }

    fn edit(&mut self, old: Range<usize>, new: &[&[u8]]) {
        let start = self.new.len();
        for part in new {
            self.new.extend_from_slice(part);
        }
        let new = start..self.new.len();
        self.edits.push(Edit { old, new });
    }

    /// The new text up to the first value that may still have to be replaced; of the old one no more than is behind that
    /// is held any longer.
    fn certain(&mut self) -> Vec<u8> {
        let end = self.end_of_certainty();
        // Rows nest (in theory), so their edits come in the order in which the rows end.
        self.edits.sort_by_key(|edit| edit.old.start);
        let done = self.edits.partition_point(|edit| edit.old.start < end);
        let mut out = Vec::with_capacity(end - self.base + self.new.len());
        let mut copied = self.base;
        for edit in self.edits.drain(..done) {
            out.extend_from_slice(&self.held[copied - self.base..edit.old.start - self.base]);
            out.extend_from_slice(&self.new[edit.new]);
            copied = edit.old.end;
        }
        out.extend_from_slice(&self.held[copied - self.base..end - self.base]);
        if self.edits.is_empty() {
            self.new.clear();
        }
        self.held.drain(..end - self.base);
        self.base = end;
        out
    }

    fn end_of_certainty(&self) -> usize {
        let mut end = self.at;
        for (index, level) in self.levels.iter().enumerate() {
            let first = level.row.as_ref().and_then(|row| row.first);
            end = end.min(first.unwrap_or(end));
            // The value of this key has only begun.
            if !matches!(level.key, Key::Other)
                && let Some(value) = self.levels.get(index + 1)
            {
                end = end.min(value.start);
            }
        }
        end
    }

    /// The string at `at`, and whether anything in it is escaped.
    fn string(&mut self, last: bool) -> Result<Option<(Range<usize>, bool)>, NotJson> {
        let end = self.base + self.held.len();
        let mut from = self.scanned.max(self.at + 1);
        while let Some(found) = memchr::memchr2(b'"', b'\\', self.rest(from)) {
            let found = from + found;
            if self.rest(found).starts_with(b"\"") {
                let span = self.at..found + 1;
                self.at = span.end;
                return Ok(Some((span, std::mem::take(&mut self.escaped))));
            }
            self.escaped = true;
            // A backslash and whatever it escapes; of \u the digits are plain characters.
            from = found + 2;
            if from > end {
                self.scanned = found;
                return if last {
                    Err(NotJson { at: found })
                } else {
                    Ok(None)
                };
            }
        }
        self.scanned = end;
        if last {
            Err(NotJson { at: end })
        } else {
            Ok(None)
        }
    }

    /// A number or a word. Which ones are valid is between Ray and its client.
    fn scalar(&mut self, last: bool) -> Result<Option<Range<usize>>, NotJson> {
        let from = self.scanned.max(self.at);
        let within = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.');
        let rest = self.rest(from);
        let length = rest.iter().take_while(within).count();
        if length == rest.len() && !last {
            self.scanned = from + length;
            return Ok(None);
        }
        let span = self.at..from + length;
        if span.is_empty() {
            return Err(self.bad());
        }
        self.at = span.end;
        Ok(Some(span))
    }
}

fn is_no_port(value: &[u8]) -> bool {
    matches!(value, b"null" | b"0" | b"\"\"" | b"\"0\"")
}

/// A whole number above 0, in quotes or not.
fn is_positive(value: &[u8]) -> bool {
    let digits = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    digits.iter().all(u8::is_ascii_digit) && digits.iter().any(|digit| *digit != b'0')
}

/// The text of the string `quoted`; `None` for another value.
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
