//! Who the client is, by its `initialize`.

use serde_json::Value;

use super::message::clean;
use super::selection::Children;

/// Who the client is, by its `initialize`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Client {
    /// For people.
    pub(super) name: String,
    pub(super) children: Children,
}

impl Client {
    pub(super) fn read(arguments: &Value) -> Self {
        let text = |key: &str| {
            arguments
                .get(key)
                .and_then(Value::as_str)
                .filter(|s| !s.trim().is_empty())
        };
        let id = text("clientID");
        let name = text("clientName")
            .or(id)
            .map_or_else(|| "a debugger".to_owned(), |name| clean(name, 40));
        let children = if arguments.get("supportsStartDebuggingRequest") == Some(&Value::Bool(true))
        {
            Children::StartDebugging
        } else if id == Some("vscode") {
            // Versions before `startDebugging` (1.77): the Python extension takes debugpy's own event.
            Children::DebugpyAttach
        } else {
            Children::None
        };
        Self { name, children }
    }
}
