//! How values of a paused task are rendered, and the questions to the probe that list them.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::probe;

/// How the probe renders values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Rendering {
    /// The visible parts.
    pub visible: Visible,
    /// Names of variables whose text is shown nevertheless; `*` matches anything.
    pub show: Vec<String>,
    /// The key of their checksums; `None`: they are not compared.
    pub key: Option<ComparisonKey>,
}

/// The visible parts of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Visible {
    /// Everything, as the program's own `__repr__` writes it.
    #[default]
    Full,
    /// Text too, but none of the program's code runs.
    Text,
    /// Types, lengths, shapes, single numbers and names.
    Structure,
}

/// The key of the checksums of one answer: equal values have equal checksums within it, and different ones in other
/// answers. Only the compared tasks get it, because short texts could be guessed with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ComparisonKey([u8; 16]);

impl ComparisonKey {
    /// Draws a random key.
    pub fn draw() -> Self {
        Self(rand::random())
    }
}

impl fmt::Debug for ComparisonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ComparisonKey")
    }
}

impl Serialize for ComparisonKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&hex)
    }
}

/// Values of a paused frame to list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Open {
    /// The variable of this name.
    Name { name: String },
    /// The content of the value at the end of `path`, which begins with the name of a variable; of the frame if it is
    /// empty.
    Inside {
        /// 0: locals, 1: globals.
        scope: u8,
        path: Vec<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        start: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
        /// `indexed` or `named`.
        #[serde(skip_serializing_if = "Option::is_none")]
        filter: Option<String>,
    },
}

impl Open {
    /// Returns the expression whose value [`Opened::read`] reads.
    pub fn expression(&self, rendering: &Rendering) -> String {
        probe::expression(&question("open", rendering, json!(self)))
    }
}

/// Joins the parts of a question to the probe.
pub(super) fn question(op: &str, rendering: &Rendering, rest: Value) -> Value {
    let mut question = json!({ "op": op });
    for part in [json!(rendering), rest] {
        if let (Value::Object(all), Value::Object(part)) = (&mut question, part) {
            all.extend(part);
        }
    }
    question
}

/// The values that [`Open`] lists.
#[derive(Debug, Deserialize)]
pub struct Opened {
    pub scope: u8,
    pub variables: Vec<OpenedValue>,
}

/// A value in its visible form.
#[derive(Debug, Deserialize)]
pub struct OpenedValue {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub value: String,
    /// The path element from its container to it.
    pub step: Value,
    /// Number of values inside it.
    pub inside: u64,
    /// Whether those have indexes instead of names.
    pub indexed: bool,
}

impl Opened {
    /// Parses the debugger's answer; `None`: it is not valid.
    pub fn read(result: &str) -> Option<Self> {
        probe::answer(result)
    }
}
