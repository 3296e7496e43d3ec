//! Workers answers of Ray's State API, with the debuggers' addresses replaced.
//!
//! Pure, called by [`super::dashboard`]. Walks the JSON text and replaces only the spans of two
//! values in rows that carry a debugger's port, `ip` and `debugger_port`. All else stays as it
//! was to the byte: order of keys, white space, numbers beyond 64 bits or with odd exponents, and
//! the `NaN` that Python writes. A text that cannot be walked is refused, never let through.

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
    let mut walker = Walker {
        text,
        at: 0,
        edits: Vec::new(),
        new: Vec::new(),
        address,
    };
    walker.value(0)?;
    walker.blank();
    if walker.at != text.len() {
        return Err(walker.bad());
    }
    if walker.edits.is_empty() {
        return Ok(None);
    }
    let (mut edits, new) = (walker.edits, walker.new);
    // Rows nest (in theory), so their edits come in the order in which the rows end.
    edits.sort_by_key(|edit| edit.old.start);
    let mut out = Vec::with_capacity(text.len() + new.len());
    let mut copied = 0;
    for edit in edits {
        out.extend_from_slice(&text[copied..edit.old.start]);
        out.extend_from_slice(&new[edit.new]);
        copied = edit.old.end;
    }
    out.extend_from_slice(&text[copied..]);
    Ok(Some(out))
}

struct Walker<'a> {
    text: &'a [u8],
    at: usize,
    edits: Vec<Edit>,
    /// What comes in, one behind the other.
    new: Vec<u8>,
    address: &'a mut dyn FnMut(Worker<'_>) -> (String, u16),
}

/// A span of the text, and the span of [`Walker::new`] that takes its place.
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
}

impl Walker<'_> {
    fn bad(&self) -> NotJson {
        NotJson { at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.peek() != Some(byte) {
            return Err(self.bad());
        }
        self.at += 1;
        Ok(())
    }

    /// One value with the blanks before it; its span.
    fn value(&mut self, depth: usize) -> Result<Range<usize>, NotJson> {
        self.blank();
        let start = self.at;
        match self.peek() {
            Some(b'{') if depth < MAX_DEPTH => self.object(depth)?,
            Some(b'[') if depth < MAX_DEPTH => self.array(depth)?,
            Some(b'"') => _ = self.string()?,
            _ => self.scalar()?,
        }
        Ok(start..self.at)
    }

    fn array(&mut self, depth: usize) -> Result<(), NotJson> {
        self.take(b'[')?;
        self.blank();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.blank();
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(());
            }
            self.take(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), NotJson> {
        self.take(b'{')?;
        self.blank();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let mut row = Row::default();
        loop {
            self.blank();
            let key = self.at;
            let escaped = self.string()?;
            let key = key..self.at;
            self.blank();
            self.take(b':')?;
            let value = self.value(depth + 1)?;
            let name = match escaped {
                true => plain(self.text, &key).map(Cow::into_owned),
                false => None,
            };
            let name = match &name {
                Some(name) => name.as_bytes(),
                None => &self.text[key.start + 1..key.end - 1],
            };
            match name {
                b"ip" => row.ips.push(value),
                b"debugger_port" => row.ports.push(value),
                b"worker_id" => row.worker_id = Some(value),
                b"is_alive" => row.is_alive = Some(value),
                b"num_paused_threads" => row.num_paused_threads = Some(value),
                _ => {}
            }
            self.blank();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return self.replace(row);
            }
            self.take(b',')?;
        }
    }

    fn replace(&mut self, row: Row) -> Result<(), NotJson> {
        if row.ports.iter().all(|port| self.is_no_port(port)) {
            return Ok(());
        }
        let values = row.ips.iter().chain(&row.ports);
        if let Some(span) = values
            .into_iter()
            .find(|span| matches!(self.text[span.start], b'{' | b'['))
        {
            // An address in a shape that no Ray has: better no answer than one with it in.
            return Err(NotJson { at: span.start });
        }
        let id = row.worker_id.and_then(|span| plain(self.text, &span));
        let dead = row.is_alive.is_some_and(|span| {
            let text = &self.text[span];
            text.eq_ignore_ascii_case(b"false") || text.eq_ignore_ascii_case(b"\"false\"")
        });
        let waits = row
            .num_paused_threads
            .is_some_and(|span| is_positive(&self.text[span]));
        let (ip, port) = (self.address)(Worker {
            id: id.as_deref(),
            paused: waits && !dead,
        });
        for old in row.ips {
            let quoted = ["\"", &ip, "\""];
            self.edit(old, &quoted.map(str::as_bytes));
        }
        let port = port.to_string();
        for old in row.ports {
            let quote: &[u8] = if self.text[old.start] == b'"' {
                b"\""
            } else {
                b""
            };
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

    fn is_no_port(&self, span: &Range<usize>) -> bool {
        matches!(
            &self.text[span.clone()],
            b"null" | b"0" | b"\"\"" | b"\"0\""
        )
    }

    /// Whether anything in it is escaped.
    fn string(&mut self) -> Result<bool, NotJson> {
        self.take(b'"')?;
        let mut escaped = false;
        while let Some(found) = memchr::memchr2(b'"', b'\\', &self.text[self.at..]) {
            self.at += found + 1;
            if self.text[self.at - 1] == b'"' {
                return Ok(escaped);
            }
            // A backslash and whatever it escapes; of \u the digits are plain characters.
            escaped = true;
            if self.at == self.text.len() {
                self.at -= 1;
                return Err(self.bad());
            }
            self.at += 1;
        }
        self.at = self.text.len();
        Err(self.bad())
    }

    /// A number or a word. Which ones are valid is between Ray and its client.
    fn scalar(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.')
        ) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.bad())
        } else {
            Ok(())
        }
    }
}

/// A whole number above 0, in quotes or not.
fn is_positive(value: &[u8]) -> bool {
    let digits = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    digits.iter().all(u8::is_ascii_digit) && digits.iter().any(|digit| *digit != b'0')
}

/// The text of the string at `span`; `None` for another value.
fn plain<'t>(text: &'t [u8], span: &Range<usize>) -> Option<Cow<'t, str>> {
    let quoted = &text[span.clone()];
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
