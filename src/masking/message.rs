//! The rules applied to what a worker's debugger says.
//!
//! Pure. What is known to carry no values passes unread ([`captures_from_worker`]); of the rest the fields with values
//! are known for the messages of debugpy 1.8.22, and of any other message all texts are masked.

use serde_json::{Map, Value};

use super::{MASKED, Masking};
use crate::wire::dap::peek::MessageType;

/// Messages of a worker's debugger that may carry values.
pub fn captures_from_worker(kind: MessageType, name: &[u8]) -> bool {
    !match kind {
        // What failed says why in these as well, with an id and not with a value.
        MessageType::Response => matches!(
            name,
            b"threads"
                | b"stackTrace"
                | b"scopes"
                | b"source"
                | b"modules"
                | b"loadedSources"
                | b"breakpointLocations"
                | b"setBreakpoints"
                | b"setFunctionBreakpoints"
                | b"setExceptionBreakpoints"
                | b"configurationDone"
                | b"initialize"
                | b"attach"
                | b"disconnect"
                | b"terminate"
                | b"continue"
                | b"next"
                | b"stepIn"
                | b"stepOut"
                | b"stepInTargets"
                | b"pause"
                | b"goto"
                | b"gotoTargets"
                | b"debugpySystemInfo"
        ),
        MessageType::Event => matches!(
            name,
            b"initialized"
                | b"thread"
                | b"process"
                | b"module"
                | b"loadedSource"
                | b"breakpoint"
                | b"continued"
                | b"capabilities"
                | b"invalidated"
                | b"exited"
                | b"terminated"
                | b"debugpySockets"
                | b"debugpyWaitingForServer"
                | b"debugpyAttach"
        ),
        MessageType::Request => true,
    }
}

/// What an answer was asked with: whether the rules by name hide all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Openly,
    ByHiddenName,
}

impl Masking {
    /// Masks `message` of a worker's debugger. References of what was hidden as a whole are given to `hide`: what is
    /// behind them must not be shown either.
    pub(super) fn apply(&self, message: &mut Value, asked: Asked, hide: &mut impl FnMut(u64)) {
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        let (kind, command, event) = (text("type"), text("command"), text("event"));
        let failed = message.get("success") == Some(&Value::Bool(false));
        enum Body {
            Variables,
            Value(&'static str),
            Texts,
            Untouched,
        }
        let body = match (kind, command, event) {
            ("response", "variables", _) if !failed => Body::Variables,
            ("response", "evaluate", _) if !failed => Body::Value("result"),
            ("response", "setVariable" | "setExpression", _) if !failed => Body::Value("value"),
            ("response", command, _)
                if !failed && !captures_from_worker(MessageType::Response, command.as_bytes()) =>
            {
                Body::Untouched
            }
            ("event", _, event) if !captures_from_worker(MessageType::Event, event.as_bytes()) => {
                Body::Untouched
            }
            ("request", ..) => Body::Untouched,
            _ => Body::Texts,
        };
        if failed && let Some(why) = message.get_mut("message") {
            self.texts(why);
        }
        let Some(content) = message.get_mut("body") else {
            return;
        };
        match (body, content) {
            (Body::Variables, Value::Object(content)) => {
                let variables = content.get_mut("variables").and_then(Value::as_array_mut);
                for variable in variables.into_iter().flatten() {
                    if let Value::Object(variable) = variable {
                        let name = variable.get("name").and_then(Value::as_str);
                        let by_name = name.is_some_and(|name| self.hides_name(name));
                        self.variable(variable, "value", by_name, hide);
                    }
                }
            }
            (Body::Value(key), Value::Object(content)) => {
                self.variable(content, key, asked == Asked::ByHiddenName, hide);
            }
            (Body::Untouched, _) => {}
            (_, content) => self.texts(content),
        }
    }

    /// A variable, or an answer that is one; its value is under `key`.
    fn variable(
        &self,
        variable: &mut Map<String, Value>,
        key: &str,
        by_name: bool,
        hide: &mut impl FnMut(u64),
    ) {
        let kind = variable.get("type").and_then(Value::as_str);
        if by_name || kind.is_some_and(|kind| self.types.matches(kind)) {
            let reference = variable.get("variablesReference").and_then(Value::as_u64);
            if let Some(reference) = reference.filter(|reference| *reference > 0) {
                hide(reference);
                variable.insert("variablesReference".into(), 0.into());
            }
            if let Some(value) = variable.get_mut(key) {
                *value = MASKED.into();
            }
            for further in ["namedVariables", "indexedVariables"] {
                variable.shift_remove(further);
            }
            without_ways_around(variable);
            return;
        }
        if let Some(name) = variable.get_mut("name") {
            // A key of a dictionary can be a secret too.
            self.texts(name);
        }
        if let Some(Value::String(value)) = variable.get_mut(key) {
            let masked = self.value(value);
            if masked != *value {
                *value = masked;
                without_ways_around(variable);
            }
        }
    }

    /// Every text in `value`.
    pub(super) fn texts(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let std::borrow::Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.texts(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.texts(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// By these a client would ask for the same thing again.
fn without_ways_around(variable: &mut Map<String, Value>) {
    for key in ["evaluateName", "memoryReference"] {
        variable.shift_remove(key);
    }
}
