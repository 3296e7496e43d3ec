//! An expression or a statement for many tasks at once, typed in an editor's console, evaluated like at the prompt of
//! each task.

use serde_json::json;

use super::output::rendered;
use super::probe::{self, ProbeAnswer};

/// The expression that evaluates `text`, or runs it as a `statement`, for a debugger with another client attached.
pub fn expression(text: &str, statement: bool, limit: usize) -> String {
    let op = if statement { "statement" } else { "p" };
    probe::expression(
        &json!({"op": op, "text": text, "limit": limit, "digest": true, "ranks": true}),
    )
}

/// The text of the debugger's `result`, and the rank of the process if it knows one; `None`: it is no valid answer.
pub fn answer(result: &str, limit: usize) -> Option<(String, Option<u32>)> {
    let answer: ProbeAnswer = probe::answer(result)?;
    let rank = answer.rank;
    answer
        .text
        .is_some()
        .then(|| (rendered(&answer, limit), rank))
}
