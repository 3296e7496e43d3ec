//! Sanitizes the fields of messages that an editor acts on.
//!
//! Pure. At a stop an editor opens the file of the topmost frame, unasked: Neovim runs what follows `term://`, Emacs
//! dials the host in `/ssh:…` or `/./ssh:…`, Windows that in `\\…`. VS Code opens the `url` of a failure, its own
//! commands included, and makes links of `[…](command:…)` in notifications.

use memchr::memchr_iter;
use serde_json::{Map, Value};

use super::paths::names_file;
use super::schemas::{FRAME, OUTPUT_BODY, SOURCE};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::dap::schema::console::STRING_CONTROLS;
use ray_relay_base::wire::dap::schema::{PLAIN_EVENT, PLAIN_RESPONSE};
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::{one_line, unlinked};

const STOPPED: &[&str] = &[
    "reason",
    "description",
    "threadId",
    "preserveFocusHint",
    "text",
    "allThreadsStopped",
    "hitBreakpointIds",
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
const ERROR: &[&str] = &["id", "format", "showUser"];

/// Sanitizes a response. Its `request_seq` decides which request it answers, so every known field is checked in each.
pub(super) fn response(message: &mut Value) {
    keep(message, |key| PLAIN_RESPONSE.passes(key));
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
    keep(message, |key| PLAIN_EVENT.passes(key));
    let Some(body) = message.get_mut("body") else {
        return;
    };
    match name {
        Some(Event::Stopped) => keep(body, |key| STOPPED.contains(&key)),
        // Its body could make the editor restart the session.
        Some(Event::Terminated) => *body = Value::Object(Map::new()),
        Some(Event::Output) => output(body),
        Some(Event::Breakpoint) => {
            keep(body, |key| matches!(key, "reason" | "breakpoint"));
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
    keep(body, |key| key == "error");
    if let Some(error) = body.get_mut("error") {
        keep(error, |key| ERROR.contains(&key));
        if let Some(format) = error.get_mut("format") {
            without_links(format);
        }
    }
}

fn output(body: &mut Value) {
    keep(body, |key| OUTPUT_BODY.passes(key));
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

/// Whether `text` does more than colour a terminal: links with a hidden target, titles, the clipboard.
fn drives_terminal(text: &str) -> bool {
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
    keep(frame, |key| FRAME.passes(key));
    one(frame.get_mut("source"), source);
}

/// Sanitizes a breakpoint: VS Code renders the message of a conditional one as trusted Markdown.
fn breakpoint(breakpoint: &mut Value) {
    keep(breakpoint, |key| BREAKPOINT.contains(&key));
    if let Some(Value::String(text)) = breakpoint.get_mut("message") {
        *text = one_line(&unlinked(text)).replace('`', "'");
    }
    one(breakpoint.get_mut("source"), source);
}

fn source(source: &mut Value) {
    keep(source, |key| SOURCE.passes(key));
    let Value::Object(source) = source else {
        return;
    };
    let is_file = |path: &Value| path.is_null() || path.as_str().is_some_and(names_file);
    if !source.get("path").is_none_or(is_file) {
        source.shift_remove("path");
    }
}

fn without_links(text: &mut Value) {
    if let Value::String(text) = text {
        *text = unlinked(text).into_owned();
    }
}

fn keep(object: &mut Value, passes: impl Fn(&str) -> bool) {
    match object {
        Value::Object(fields) => fields.retain(|key, _| passes(key)),
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
