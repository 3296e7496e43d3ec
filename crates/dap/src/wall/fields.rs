//! Sanitizes the fields of messages that an editor acts on.
//!
//! Pure. At a stop an editor opens the file of the topmost frame, unasked: Neovim runs what follows `term://`, Emacs
//! dials the host in `/ssh:…` or `/./ssh:…`, Windows that in `\\…`. VS Code opens the `url` of a failure, its own
//! commands included, and makes links of `[…](command:…)` in notifications.

use memchr::memchr_iter;
use serde_json::{Map, Value};

use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::{one_line, unlinked};

const RESPONSE: &[&str] = &[
    "seq",
    "type",
    "request_seq",
    "success",
    "command",
    "message",
    "body",
];
const EVENT: &[&str] = &["seq", "type", "event", "body"];
const STOPPED: &[&str] = &[
    "reason",
    "description",
    "threadId",
    "preserveFocusHint",
    "text",
    "allThreadsStopped",
    "hitBreakpointIds",
];
const OUTPUT: &[&str] = &[
    "category",
    "output",
    "group",
    "variablesReference",
    "source",
    "line",
    "column",
];
pub(super) const FRAME: &[&str] = &[
    "id",
    "name",
    "source",
    "line",
    "column",
    "endLine",
    "endColumn",
    "moduleId",
    "presentationHint",
];
const BREAKPOINT: &[&str] = &[
    "id",
    "verified",
    "message",
    "source",
    "line",
    "column",
    "endLine",
    "endColumn",
];
pub(super) const SOURCE: &[&str] = &["name", "path", "sourceReference", "presentationHint"];
const ERROR: &[&str] = &["id", "format", "showUser"];

/// Sanitizes a response. Its `request_seq` decides which request it answers, so every known field is checked in each.
pub(super) fn response(message: &mut Value) {
    keep(message, RESPONSE);
    if message.get("success") != Some(&Value::Bool(true)) {
        return failure(message);
    }
    let Value::Object(message) = message else {
        return;
    };
    message.shift_remove("message");
    let Some(Value::Object(body)) = message.get_mut("body") else {
        return;
    };
    for key in ["mimeType", "error"] {
        body.shift_remove(key);
    }
    each(body.get_mut("stackFrames"), frame);
    each(body.get_mut("breakpoints"), breakpoint);
    one(body.get_mut("breakpoint"), breakpoint);
    each(body.get_mut("sources"), source);
    one(body.get_mut("source"), source);
}

/// Sanitizes an event of this name.
pub(super) fn event(message: &mut Value, name: Option<Event>) {
    keep(message, EVENT);
    let Some(body) = message.get_mut("body") else {
        return;
    };
    match name {
        Some(Event::Stopped) => keep(body, STOPPED),
        // Its body could make the editor restart the session.
        Some(Event::Terminated) => *body = Value::Object(Map::new()),
        Some(Event::Output) => output(body),
        Some(Event::Breakpoint) => {
            keep(body, &["reason", "breakpoint"]);
            // debugpy reports only changes of its breakpoints (1.8.0 to 1.8.22). VS Code keeps a new one among its own,
            // beyond the session, and sets it in the tasks of others; a removed one is gone there.
            put(body, "reason", "changed");
            one(body.get_mut("breakpoint"), breakpoint);
        }
        _ => {}
    }
}

fn failure(message: &mut Value) {
    put(message, "success", false);
    if let Some(text) = message.get_mut("message") {
        without_links(text);
    }
    let Some(body) = message.get_mut("body") else {
        return;
    };
    keep(body, &["error"]);
    if let Some(error) = body.get_mut("error") {
        keep(error, ERROR);
        if let Some(format) = error.get_mut("format") {
            without_links(format);
        }
    }
}

fn output(body: &mut Value) {
    keep(body, OUTPUT);
    let prominent = body.get("category").is_some_and(|c| c == "important");
    match body.get("category").and_then(Value::as_str) {
        None if body.get("category").is_none() => {}
        Some("console" | "stdout" | "stderr" | "important") => {}
        // debugpy's telemetry is its greeting, which was read before; an extension acts on its content.
        Some("telemetry") => put(body, "output", ""),
        _ => put(body, "category", "console"),
    }
    if let Some(Value::String(text)) = body.get_mut("output") {
        if prominent {
            *text = unlinked(text).into_owned();
        }
        if drives_terminal(text) {
            *text = text
                .replace(ESCAPE, "\u{241b}")
                .replace(STRING_CONTROLS, "\u{fffd}");
        }
    }
    one(body.get_mut("source"), source);
}

