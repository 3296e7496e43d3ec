//! Another client on a connection that is already attached.
//!
//! Pure. debugpy's adapter accepts one `attach` per connection and refuses a second (seen with 1.8.0 and 1.8.22), and
//! disconnecting would resume the task. So `reattach.py` passes the new arguments to the process itself, where the
//! adapter would have sent them. It also stores the breakpoint list of a prompt next to the debugger's breakpoints:
//! debugpy replaces breakpoints by file, and has neither numbers nor disabled ones.

use serde::Deserialize;
use serde_json::{Value, json};

const SOURCE: &str = include_str!("reattach.py");

/// Whether the previous client's breakpoints are kept for the next prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// The previous client belonged to the same user.
    Kept,
    /// Another user's breakpoints are discarded.
    Forgotten,
}

/// The previous client's breakpoints.
#[derive(Debug, Default, Deserialize)]
pub struct StoredBreakpoints {
    /// The list of a prompt, in the prompt's own format.
    pub list: Option<String>,
    /// Path in the worker, line and condition of each breakpoint in the debugger.
    pub lines: Vec<(String, u32, Option<String>)>,
}

/// An expression that makes the debugger apply the `arguments` of an `attach`, and remove all breakpoints. It is
/// evaluated without a frame.
pub fn attach(arguments: &Value, before: Before) -> String {
    let op = match before {
        Before::Kept => "attach",
        Before::Forgotten => "forget",
    };
    expression(&json!({"op": op, "arguments": arguments}))
}

/// An expression whose value is [`StoredBreakpoints`]. debugpy 1.8.0 returns no value without a frame.
pub fn stored_breakpoints() -> String {
    expression(&json!({"op": "left"}))
}

/// An expression that stores the `list` of a prompt until the debugger is detached.
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
