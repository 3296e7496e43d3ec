//! The names of DAP's messages: production code spells them here only.
//!
//! Pure. Source: Debug Adapter Protocol specification 1.71; debugpy 1.8.0 to 1.8.22 and its pydevd for those of their
//! own.

use serde::{Serialize, Serializer};

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl $kind {
            /// Every name, for tests.
            #[cfg(any(test, feature = "testing"))]
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name as it is on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The variant with this name; `None` for unknown names. Allocates nothing: it runs for each message that
            /// passes.
            pub fn parse(name: &[u8]) -> Option<Self> {
                match name {
                    $(name if name == $text.as_bytes() => Some(Self::$name),)*
                    _ => None,
                }
            }
        }

        impl AsRef<str> for $kind {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }
    };
}

names! {
    /// `command` of a request to a debug adapter, and of the response.
    Command {
        Initialize = "initialize",
        Attach = "attach",
        Launch = "launch",
        Restart = "restart",
        Disconnect = "disconnect",
        Terminate = "terminate",
        ConfigurationDone = "configurationDone",
        SetBreakpoints = "setBreakpoints",
        SetFunctionBreakpoints = "setFunctionBreakpoints",
        SetExceptionBreakpoints = "setExceptionBreakpoints",
        SetDataBreakpoints = "setDataBreakpoints",
        SetInstructionBreakpoints = "setInstructionBreakpoints",
        BreakpointLocations = "breakpointLocations",
        Continue = "continue",
        Next = "next",
        StepIn = "stepIn",
        StepOut = "stepOut",
        StepInTargets = "stepInTargets",
        Pause = "pause",
        Goto = "goto",
        GotoTargets = "gotoTargets",
        Threads = "threads",
        StackTrace = "stackTrace",
        Scopes = "scopes",
        Variables = "variables",
        Source = "source",
        Modules = "modules",
        LoadedSources = "loadedSources",
        ExceptionInfo = "exceptionInfo",
        Evaluate = "evaluate",
        Completions = "completions",
        SetVariable = "setVariable",
        SetExpression = "setExpression",
        Cancel = "cancel",
        DebugpySystemInfo = "debugpySystemInfo",
        PydevdSystemInfo = "pydevdSystemInfo",
        SetDebuggerProperty = "setDebuggerProperty",
        SetPydevdSourceMap = "setPydevdSourceMap",
    }
}

names! {
    /// `command` of a request from a debug adapter to its client.
    Reverse {
        StartDebugging = "startDebugging",
        RunInTerminal = "runInTerminal",
    }
}

names! {
    /// `event` of an event of a debug adapter.
    Event {
        Initialized = "initialized",
        Stopped = "stopped",
        Continued = "continued",
        Exited = "exited",
        Terminated = "terminated",
        Thread = "thread",
        Output = "output",
        Breakpoint = "breakpoint",
        Module = "module",
        LoadedSource = "loadedSource",
        Process = "process",
        Capabilities = "capabilities",
        Invalidated = "invalidated",
        PydevdInputRequested = "pydevdInputRequested",
        DebugpySockets = "debugpySockets",
        DebugpyWaitingForServer = "debugpyWaitingForServer",
        DebugpyAttach = "debugpyAttach",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_by_exact_spelling() {
        for command in Command::ALL {
            assert_eq!(Command::parse(command.as_str().as_bytes()), Some(*command));
            assert_eq!(serde_json::json!(command), command.as_str());
        }
        for event in Event::ALL {
            assert_eq!(Event::parse(event.as_str().as_bytes()), Some(*event));
        }
        for request in Reverse::ALL {
            assert_eq!(Reverse::parse(request.as_str().as_bytes()), Some(*request));
        }
        for other in ["", "Attach", "attach ", "attac", "attachh", "initialized"] {
            assert_eq!(Command::parse(other.as_bytes()), None, "{other}");
        }
    }
}
