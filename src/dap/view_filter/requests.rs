//! Every request of debugpy, and what becomes of it where code must not be run.
//!
//! Pure, and the only list: [`judge`]. What passes is built anew from the keys and shapes named here, so a key that
//! nobody has thought of, or one given twice, does not reach the worker.

use serde_json::{Map, Value, json};

use crate::dap::rewrite::is_set;
use crate::policy::{Scope, Scopes};

/// Longest text that is taken: a path, a function's name.
const MAX_TEXT: usize = 4096;
/// Largest id: what JavaScript holds exactly.
const MAX_ID: u64 = (1 << 53) - 1;
/// Breakpoints in one request.
const MAX_BREAKPOINTS: usize = 10_000;

/// Of `breakMode`-less filters, those that debugpy has.
pub(in crate::dap) const FILTERS: [&str; 3] = ["raised", "uncaught", "userUnhandled"];

const CONDITION: &str = "a condition, hit count or log message runs code in the task, which needs the permission `debug`";
const FUNCTION: &str = "a breakpoint on a function outlives the session in debugpy and would stop the task with nobody there, so it needs the permission `debug`; set one on a line";

/// What becomes of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// The worker gets it with these arguments.
    Pass(Value),
    /// The same, without some of the breakpoints asked for: of each, why it is left out.
    Breakpoints {
        arguments: Value,
        left_out: Vec<Option<&'static str>>,
    },
    /// The same; `narrowed`: without ending the task.
    Disconnect { arguments: Value, narrowed: bool },
    /// To be answered with the variable of this name in this frame.
    Show { frame: u64, name: String },
    /// Answered at once.
    Answer(Value),
    /// Refused, for want of `missing` where it is that.
    Refuse { missing: Option<Scope>, why: String },
}

/// A value that is taken over.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Id,
    Flag,
    Text,
    OneOf(&'static [&'static str]),
    Object(&'static [(&'static str, Shape)]),
}

use Shape::{Flag, Id, Object, OneOf, Text};

const VALUE_FORMAT: Shape = Object(&[("hex", Flag), ("rawString", Flag)]);
const FRAME_FORMAT: Shape = Object(&[
    ("hex", Flag),
    ("parameters", Flag),
    ("parameterTypes", Flag),
    ("parameterNames", Flag),
    ("line", Flag),
    ("module", Flag),
    ("includeAll", Flag),
]);
const SOURCE: Shape = Object(&[("name", Text), ("path", Text), ("sourceReference", Id)]);
const GRANULARITY: Shape = OneOf(&["statement", "line", "instruction"]);

/// The arguments that requests which run no code of the client's may have.
fn harmless(command: &str) -> Option<&'static [(&'static str, Shape)]> {
    Some(match command {
        "threads" | "configurationDone" | "debugpySystemInfo" | "pydevdSystemInfo" => &[],
        "modules" => &[("startModule", Id), ("moduleCount", Id)],
        "stackTrace" => &[
            ("threadId", Id),
            ("startFrame", Id),
            ("levels", Id),
            ("format", FRAME_FORMAT),
        ],
        "scopes" | "stepInTargets" => &[("frameId", Id)],
        "variables" => &[
            ("variablesReference", Id),
            ("filter", OneOf(&["indexed", "named"])),
            ("start", Id),
            ("count", Id),
            ("format", VALUE_FORMAT),
        ],
        "source" => &[("source", SOURCE), ("sourceReference", Id)],
        "exceptionInfo" | "pause" => &[("threadId", Id)],
        // These let the program go on in its own order, as the end of the session would.
        "continue" => &[("threadId", Id), ("singleThread", Flag)],
        "next" | "stepOut" => &[
            ("threadId", Id),
            ("singleThread", Flag),
            ("granularity", GRANULARITY),
        ],
        "stepIn" => &[
            ("threadId", Id),
            ("singleThread", Flag),
            ("targetId", Id),
            ("granularity", GRANULARITY),
        ],
        _ => return None,
    })
}

