//! Responses of a debugger, with the fields that the prompt uses.

use serde::Deserialize;

/// Lines of the selected function.
#[derive(Deserialize)]
pub(super) struct RangeAnswer {
    pub(super) lines: Vec<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct GotoTargets {
    pub(super) targets: Vec<GotoTarget>,
}

#[derive(Deserialize)]
pub(super) struct GotoTarget {
    pub(super) id: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ScopesAnswer {
    pub(super) scopes: Vec<ScopeAnswer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeAnswer {
    pub(super) variables_reference: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct VariablesAnswer {
    pub(super) variables: Vec<Variable>,
}

#[derive(Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

/// The subprocess of a task that waits for a debugger.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Child {
    pub(super) sub_process_id: Option<u32>,
}

/// A debugger's description of the exception for which a thread stopped.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RaisedAnswer {
    pub(super) exception_id: Option<String>,
    pub(super) description: Option<String>,
}

/// The threads in a debugger.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ThreadsAnswer {
    pub(super) threads: Vec<ThreadAnswer>,
}

#[derive(Deserialize)]
pub(super) struct ThreadAnswer {
    pub(super) id: i64,
    pub(super) name: Option<String>,
}

/// A debugger's completions.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Completions {
    pub(super) targets: Vec<Completion>,
}

#[derive(Deserialize)]
pub(super) struct Completion {
    pub(super) label: String,
}
