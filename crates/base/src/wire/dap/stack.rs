//! The stack of a thread, as a debugger reports it.

use serde::Deserialize;

/// The body of a response to `stackTrace`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StackAnswer {
    /// The innermost first.
    pub stack_frames: Vec<StackFrame>,
}

/// One frame.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StackFrame {
    pub id: i64,
    pub name: Option<String>,
    source: Option<FrameSource>,
    pub line: Option<u32>,
    presentation_hint: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FrameSource {
    path: Option<String>,
    source_reference: Option<i64>,
}

impl StackFrame {
    /// Whether it belongs to the program: a debugger marks the frames of libraries.
    pub fn is_own(&self) -> bool {
        self.presentation_hint.as_deref() != Some("subtle")
    }

    /// The path of its file, empty if it has none.
    pub fn path(&self) -> &str {
        let path = self
            .source
            .as_ref()
            .and_then(|source| source.path.as_deref());
        path.unwrap_or_default()
    }

    /// Whether the client has its file. The debugger serves other files by reference.
    pub fn is_of_client(&self) -> bool {
        let reference = self
            .source
            .as_ref()
            .and_then(|source| source.source_reference);
        reference.unwrap_or_default() == 0
    }
}
