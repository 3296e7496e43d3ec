//! Converts an [`Entry`] to the members of its line, bounded whatever a client sent.
//!
//! Pure. Texts, lists and nesting are bounded, more tightly if the line would be longer than [`MAX_LINE_BYTES`]
//! ([`BOUNDS`]). No entry can make a line fail. Control characters are escaped by JSON.

use serde_json::{Map, Value};

use super::chain::{Hash, MAX_LINE_BYTES};
use super::{Entry, EntryKind};

/// How much of an entry is written out. The rest is replaced by its length and its SHA-256, so that an
/// original can be checked against it.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Bytes of a text, as JSON writes them.
    text: usize,
    /// Members of an object and items of a list.
    items: usize,
    /// Nesting of objects and lists.
    depth: usize,
}

/// Tried one after the other until the line is short enough, which the last is for every entry.
const BOUNDS: [Bounds; 5] = [
    Bounds {
        text: 4 << 10,
        items: 256,
        depth: 8,
    },
    Bounds {
        text: 1 << 10,
        items: 256,
        depth: 8,
    },
    Bounds {
        text: 256,
        items: 64,
        depth: 8,
    },
    Bounds {
        text: 64,
        items: 16,
        depth: 8,
    },
    TIGHTEST,
];

const TIGHTEST: Bounds = Bounds {
    text: 64,
    items: 16,
    depth: 0,
};

/// Bytes that [`super::chain`] adds to the members: time, number and two hashes.
const SEAL_BYTES: usize = 256;

/// Shortest text that is treated as a token (`eyJ` and two dots): three parts of a signed JSON Web Token.
const MIN_TOKEN_CHARS: usize = 40;

impl EntryKind {
    /// All kinds, in the order of their words in `--help`.
    pub const ALL: [Self; 9] = [
        Self::Authentication,
        Self::Decision,
        Self::SessionBegan,
        Self::Command,
        Self::SessionParked,
        Self::SessionEnded,
        Self::Administration,
        Self::Agent,
        Self::Audit,
    ];

    /// Returns the value of `action` in a line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Decision => "decision",
            Self::SessionBegan => "session_began",
            Self::Command => "command",
            Self::SessionParked => "session_parked",
            Self::SessionEnded => "session_ended",
            Self::Administration => "administration",
            Self::Agent => "agent",
            Self::Audit => "audit",
        }
    }
}

/// Returns the members of `entry`'s line between `seq` and `prev`, as one JSON object.
pub(super) fn members(entry: &Entry) -> String {
    let fits = BOUNDS
        .iter()
        .map(|bounds| object(entry, *bounds))
        .find(|members| members.len() + SEAL_BYTES <= MAX_LINE_BYTES);
    fits.unwrap_or_else(|| object(&Entry::new(entry.action), TIGHTEST))
}

fn object(entry: &Entry, bounds: Bounds) -> String {
    let mut object = Map::new();
    object.insert("action".to_owned(), entry.action.word().into());
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.to_owned(), value);
        }
    };
    let text = |text: &str| Some(Value::from(bounded_text(text, bounds.text)));
    if let Some(principal) = &entry.principal {
        put("subject", text(principal.subject()));
        put("credential", text(&principal.credential().to_string()));
    }
    put("peer", entry.peer.map(|peer| peer.to_string().into()));
    put("session", entry.session.map(Value::from));
    put("request", entry.request.map(|id| id.to_string().into()));
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
    if !entry.details.is_empty() {
        let details = bounded_map(&entry.details, bounds);
        put("details", Some(Value::Object(details)));
    }
    Value::Object(object).to_string()
}

fn bounded_map(map: &Map<String, Value>, bounds: Bounds) -> Map<String, Value> {
    let mut result: Map<String, Value> = map
        .iter()
        .take(bounds.items)
        .map(|(key, value)| (bounded_text(key, bounds.text), bounded(value, bounds)))
        .collect();
    if map.len() > bounds.items {
        let rest: Map<String, Value> = map
            .iter()
            .skip(bounds.items)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let left_out = format!(
            "{} more {}",
            rest.len(),
            digest_note(&Value::Object(rest).to_string())
        );
        result.insert("…".to_owned(), left_out.into());
    }
    result
}

fn bounded(value: &Value, bounds: Bounds) -> Value {
    let inner = Bounds {
        depth: bounds.depth.saturating_sub(1),
        ..bounds
    };
    match value {
        Value::String(text) => bounded_text(text, bounds.text).into(),
        Value::Array(_) | Value::Object(_) if bounds.depth == 0 => {
            format!("… {}", digest_note(&value.to_string())).into()
        }
        Value::Array(items) => {
            let result = items.iter().take(bounds.items);
            let result = result.map(|item| bounded(item, inner));
            let rest = items.get(bounds.items..).filter(|rest| !rest.is_empty());
            let more = rest.map(|rest| {
                let text = Value::from(rest).to_string();
                format!("… {} more {}", rest.len(), digest_note(&text)).into()
            });
            result.chain(more).collect()
        }
        Value::Object(map) => Value::Object(bounded_map(map, inner)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Describes `text` that is not written out. Lists and objects count as JSON without spaces.
fn digest_note(text: &str) -> String {
    let hash = Hash::plain(text.as_bytes());
    format!("({} bytes, SHA-256 {hash})", text.len())
}

/// Removes texts that look like tokens, and cuts to `longest` bytes as JSON writes them.
fn bounded_text(text: &str, longest: usize) -> String {
    // Anything after this is cut in any case. A token that begins before it is seen whole or cut.
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut result = without_tokens(&text[..end]);
    let mut room = longest;
    let fits = result
        .char_indices()
        .find(|(_, c)| {
            let width = escaped(*c);
            let over = width > room;
            room = room.saturating_sub(width);
            over
        })
        .map(|(at, _)| at);
    if let Some(at) = fits {
        result.truncate(at);
    }
    if end < text.len() || fits.is_some() {
        result += &format!("… {}", digest_note(text));
    }
    result
}

/// Returns the bytes that JSON needs for `c`.
fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// Callers put no tokens into entries, but input of a debug console may contain one.
fn without_tokens(text: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("eyJ") {
        let (before, from) = rest.split_at(at);
        let length = from.find(|c| !part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(length);
        clean += before;
        // At the end of a cut text, a token may lack its last parts.
        let token = word.len() >= MIN_TOKEN_CHARS && (word.contains('.') || after.is_empty());
        clean += if token { "[token]" } else { word };
        rest = after;
    }
    clean + rest
}
