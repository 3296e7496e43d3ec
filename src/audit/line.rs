//! From an [`Entry`] to the members of its line, bounded whatever a client sent.
//!
//! Pure. Texts are cut at [`LONGEST_TEXT`], lists and nesting are bounded, and what is still too long for
//! [`MAX_LINE`] is cut further; nothing of an entry can make a line fail. Control characters are escaped by JSON.

use serde_json::{Map, Value, json};

use super::chain::MAX_LINE;
use super::{Action, Entry};

/// Longest text of an entry, in bytes.
const LONGEST_TEXT: usize = 4 << 10;

/// Texts of a line that would be too long with [`LONGEST_TEXT`].
const SHORTER_TEXTS: [usize; 2] = [256, 64];

/// Members of an object and items of a list that are kept.
const MOST_ITEMS: usize = 256;

/// Objects and lists in each other.
const DEEPEST: usize = 4;

/// What [`super::chain`] adds to the members: time, number and two hashes.
const SEAL: usize = 256;

/// Shortest token that is taken for one (`eyJ` and two dots): three parts of a signed JSON Web Token.
const SHORTEST_TOKEN: usize = 40;

impl Action {
    /// All, in the order of their words in `--help`.
    pub const ALL: [Self; 7] = [
        Self::Authentication,
        Self::Decision,
        Self::SessionBegan,
        Self::Command,
        Self::SessionEnded,
        Self::Administration,
        Self::Audit,
    ];

    /// The value of `action` in a line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Decision => "decision",
            Self::SessionBegan => "session_began",
            Self::Command => "command",
            Self::SessionEnded => "session_ended",
            Self::Administration => "administration",
            Self::Audit => "audit",
        }
    }
}

/// The members of `entry`'s line that are between `seq` and `prev`, as one JSON object.
pub(super) fn members(entry: &Entry) -> String {
    for longest in [LONGEST_TEXT].into_iter().chain(SHORTER_TEXTS) {
        let members = object(
            entry,
            longest,
            bounded_map(&entry.details, longest, DEEPEST),
        );
        if members.len() + SEAL <= MAX_LINE {
            return members;
        }
    }
    let dropped = Map::from_iter([("dropped_members".to_owned(), entry.details.len().into())]);
    object(entry, SHORTER_TEXTS[1], dropped)
}

fn object(entry: &Entry, longest: usize, details: Map<String, Value>) -> String {
    let mut object = Map::new();
    object.insert("action".to_owned(), entry.action.word().into());
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.to_owned(), value);
        }
    };
    let text = |text: &str| Some(Value::from(bounded_text(text, longest)));
    if let Some(principal) = &entry.principal {
        put("subject", text(principal.subject()));
        put("credential", text(&principal.credential().to_string()));
    }
    put("peer", entry.peer.map(|peer| peer.to_string().into()));
    put("session", entry.session.map(Value::from));
    if let Some(breakpoint) = &entry.breakpoint {
        let names = &breakpoint.names;
        put("cluster", text(&breakpoint.cluster));
        put("breakpoint", text(&breakpoint.id.to_string()));
        put("worker", text(&breakpoint.worker_id));
        put("job", names.job_id.as_deref().and_then(text));
        put("submission", names.submission_id.as_deref().and_then(text));
        put("task", names.task_id.as_deref().and_then(text));
        put("name", text(&breakpoint.name()));
    }
    if !details.is_empty() {
        put("details", Some(Value::Object(details)));
    }
    Value::Object(object).to_string()
}

fn bounded_map(map: &Map<String, Value>, longest: usize, depth: usize) -> Map<String, Value> {
    let mut bounded: Map<String, Value> = map
        .iter()
        .take(MOST_ITEMS)
        .map(|(key, value)| (bounded_text(key, longest), bounded(value, longest, depth)))
        .collect();
    if map.len() > MOST_ITEMS {
        bounded.insert("…".to_owned(), json!(map.len() - MOST_ITEMS));
    }
    bounded
}

fn bounded(value: &Value, longest: usize, depth: usize) -> Value {
    match value {
        Value::String(text) => bounded_text(text, longest).into(),
        Value::Array(_) | Value::Object(_) if depth == 0 => "…".into(),
        Value::Array(items) => {
            let kept = items
                .iter()
                .take(MOST_ITEMS)
                .map(|item| bounded(item, longest, depth - 1));
            let more = items.len().saturating_sub(MOST_ITEMS);
            kept.chain((more > 0).then(|| format!("… {more} more").into()))
                .collect()
        }
        Value::Object(map) => Value::Object(bounded_map(map, longest, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// `text` without what looks like a token, cut to `longest` bytes as JSON writes them.
fn bounded_text(text: &str, longest: usize) -> String {
    // Whatever comes after is cut in any case, and a token that begins before it is seen whole or cut.
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut kept = without_tokens(&text[..end]);
    let mut room = longest;
    let fits = kept
        .char_indices()
        .find(|(_, c)| {
            let width = escaped(*c);
            let over = width > room;
            room = room.saturating_sub(width);
            over
        })
        .map(|(at, _)| at);
    if let Some(at) = fits {
        kept.truncate(at);
    }
    if end < text.len() || fits.is_some() {
        kept += &format!("… ({} bytes)", text.len());
    }
    kept
}

/// Bytes that JSON takes for it.
fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// Callers put no tokens into entries; what a person typed into a debug console may hold one.
fn without_tokens(text: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("eyJ") {
        let (before, from) = rest.split_at(at);
        let length = from.find(|c| !part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(length);
        clean += before;
        // At the end of a text that was cut, a token may lack its last parts.
        let token = word.len() >= SHORTEST_TOKEN && (word.contains('.') || after.is_empty());
        clean += if token { "[token]" } else { word };
        rest = after;
    }
    clean + rest
}