/// What becomes of `command` for somebody who has `scopes`, without [`Scope::Debug`].
pub(super) fn judge(command: &str, arguments: &Value, scopes: Scopes) -> Verdict {
    if let Some(shapes) = harmless(command) {
        return match narrow(arguments, shapes) {
            Ok(arguments) => Verdict::Pass(arguments),
            Err(key) => malformed(key),
        };
    }
    match command {
        "setBreakpoints" => breakpoints(arguments),
        // debugpy 1.8.22 leaves them set when its client goes, and then the task stops with nobody there.
        "setFunctionBreakpoints" => Verdict::Breakpoints {
            left_out: vec![Some(FUNCTION); listed(arguments).map_or(0, <[_]>::len)],
            arguments: json!({"breakpoints": []}),
        },
        "setExceptionBreakpoints" => exception_breakpoints(arguments),
        "evaluate" => evaluate(arguments),
        "completions" => completions(arguments),
        "disconnect" => {
            let wanted = is_set(arguments, "terminateDebuggee");
            let may = scopes.contains(Scope::Terminate);
            Verdict::Disconnect {
                arguments: json!({"terminateDebuggee": wanted && may}),
                narrowed: wanted && !may,
            }
        }
        "terminate" if scopes.contains(Scope::Terminate) => Verdict::Pass(json!({})),
        "terminate" => missing(Scope::Terminate, "ending the worker process"),
        // Only ever a hint, and debugpy knows no such thing.
        "cancel" => Verdict::Answer(Value::Null),
        "setVariable" | "setExpression" => missing(Scope::Debug, "changing a variable"),
        "goto" | "gotoTargets" => missing(Scope::Debug, "jumping to another line"),
        "setDebuggerProperty" | "setPydevdSourceMap" => {
            missing(Scope::Debug, "changing the debugger itself")
        }
        other => {
            let what = format!("the request `{}`", crate::wire::text::shortened(other, 40));
            missing(Scope::Debug, &what)
        }
    }
}

fn missing(scope: Scope, what: &str) -> Verdict {
    Verdict::Refuse {
        missing: Some(scope),
        why: format!(
            "{what} needs the permission `{scope}`, and this session has `view`: it may look, but run nothing; ask whoever gave you the token"
        ),
    }
}

fn malformed(key: &str) -> Verdict {
    Verdict::Refuse {
        missing: None,
        why: format!("`{key}` is not of the kind that the debug adapter protocol has there"),
    }
}

