//! Variables of one list that tell what the others are: those of a pair, a named tuple, a command or an enumeration's member.
//!
//! Pure. A debugger lists what is inside of a container one by one, so that a name is in one variable and its value in
//! another.

use serde_json::Value;

use super::command::Arguments;
use super::containers::{is_for_names, is_for_values, says_hidden};
use super::names::Names;
use super::python::{content, is_name};

/// For each of `variables` whether it is hidden for what the others say. `by_name` says it of those with a hidden name.
pub(super) fn hidden(variables: &[Value], by_name: &[bool], names: &Names) -> Vec<bool> {
    let called = variables.iter().any(|variable| {
        is_for_names(unquoted(text(variable, "name")))
            && says_hidden(text(variable, "value"), names)
    });
    let mut fields = Vec::new();
    for (variable, _) in variables.iter().zip(by_name).filter(|(_, hidden)| **hidden) {
        fields.push((text(variable, "type"), text(variable, "value")));
    }
    let mut arguments = Arguments::default();
    let mut named = false;
    let hides = |variable: &Value| {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if called && is_for_values(unquoted(name)) {
            return true;
        }
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_digit()) {
            return false;
        }
        // The fields of a named tuple are listed again by their places.
        let again = fields
            .iter()
            .any(|(kind, field)| *field == value && *kind == text(variable, "type"));
        let says = content(value);
        let behind_name = std::mem::replace(
            &mut named,
            says.is_some_and(|says| is_name(says) && names.matches(says)),
        );
        let argument = match says {
            Some(says) if !named => arguments.word(says, names).is_some(),
            _ => {
                arguments.pass();
                false
            }
        };
        again || behind_name || argument
    };
    variables.iter().map(hides).collect()
}

/// The text of a variable under `key`.
fn text<'v>(variable: &'v Value, key: &str) -> &'v str {
    let text = variable.get(key).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// The name of a dictionary's entry without its quotes.
fn unquoted(name: &str) -> &str {
    content(name).unwrap_or(name)
}
