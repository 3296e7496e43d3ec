//! Every request of debugpy, and its handling in a view-only session.
//!
//! Pure. [`crate::messages`] has the table; here is its meaning ([`judge`]). A passing request is rebuilt from the keys
//! and shapes named here, so an unforeseen or duplicate key does not reach the worker.

use serde_json::{Map, Value, json};

use crate::messages;
use crate::rewrite::is_set;
use ray_relay_access::policy::{Scope, Scopes};
use ray_relay_base::wire::json::put;

/// Longest accepted text: a path, a function's name.
pub(super) const MAX_TEXT: usize = 4096;
/// Largest id: the largest integer that JavaScript represents exactly.
pub(super) const MAX_ID: u64 = (1 << 53) - 1;
/// Most breakpoints in one request.
const MAX_BREAKPOINTS: usize = 10_000;

/// The names of debugpy's exception filters.
pub(crate) const FILTERS: [&str; 3] = ["raised", "uncaught", "userUnhandled"];

const CONDITION: &str = "a condition, hit count or log message runs code in the task, which needs the permission `debug`";
const FUNCTION: &str = "a breakpoint on a function outlives the session in debugpy and could stop the task with no client attached, so it needs the permission `debug`; set one on a line";

/// The decision about one request.
#[derive(Debug, PartialEq)]
pub(super) enum RequestVerdict {
    /// Forward with these arguments.
    Pass(Value),
    /// Forward without some of its breakpoints. `left_out` has an entry for each requested one: the reason, if it is
    /// omitted.
    Breakpoints {
        arguments: Value,
        left_out: Vec<Option<&'static str>>,
    },
    /// Forward; `narrowed`: without ending the task, although that was requested.
    Disconnect { arguments: Value, narrowed: bool },
    /// Answer with the variable of this name in this frame.
    Show { frame: u64, name: String },
    /// Answer with the scopes of this frame.
    Scopes { frame: u64 },
    /// Answer with the children of a variable, by these arguments.
    Inside(Value),
    /// Answer at once, with this body.
    Answer(Value),
    /// Refuse, for the `missing` permission if that is the reason.
    Refuse { missing: Option<Scope>, why: String },
}

/// Handling of a request in a view-only session.
#[derive(Debug, Clone, Copy)]
pub enum ForView {
    /// Passes with these arguments, which run no code of the client.
    Arguments(Shapes),
    /// Answered with references of the relay's own.
    Scopes,
    /// Answered by the relay's own probe.
    Variables,
    /// Line breakpoints: those that run code when hit are not forwarded.
    Breakpoints,
    /// Function breakpoints: none is forwarded.
    FunctionBreakpoints,
    /// Exception breakpoints: by filter names only.
    Filters,
    /// Shows a name, refuses anything else.
    Evaluates,
    /// Completes a name, and nothing else.
    Completions,
    /// The client disconnects; ending the task has its own permission.
    Disconnects,
    /// Ends the task: has its own permission.
    Terminates,
    /// The relay answers the request itself, at once.
    Answered,
    /// Refused: it changes a variable.
    ChangesVariable,
    /// Refused: it leaves the program's own order.
    Jumps,
    /// Refused: it changes the debugger.
    ChangesDebugger,
    /// Refused: not reviewed.
    Unknown,
}

/// Allowed arguments of a request, by key.
pub(crate) type Shapes = &'static [(&'static str, Shape)];

/// Shape of an allowed value.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A whole number.
    Id,
    /// True or false.
    Flag,
    /// A text of bounded length.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An object with these keys.
    Object(Shapes),
}

use Shape::{Flag, Id, Object, OneOf, Text};

const SOURCE: Shape = Object(&[("name", Text), ("path", Text), ("sourceReference", Id)]);
const GRANULARITY: Shape = OneOf(&["statement", "line", "instruction"]);

