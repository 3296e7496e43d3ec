//! The answer to `initialize`, which the relay gives before any worker is chosen.

use serde_json::{Value, json};

/// debugpy's own capabilities (1.8.22, the same since 1.8.0 but for `supportsStepInTargetsRequest`), as its adapter sends them.
/// `uncaught` has to be on by default: without it clients do not set the filter that a post-mortem stop needs.
pub fn debugpy(allow_terminate: bool) -> Value {
    json!({
        "supportsCompletionsRequest": true,
        "supportsConditionalBreakpoints": true,
        "supportsConfigurationDoneRequest": true,
        "supportsDebuggerProperties": true,
        "supportsDelayedStackTraceLoading": true,
        "supportsEvaluateForHovers": true,
        "supportsExceptionInfoRequest": true,
        "supportsExceptionOptions": true,
        "supportsFunctionBreakpoints": true,
        "supportsHitConditionalBreakpoints": true,
        "supportsLogPoints": true,
        "supportsModulesRequest": true,
        "supportsSetExpression": true,
        "supportsSetVariable": true,
        "supportsValueFormattingOptions": true,
        "supportsTerminateDebuggee": allow_terminate,
        "supportsTerminateRequest": allow_terminate,
        "supportsGotoTargetsRequest": true,
        "supportsClipboardContext": true,
        "exceptionBreakpointFilters": [
            {"filter": "raised", "label": "Raised Exceptions", "default": false,
             "description": "Break whenever any exception is raised."},
            {"filter": "uncaught", "label": "Uncaught Exceptions", "default": true,
             "description": "Break when the process is exiting due to unhandled exception."},
            {"filter": "userUnhandled", "label": "User Uncaught Exceptions", "default": false,
             "description": "Break when exception escapes into library code."},
        ],
        "supportsStepInTargetsRequest": true,
    })
}
