//! An expression or a statement for many tasks at once, typed where an editor takes it, as a prompt for many answers it.

use serde_json::json;

use super::output::told;
use super::probe::{self, ProbeAnswer};

/// The expression that answers `text`, which may be a `statement` as well, for a debugger that another client has attached to.
pub fn expression(text: &str, statement: bool, limit: usize) -> String {
    let op = if statement { "statement" } else { "p" };
    probe::expression(
        &json!({"op": op, "text": text, "limit": limit, "digest": true, "ranks": true}),
    )
}

/// What `result`, the debugger's answer to that, says, and which rank the process has, where it knows; `None`: it is none.
pub fn answer(result: &str, limit: usize) -> Option<(String, Option<u32>)> {
    let answer: ProbeAnswer = probe::answer(result)?;
    let rank = answer.rank;
    answer.text.is_some().then(|| (told(&answer, limit), rank))
}
