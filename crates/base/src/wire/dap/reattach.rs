//! Another client on a connection that is attached already.
//!
//! Pure. debugpy's adapter takes one `attach` for each connection and refuses a second (seen with 1.8.0 and 1.8.22), and leaving it
//! would resume the task. So `reattach.py` hands the new arguments to the process itself, where the adapter would have sent them.
//! It also keeps the breakpoint list of a prompt next to the debugger's breakpoints: debugpy replaces breakpoints by file, and knows
//! neither numbers nor what is disabled.

use serde::Deserialize;
use serde_json::{Value, json};

const SOURCE: &str = include_str!("reattach.py");

/// Whether the breakpoints of the client before are kept for the next prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It was a client of the same user.
    Kept,
    /// Nothing of another user's is kept.
    Forgotten,
}

/// The breakpoints of the client before.
#[derive(Debug, Default, Deserialize)]
pub struct LeftBreakpoints {
    /// The list of a prompt, as that has written it.
    pub list: Option<String>,
    /// File as the worker has it, line and condition of each that the debugger knows.
    pub lines: Vec<(String, u32, Option<String>)>,
}

/// An expression that makes the debugger take the `arguments` of an `attach`, and remove all breakpoints. It is evaluated without a
/// frame.
pub fn attach(arguments: &Value, before: Before) -> String {
    let op = match before {
        Before::Kept => "attach",
        Before::Forgotten => "forget",
    };
    expression(&json!({"op": op, "arguments": arguments}))
}

/// An expression whose value is [`LeftBreakpoints`]. debugpy 1.8.0 gives no value without a frame.
pub fn left() -> String {
    expression(&json!({"op": "left"}))
}

/// An expression that keeps the `list` of a prompt until the debugger is detached.
pub fn keep(list: &str) -> String {
    expression(&json!({"op": "keep", "list": list}))
}

fn expression(ask: &Value) -> String {
    // A JSON string is a Python literal too.
    let literal = |text: String| Value::from(text).to_string();
    format!(
        "(lambda ask={}, j=__import__('json'), n={{}}: (n.update(ask=j.loads(ask)), exec({}, n), j.dumps(n['answer']))[2])()",
        literal(ask.to_string()),
        literal(SOURCE.to_owned()),
    )
}