pub(crate) const NONE: Shapes = &[];
pub(crate) const THREAD: Shapes = &[("threadId", Id)];
pub(crate) const FRAME: Shapes = &[("frameId", Id)];
pub(crate) const MODULES: Shapes = &[("startModule", Id), ("moduleCount", Id)];
pub(crate) const STACK: Shapes = &[("threadId", Id), ("startFrame", Id), ("levels", Id)];
const VARIABLES: Shapes = &[
    ("variablesReference", Id),
    ("filter", OneOf(&["indexed", "named"])),
    ("start", Id),
    ("count", Id),
];
pub(crate) const SOURCE_TEXT: Shapes = &[("source", SOURCE), ("sourceReference", Id)];
pub(crate) const CONTINUE: Shapes = &[("threadId", Id), ("singleThread", Flag)];
pub(crate) const STEP: Shapes = &[
    ("threadId", Id),
    ("singleThread", Flag),
    ("granularity", GRANULARITY),
];
pub(crate) const STEP_IN: Shapes = &[
    ("threadId", Id),
    ("singleThread", Flag),
    ("targetId", Id),
    ("granularity", GRANULARITY),
];

impl ForView {
    /// Whether the filter changes or consumes the answer.
    pub(crate) fn sees_answer(self) -> bool {
        match self {
            Self::Breakpoints | Self::FunctionBreakpoints | Self::Evaluates => true,
            Self::Arguments(_)
            | Self::Filters
            | Self::Scopes
            | Self::Variables
            | Self::Completions
            | Self::Disconnects
            | Self::Terminates
            | Self::Answered
            | Self::ChangesVariable
            | Self::Jumps
            | Self::ChangesDebugger
            | Self::Unknown => false,
        }
    }

    /// Whether it comes from every movement of a mouse or key, so that the client shows a refusal in place.
    pub(super) fn is_asked_in_passing(self) -> bool {
        matches!(
            self,
            Self::Evaluates | Self::Completions | Self::ChangesVariable
        )
    }
}

/// Decides about `command` for a principal with `scopes`, without [`Scope::Debug`].
pub(super) fn judge(command: &str, arguments: &Value, scopes: Scopes) -> RequestVerdict {
    match messages::Request::of(command.as_bytes()).view {
        ForView::Arguments(shapes) => match narrow(arguments, shapes) {
            Ok(arguments) => RequestVerdict::Pass(arguments),
            Err(key) => malformed(key),
        },
        ForView::Scopes => {
            match narrow(arguments, FRAME)
                .map(|narrowed| narrowed.get("frameId").and_then(Value::as_u64))
            {
                Ok(Some(frame)) => RequestVerdict::Scopes { frame },
                Ok(None) => malformed("frameId"),
                Err(key) => malformed(key),
            }
        }
        ForView::Variables => match narrow(arguments, VARIABLES) {
            Ok(arguments) => RequestVerdict::Inside(arguments),
            Err(key) => malformed(key),
        },
        ForView::Breakpoints => breakpoints(arguments),
        // debugpy 1.8.22 keeps them when its client disconnects, and then the task stops without a client.
        ForView::FunctionBreakpoints => RequestVerdict::Breakpoints {
            left_out: vec![Some(FUNCTION); listed(arguments).map_or(0, <[_]>::len)],
            arguments: json!({"breakpoints": []}),
        },
        ForView::Filters => exception_breakpoints(arguments),
        ForView::Evaluates => evaluate(arguments),
        ForView::Completions => completions(arguments),
        ForView::Disconnects => {
            let requested = is_set(arguments, "terminateDebuggee");
            let may = scopes.contains(Scope::Terminate);
            let mut disconnect = json!({"terminateDebuggee": requested && may});
            if !requested && is_set(arguments, "suspendDebuggee") {
                disconnect["suspendDebuggee"] = true.into();
            }
            RequestVerdict::Disconnect {
                arguments: disconnect,
                narrowed: requested && !may,
            }
        }
        ForView::Terminates if scopes.contains(Scope::Terminate) => RequestVerdict::Pass(json!({})),
        ForView::Terminates => missing(Scope::Terminate, "ending the worker process"),
        ForView::Answered => RequestVerdict::Answer(Value::Null),
        ForView::ChangesVariable => missing(Scope::Debug, "changing a variable"),
        ForView::Jumps => missing(Scope::Debug, "jumping to another line"),
        ForView::ChangesDebugger => missing(Scope::Debug, "changing the debugger itself"),
        ForView::Unknown => {
            let what = format!(
                "the request `{}`",
                ray_relay_base::wire::text::shortened(command, 40)
            );
            missing(Scope::Debug, &what)
        }
    }
}

fn missing(scope: Scope, what: &str) -> RequestVerdict {
    RequestVerdict::Refuse {
        missing: Some(scope),
        why: format!(
            "{what} needs the permission `{scope}`, and this session has `view`: it may look, but run nothing"
        ),
    }
}

