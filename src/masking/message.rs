//! The rules applied to what a worker's debugger says.
//!
//! Pure. What is known to carry no values passes unread ([`Carries::Nothing`]); of the rest the fields with values
//! are known for the messages of debugpy 1.8.22, and of any other message all texts are masked.

use serde_json::{Map, Value};

use super::{MASKED, Masking, siblings};

/// Which values of the program a message of its debugger carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// None. What failed says why in these as well, with an id and not with a value.
    Nothing,
    /// A list of variables, each with its name.
    Variables,
    /// The one that the argument `asked` of the request names, under `shown`.
    One {
        /// A name or an expression.
        asked: &'static str,
        /// A key of the answer's body.
        shown: &'static str,
    },
    /// Whatever its texts say.
    Texts,
}

/// What an answer was asked with: whether the rules by name hide all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedWith {
    Openly,
    ByHiddenName,
}

impl Masking {
    /// Masks `message` of a worker's debugger, which carries what `carries` says. References of what was hidden as a
    /// whole are given to `hide`: what is behind them must not be shown either.
    pub(super) fn apply(
        &self,
        message: &mut Value,
        carries: Carries,
        asked: AskedWith,
        hide: &mut impl FnMut(u64),
    ) {
        let failed = message.get("success") == Some(&Value::Bool(false));
        let carries = match failed && message.get("type").is_some_and(|kind| kind == "response") {
            true => Carries::Texts,
            false => carries,
        };
        if failed && let Some(why) = message.get_mut("message") {
            self.texts(why);
        }
        let Some(content) = message.get_mut("body") else {
            return;
        };
        match (carries, content) {
            (Carries::Variables, Value::Object(content)) => {
                let variables = content.get_mut("variables").and_then(Value::as_array_mut);
                if let Some(variables) = variables {
                    self.variables(variables, hide);
                }
            }
            (Carries::One { shown, .. }, Value::Object(content)) => {
                self.variable(content, shown, asked == AskedWith::ByHiddenName, hide);
            }
            (Carries::Nothing, _) => {}
            (Carries::Texts | Carries::Variables | Carries::One { .. }, content) => {
                self.texts(content);
            }
        }
    }

    /// A list of variables, of which one may say what another is.
    fn variables(&self, variables: &mut [Value], hide: &mut impl FnMut(u64)) {
        let by_name = |variable: &Value| {
            let name = variable.get("name").and_then(Value::as_str);
            name.is_some_and(|name| self.hides_name(name))
        };
        let by_name: Vec<_> = variables.iter().map(by_name).collect();
        let by_others = siblings::hidden(variables, &by_name, &self.names);
        for (variable, by_name) in variables.iter_mut().zip(by_name.iter().zip(by_others)) {
            if let Value::Object(variable) = variable {
                self.variable(variable, "value", *by_name.0 || by_name.1, hide);
            }
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

/// Removes the members with which a client would ask for the same value again.
fn without_ways_around(variable: &mut Map<String, Value>) {
    for key in ["evaluateName", "memoryReference"] {
        variable.shift_remove(key);
    }
}