/// Escape character of a terminal.
const ESCAPE: char = '\u{1b}';

/// The one-character forms of sequences with text: DCS, SOS, OSC, PM and APC.
const STRING_CONTROLS: [char; 5] = ['\u{90}', '\u{98}', '\u{9d}', '\u{9e}', '\u{9f}'];

/// Whether `text` does more than colour a terminal: links with a hidden target, titles, the clipboard.
pub(super) fn drives_terminal(text: &str) -> bool {
    let mut from = text;
    while let Some((_, rest)) = from.split_once(ESCAPE) {
        if !rest.starts_with('[') {
            return true;
        }
        from = rest;
    }
    // All of them begin with this rare byte, which is found faster.
    memchr_iter(0xc2, text.as_bytes()).any(|at| text[at..].starts_with(STRING_CONTROLS))
}

fn frame(frame: &mut Value) {
    keep(frame, FRAME);
    one(frame.get_mut("source"), source);
}

/// Sanitizes a breakpoint: VS Code renders the message of a conditional one as trusted Markdown.
fn breakpoint(breakpoint: &mut Value) {
    keep(breakpoint, BREAKPOINT);
    if let Some(Value::String(text)) = breakpoint.get_mut("message") {
        *text = one_line(&unlinked(text)).replace('`', "'");
    }
    one(breakpoint.get_mut("source"), source);
}

fn source(source: &mut Value) {
    keep(source, SOURCE);
    let Value::Object(source) = source else {
        return;
    };
    let is_file = |path: &Value| path.is_null() || path.as_str().is_some_and(names_file);
    if !source.get("path").is_none_or(is_file) {
        source.shift_remove("path");
    }
}

/// Whether an editor that opens `path` opens a file of its own machine: not an address, not a device, and not a file on
/// a host in the path. Editors normalise `.`, `..` and doubled separators first, and on Windows `\\` is a separator
/// too.
pub(super) fn names_file(path: &str) -> bool {
    let separators = ['/', '\\'];
    let rooted = path.strip_prefix(separators);
    let mut rest = rooted.unwrap_or(path);
    let shared = rest.strip_prefix(separators).filter(|_| rooted.is_some());
    if let Some(shared) = shared {
        let (host, share) = shared.split_once(separators).unwrap_or((shared, ""));
        // Windows' names for the files of its Linux.
        if !["wsl$", "wsl.localhost"].contains(&&*host.to_ascii_lowercase()) {
            return false;
        }
        rest = share;
    }
    let mut depth = 0_usize;
    let parts = rest.trim_end_matches(separators).split(separators);
    for (at, part) in parts.enumerate() {
        let is_drive = at == 0
            && rooted.is_none()
            && matches!(part.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic());
        match part {
            ".." if shared.is_some() && depth == 0 => return false,
            ".." => depth = depth.saturating_sub(1),
            // A normalised `/.//host/share` may begin with two separators.
            "" if depth == 0 && at > 0 => return false,
            "" | "." => {}
            // A host (`/ssh:host:`), a scheme, a stream of a file; Windows' devices; a host in another syntax of Emacs.
            _ if part.contains(':') && !is_drive => return false,
            "?" | "??" => return false,
            _ if depth == 0 && part.starts_with('[') => return false,
            _ => depth += 1,
        }
    }
    !path.contains(char::is_control)
}

fn without_links(text: &mut Value) {
    if let Value::String(text) = text {
        *text = unlinked(text).into_owned();
    }
}

fn keep(object: &mut Value, keys: &[&str]) {
    match object {
        Value::Object(fields) => fields.retain(|key, _| keys.contains(&key.as_str())),
        // No reader expects it.
        other => *other = Value::Object(Map::new()),
    }
}

fn one(value: Option<&mut Value>, of: impl Fn(&mut Value)) {
    if let Some(value) = value {
        of(value);
    }
}

fn each(list: Option<&mut Value>, of: impl Fn(&mut Value)) {
    match list {
        Some(Value::Array(items)) => items.iter_mut().for_each(of),
        Some(other) => *other = Value::Array(Vec::new()),
        None => {}
    }
}