fn malformed(key: &str) -> RequestVerdict {
    RequestVerdict::Refuse {
        missing: None,
        why: format!("`{key}` is not of the kind that the debug adapter protocol has there"),
    }
}

/// Reduces `arguments` to the keys of `shapes`; the error is the key whose value has another shape. Null counts as
/// absent.
fn narrow(arguments: &Value, shapes: &[(&'static str, Shape)]) -> Result<Value, &'static str> {
    let mut narrowed = Map::new();
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
        narrowed.insert((*key).to_owned(), value);
    }
    Ok(Value::Object(narrowed))
}

/// The requested breakpoints; `None` if that is no list, or too long.
fn listed(arguments: &Value) -> Option<&[Value]> {
    match arguments.get("breakpoints") {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(requested)) if requested.len() <= MAX_BREAKPOINTS => Some(requested),
        Some(_) => None,
    }
}

/// Whether `key` of a breakpoint has a value.
fn is_given(breakpoint: &Value, key: &str) -> bool {
    let value = breakpoint.get(key);
    value.is_some_and(|value| !value.is_null() && value != "")
}

/// Forwards line breakpoints without those that run code when hit.
fn breakpoints(arguments: &Value) -> RequestVerdict {
    let Some(requested) = listed(arguments) else {
        return malformed("breakpoints");
    };
    let mut upstream = match narrow(arguments, &[("source", SOURCE), ("sourceModified", Flag)]) {
        Ok(upstream) => upstream,
        Err(key) => return malformed(key),
    };
    let (mut passing, mut left_out) = (Vec::new(), Vec::new());
    for one in requested {
        let runs = ["condition", "hitCondition", "logMessage", "mode"]
            .iter()
            .any(|key| is_given(one, key));
        left_out.push(runs.then_some(CONDITION));
        if runs {
            continue;
        }
        match narrow(one, &[("line", Id), ("column", Id)]) {
            Ok(one) => passing.push(one),
            Err(key) => return malformed(key),
        }
    }
    put(&mut upstream, "breakpoints", passing);
    RequestVerdict::Breakpoints {
        arguments: upstream,
        left_out,
    }
}

/// Forwards filter names only: pydevd *evaluates* the names in `exceptionOptions`, and imports what that does not find.
fn exception_breakpoints(arguments: &Value) -> RequestVerdict {
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
        if is_given(option, "condition") {
            return missing(Scope::Debug, "a condition on an exception breakpoint");
        }
        filters.push(option.get("filterId").unwrap_or(&Value::Null));
    }
    let filters: Vec<_> = names
        .iter()
        .chain(filters)
        .filter(|name| name.as_str().is_some_and(|name| FILTERS.contains(&name)))
        .collect();
    RequestVerdict::Pass(json!({ "filters": filters }))
}

/// Shows a name; anything else would run code.
fn evaluate(arguments: &Value) -> RequestVerdict {
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
        Some(frame) if frame <= MAX_ID => RequestVerdict::Show {
            frame,
            name: expression.to_owned(),
        },
        Some(_) => malformed("frameId"),
        None => RequestVerdict::Refuse {
            missing: None,
            why: "a variable is shown of a stopped frame only: select one".to_owned(),
        },
    }
}

/// Completes names: after a dot, debugpy evaluates what precedes. So it gets only the unfinished name, at its position
/// in the line.
fn completions(arguments: &Value) -> RequestVerdict {
    let Some(text) = arguments.get("text").and_then(Value::as_str) else {
        return malformed("text");
    };
    let narrowed = match narrow(arguments, &[("frameId", Id), ("column", Id), ("line", Id)]) {
        Ok(narrowed) => narrowed,
        Err(key) => return malformed(key),
    };
    let nothing = RequestVerdict::Answer(json!({"targets": []}));
    let number = |key: &str| narrowed.get(key).and_then(Value::as_u64);
    let (Some(frame), Some(column)) = (number("frameId"), number("column")) else {
        return nothing;
    };
    let first_line = matches!(number("line"), None | Some(0 | 1));
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
    RequestVerdict::Pass(
        json!({"frameId": frame, "text": text, "column": before.len() + 1, "line": 1}),
    )
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `text` is a Python name, or the beginning of one.
pub(crate) fn is_name(text: &str) -> bool {
    text.chars().all(in_name) && text.chars().next().is_some_and(|c| !c.is_numeric())
}