/// `arguments` with the keys of `shapes` alone, or the key whose value has another shape. Null is as absent.
fn narrow<'s>(arguments: &Value, shapes: &'s [(&'s str, Shape)]) -> Result<Value, &'s str> {
    let mut kept = Map::new();
    for (key, shape) in shapes {
        let value = match arguments.get(key) {
            None | Some(Value::Null) => continue,
            Some(value) => value,
        };
        let value = match (shape, value) {
            (Id, Value::Number(number)) if number.as_u64().is_some_and(|n| n <= MAX_ID) => {
                value.clone()
            }
            (Flag, Value::Bool(_)) => value.clone(),
            (Text, Value::String(text)) if text.len() <= MAX_TEXT => value.clone(),
            (OneOf(words), Value::String(text)) if words.contains(&text.as_str()) => value.clone(),
            (Object(shapes), Value::Object(_)) => narrow(value, shapes)?,
            _ => return Err(key),
        };
        kept.insert((*key).to_owned(), value);
    }
    Ok(Value::Object(kept))
}

/// The breakpoints asked for; `None` where that is no list, or too long a one.
fn listed(arguments: &Value) -> Option<&[Value]> {
    match arguments.get("breakpoints") {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(asked)) if asked.len() <= MAX_BREAKPOINTS => Some(asked),
        Some(_) => None,
    }
}

/// Breakpoints on lines, without those that run something when they are reached.
fn breakpoints(arguments: &Value) -> Verdict {
    let Some(asked) = listed(arguments) else {
        return malformed("breakpoints");
    };
    let mut upstream = match narrow(arguments, &[("source", SOURCE), ("sourceModified", Flag)]) {
        Ok(upstream) => upstream,
        Err(key) => return malformed(key),
    };
    let (mut passing, mut left_out) = (Vec::new(), Vec::new());
    for one in asked {
        let given =
            |key: &&str| !matches!(one.get(*key), None | Some(Value::Null)) && one[*key] != "";
        let runs = ["condition", "hitCondition", "logMessage", "mode"]
            .iter()
            .any(given);
        left_out.push(runs.then_some(CONDITION));
        if runs {
            continue;
        }
        match narrow(one, &[("line", Id), ("column", Id)]) {
            Ok(one) => passing.push(one),
            Err(key) => return malformed(key),
        }
    }
    upstream["breakpoints"] = passing.into();
    Verdict::Breakpoints {
        arguments: upstream,
        left_out,
    }
}

/// pydevd *evaluates* the names of exceptions in `exceptionOptions`, and imports what that does not find.
fn exception_breakpoints(arguments: &Value) -> Verdict {
    let list = |key| match arguments.get(key) {
        None | Some(Value::Null) => Ok(&[][..]),
        Some(Value::Array(list)) => Ok(list.as_slice()),
        Some(_) => Err(key),
    };
    let (names, options, exceptions) = match (
        list("filters"),
        list("filterOptions"),
        list("exceptionOptions"),
    ) {
        (Ok(names), Ok(options), Ok(exceptions)) => (names, options, exceptions),
        (Err(key), ..) | (_, Err(key), _) | (.., Err(key)) => return malformed(key),
    };
    if !exceptions.is_empty() {
        return missing(Scope::Debug, "breaking on exceptions by name");
    }
    let mut filters = Vec::new();
    for option in options {
        if !matches!(option.get("condition"), None | Some(Value::Null)) && option["condition"] != ""
        {
            return missing(Scope::Debug, "a condition on an exception breakpoint");
        }
        filters.push(option.get("filterId").unwrap_or(&Value::Null));
    }
    let filters: Vec<_> = names
        .iter()
        .chain(filters)
        .filter(|name| name.as_str().is_some_and(|name| FILTERS.contains(&name)))
        .collect();
    Verdict::Pass(json!({ "filters": filters }))
}

/// A name alone is shown; anything else would have to be run.
fn evaluate(arguments: &Value) -> Verdict {
    let expression = arguments.get("expression").and_then(Value::as_str);
    let Some(expression) = expression.map(str::trim) else {
        return malformed("expression");
    };
    if expression.len() > MAX_TEXT || !is_name(expression) {
        return missing(
            Scope::Debug,
            "evaluating anything but the name of a variable",
        );
    }
    match arguments.get("frameId").and_then(Value::as_u64) {
        Some(frame) if frame <= MAX_ID => Verdict::Show {
            frame,
            name: expression.to_owned(),
        },
        Some(_) => malformed("frameId"),
        None => Verdict::Refuse {
            missing: None,
            why: "a variable is shown of a stopped frame only: select one".to_owned(),
        },
    }
}

/// Behind a dot, debugpy evaluates what is before it. So it gets the unfinished name alone, at its place in the line.
fn completions(arguments: &Value) -> Verdict {
    let Some(text) = arguments.get("text").and_then(Value::as_str) else {
        return malformed("text");
    };
    let kept = match narrow(arguments, &[("frameId", Id), ("column", Id), ("line", Id)]) {
        Ok(kept) => kept,
        Err(key) => return malformed(key),
    };
    let nothing = Verdict::Answer(json!({"targets": []}));
    let (Some(frame), Some(column)) = (kept.get("frameId"), kept["column"].as_u64()) else {
        return nothing;
    };
    let first_line = matches!(kept.get("line").and_then(Value::as_u64), None | Some(0 | 1));
    if text.len() > MAX_TEXT || !first_line || text.contains(|c: char| c.is_control()) {
        return nothing;
    }
    // In characters, counted from 1, as Python counts them.
    let before: Vec<char> = text
        .chars()
        .take(usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX))
        .collect();
    let start = before
        .iter()
        .rposition(|c| !in_name(*c))
        .map_or(0, |n| n + 1);
    let name: String = before[start..].iter().collect();
    if name.is_empty() || before[..start].last() == Some(&'.') || !is_name(&name) {
        return nothing;
    }
    let text = format!("{}{name}", " ".repeat(start));
    Verdict::Pass(json!({"frameId": frame, "text": text, "column": before.len() + 1, "line": 1}))
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A name of Python's, or the beginning of one.
pub(in crate::dap) fn is_name(text: &str) -> bool {
    text.chars().all(in_name) && text.chars().next().is_some_and(|c| !c.is_numeric())
}
