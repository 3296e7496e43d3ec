//! What masking has to remember of one debug session.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::Masking;
use super::message::Asked;
use crate::wire::dap::message::Request;
use crate::wire::dap::peek::MessageType;

/// Answers that are waited for. Those beyond are hidden as if they had been asked for by a hidden name.
const MAX_ASKED: usize = 1024;
/// References that are remembered as hidden. Beyond, no list of variables is given any more.
const MAX_HIDDEN: usize = 1 << 16;

/// Messages of a client that [`MaskedSession::on_client`] has to see where the client may run code.
pub fn captures_from_client(kind: MessageType, name: &[u8]) -> bool {
    kind == MessageType::Request && matches!(name, b"evaluate" | b"setVariable" | b"setExpression")
}

/// The rules, for the messages of one session.
#[derive(Debug)]
pub struct MaskedSession {
    rules: Arc<Masking>,
    /// Requests by `seq` that show no hidden name.
    asked_openly: HashSet<u64>,
    hidden: HashSet<u64>,
}

impl MaskedSession {
    /// By `rules`.
    pub fn new(rules: Arc<Masking>) -> Self {
        Self {
            rules,
            asked_openly: HashSet::new(),
            hidden: HashSet::new(),
        }
    }

    /// Looks at a message of the client's; gives the answer where the client must not have one of the worker's.
    /// `view_only`: the client may run no code, so that a hidden reference is worth keeping.
    pub fn on_client(&mut self, message: &Value, view_only: bool) -> Option<Value> {
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str);
        if text("/type") != Some("request") {
            return None;
        }
        let asked = match text("/command") {
            Some("evaluate" | "setExpression") => text("/arguments/expression"),
            Some("setVariable") => text("/arguments/name"),
            Some("variables") if view_only => {
                let reference = message.pointer("/arguments/variablesReference");
                return self
                    .refused(reference)
                    .then(|| Request::read(&mut message.clone()))?
                    .map(|request| request.failure("this variable is masked"));
            }
            _ => return None,
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

    fn refused(&self, reference: Option<&Value>) -> bool {
        let reference = reference.and_then(Value::as_u64);
        self.hidden.len() >= MAX_HIDDEN || reference.is_some_and(|r| self.hidden.contains(&r))
    }

    /// Masks a message of the worker's.
    pub fn on_worker(&mut self, message: &mut Value) {
        let seq = message.get("request_seq").and_then(Value::as_u64);
        let openly = seq.is_some_and(|seq| self.asked_openly.remove(&seq));
        let asked = if openly {
            Asked::Openly
        } else {
            Asked::ByHiddenName
        };
        let hidden = &mut self.hidden;
        self.rules.apply(message, asked, &mut |reference| {
            if hidden.len() < MAX_HIDDEN {
                hidden.insert(reference);
            }
        });
    }
}
