//! What masking has to remember of one debug session.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::message::AskedWith;
use super::{Carries, Masking};
use crate::wire::dap::message::Request;

/// Answers that are waited for. Those beyond are hidden as if they had been asked for by a hidden name.
const MAX_ASKED: usize = 1024;
/// References that are remembered as hidden. Beyond, no list of variables is given any more.
const MAX_HIDDEN: usize = 1 << 16;

/// The masking of one session: the rules, and what was asked and hidden so far.
#[derive(Debug)]
pub struct MaskedSession {
    rules: Arc<Masking>,
    /// Requests by `seq` that show no hidden name.
    asked_openly: HashSet<u64>,
    hidden: HashSet<u64>,
}

impl MaskedSession {
    /// A session that `rules` hold for, in which nothing was asked yet.
    pub fn new(rules: Arc<Masking>) -> Self {
        Self {
            rules,
            asked_openly: HashSet::new(),
            hidden: HashSet::new(),
        }
    }

    /// `value`, which is in no message, masked as the body of an answer that carries what `carries` says.
    pub(crate) fn masked(&mut self, value: Value, carries: Carries) -> Value {
        let mut message = json!({ "type": "response", "success": true });
        message["body"] = value;
        self.on_worker(&mut message, carries);
        message["body"].take()
    }

    /// Looks at a message of the client's, whose answer will carry what `carries` says; gives the answer where the client
    /// must not have one of the worker's. `view_only`: the client may run no code, so that a hidden reference is worth
    /// keeping.
    pub fn on_client(
        &mut self,
        message: &Value,
        carries: Carries,
        view_only: bool,
    ) -> Option<Value> {
        if message.get("type").and_then(Value::as_str) != Some("request") {
            return None;
        }
        let argument = |key: &str| message.get("arguments")?.get(key);
        let asked = match carries {
            Carries::One { asked, .. } => argument(asked).and_then(Value::as_str),
            Carries::Variables if view_only => {
                let reference = argument("variablesReference");
                return self
                    .refused(reference)
                    .then(|| Request::read(&mut message.clone()))?
                    .map(|request| request.failure("this variable is masked"));
            }
            Carries::Variables | Carries::Texts | Carries::Nothing => return None,
        };
        let seq = message.get("seq").and_then(Value::as_u64);
        if let (Some(asked), Some(seq)) = (asked, seq)
            && !self.rules.hides_name(asked)
            && self.asked_openly.len() < MAX_ASKED
        {
            self.asked_openly.insert(seq);
        }
        None
    }

    /// Whether every variable may be opened.
    pub fn hides_none(&self) -> bool {
        self.hidden.is_empty()
    }

    fn refused(&self, reference: Option<&Value>) -> bool {
        let reference = reference.and_then(Value::as_u64);
        self.hidden.len() >= MAX_HIDDEN || reference.is_some_and(|r| self.hidden.contains(&r))
    }

    /// Whether the rules would find nothing to hide in `text`, wherever in a message it stood.
    pub fn shows(&self, text: &str) -> bool {
        !self.rules.candidates.in_text(text)
    }

    /// Whether a message that carries what `carries` says stays as it is, of whose texts each [is shown](Self::shows) and the
    /// longest has `longest` bytes.
    pub fn leaves(&self, carries: Carries, longest: usize) -> bool {
        match carries {
            Carries::Nothing | Carries::Texts => true,
            Carries::Variables => longest <= self.rules.max_value,
            // What was asked for decides.
            Carries::One { .. } => false,
        }
    }

    /// Masks `message` of the worker's, which carries what `carries` says.
    pub fn on_worker(&mut self, message: &mut Value, carries: Carries) {
        let seq = message.get("request_seq").and_then(Value::as_u64);
        let openly = seq.is_some_and(|seq| self.asked_openly.remove(&seq));
        let asked = if openly {
            AskedWith::Openly
        } else {
            AskedWith::ByHiddenName
        };
        let hidden = &mut self.hidden;
        self.rules.apply(message, carries, asked, &mut |reference| {
            if hidden.len() < MAX_HIDDEN {
                hidden.insert(reference);
            }
        });
    }
}
