//! Attach arguments of a view-only session.
//!
//! Some of debugpy's arguments run code: `guiEventLoop` imports what it names, `autoReload` runs changed files again,
//! `processId` with `debugpyArgs` puts a debugger into another process, `listen` opens a port. The allowed ones do not,
//! and suffice for VS Code and Neovim.

use serde_json::{Map, Value};

/// Allowed keys: those that describe the session to its client, and those about presentation.
const ALLOWED_KEYS: [&str; 29] = [
    "name",
    "type",
    "request",
    "connect",
    "host",
    "port",
    "subProcessId",
    "workspaceFolder",
    "__configurationTarget",
    "__sessionId",
    "presentation",
    "internalConsoleOptions",
    "cwd",
    "clientOS",
    "justMyCode",
    "debugStdLib",
    "rules",
    "pathMappings",
    "resolveSymlinks",
    "redirectOutput",
    "isOutputRedirected",
    "showReturnValue",
    "variablePresentation",
    "maxExceptionStackFrames",
    "steppingResumesAllThreads",
    "stopAllThreadsOnSuspend",
    "breakOnSystemExit",
    "breakOnSystemExitZero",
    "subProcess",
];

/// Allowed flags of `debugOptions`. Those for templates of Django and Jinja load parts of them.
const ALLOWED_OPTIONS: [&str; 7] = [
    "RedirectOutput",
    "ShowReturnValue",
    "DebugStdLib",
    "BreakOnSystemExitZero",
    "FixFilePathCase",
    "WindowsClient",
    "UnixClient",
];

/// Reduces `arguments` for the worker to those that run nothing.
pub fn harmless(arguments: Value) -> Value {
    let Value::Object(mut arguments) = arguments else {
        return Value::Object(Map::new());
    };
    let options = arguments.shift_remove("debugOptions");
    arguments.retain(|key, _| ALLOWED_KEYS.contains(&key.as_str()));
    if let Some(Value::Array(mut options)) = options {
        options.retain(|option| {
            option
                .as_str()
                .is_some_and(|o| ALLOWED_OPTIONS.contains(&o))
        });
        arguments.insert("debugOptions".into(), options.into());
    }
    Value::Object(arguments)
}
