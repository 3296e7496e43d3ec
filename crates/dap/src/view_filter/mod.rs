//! The view filter: what a view-only client ([`Scope::View`]) can do with a worker's debugger.
//!
//! Pure: [`super::message_filter`] passes every message of the client and some of the worker's, and carries out the
//! [`Action`]s. An allowlist: a request is rebuilt from the arguments known to be harmless ([`requests`]), answered
//! here, or refused with the missing permission. Unknown requests are refused, so nothing that a later debugpy adds is
//! open before it is reviewed. No text of the client is ever evaluated. Values are rendered by the relay's own probe,
//! which runs none of the program's code ([`values`]), and text of the program is hidden ([`text`]). Source: debugpy
//! 1.8.22, every request of its adapter and of pydevd.

pub mod attach;
mod narrowed;
pub mod requests;
#[cfg(test)]
mod tests;
pub mod text;
mod values;

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

pub(super) use self::narrowed::narrowed;
use self::requests::RequestVerdict;
pub(super) use self::requests::{FILTERS, is_name};
use self::text::Text;
use self::values::Values;
use super::messages::{self, FromWorker};
pub use super::verdict::FIRST_OWN_SEQ;
use super::verdict::{Action, pass};
use super::wall::InBytes;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope, Scopes};
use ray_relay_access::visibility::Visibility;
use ray_relay_base::wire::dap::message::{
    Request, event, notice, responds_to, show_dialog, succeeded,
};
use ray_relay_base::wire::dap::names::{Event, Reverse};
use ray_relay_base::wire::dap::peek::MessageType;
use ray_relay_debugger::debugger::unattended::OWN_SEQ;
use ray_relay_debugger::pdb::ComparisonKey;

/// Pending requests of each kind; more are refused.
const MAX_PENDING: usize = 256;

/// The filter of one view-only session, and its pending requests.
#[derive(Debug)]
pub struct ViewFilter {
    scopes: Scopes,
    principal: Principal,
    visibility: Visibility,
    values: Values,
    /// Key for the next request, if it shows a variable that is compared with those of other tasks.
    key: Option<ComparisonKey>,
    /// Requests that set breakpoints, by `seq`; for each breakpoint the reason why it is not forwarded, if it is not.
    breakpoints: HashMap<u64, Vec<Option<&'static str>>>,
    /// Reverse requests that the client may answer.
    reverse: HashSet<u64>,
}

impl ViewFilter {
    /// The filter for `principal` with `rights`, without [`Scope::Debug`].
    pub fn new(rights: &Rights, principal: &Principal) -> Self {
        Self {
            scopes: rights.scopes,
            principal: principal.clone(),
            visibility: Visibility::of(rights),
            values: Values::new(FIRST_OWN_SEQ),
            key: None,
            breakpoints: HashMap::new(),
            reverse: HashSet::new(),
        }
    }

    /// The first messages to the client, so that it does not offer what would be refused.
    pub fn opening() -> [Value; 2] {
        let off = json!({
            "supportsConditionalBreakpoints": false,
            "supportsHitConditionalBreakpoints": false,
            "supportsLogPoints": false,
            "supportsSetVariable": false,
            "supportsSetExpression": false,
            "supportsGotoTargetsRequest": false,
            "supportsFunctionBreakpoints": false,
            "supportsExceptionOptions": false,
            "supportsDebuggerProperties": false,
            "supportsClipboardContext": false,
        });
        [
            event(Event::Capabilities, json!({ "capabilities": off })),
            notice(
                "this session may look, but run no code of its own (permission `view`)",
                false,
            ),
        ]
    }

    /// Decides about a message of the client.
    pub fn on_client(&mut self, mut message: Value) -> Vec<Action> {
        let key = self.key.take();
        match message.get("type").and_then(Value::as_str) {
            Some("request") => {}
            Some("response") => return self.answer_of_client(&message),
            // The protocol has no client events, and debugpy would pass them to the worker.
            _ => return Vec::new(),
        }
        let seq = message.get("seq").and_then(Value::as_u64);
        let Some(request) = Request::read(&mut message) else {
            return vec![Action::ToClient(notice(
                "a request without a number or a command was left out",
                false,
            ))];
        };
        let Some(seq) = seq.filter(|seq| *seq < FIRST_OWN_SEQ) else {
            return refuse(&request, None, "a request needs a `seq` below 2^30");
        };
        match requests::judge(&request.command, &request.arguments, self.scopes) {
            RequestVerdict::Pass(arguments) => vec![pass(seq, &request.command, arguments)],
            RequestVerdict::Breakpoints {
                arguments,
                left_out,
            } => {
                if self.breakpoints.len() >= MAX_PENDING {
                    return refuse(&request, None, "too many requests are being answered");
                }
                self.breakpoints.insert(seq, left_out);
                vec![pass(seq, &request.command, arguments)]
            }
            RequestVerdict::Disconnect {
                arguments,
                narrowed,
            } => {
                let mut actions = vec![pass(seq, &request.command, arguments)];
                if narrowed {
                    actions.push(Action::ToClient(notice(
                        "the task runs on: ending it needs the permission `terminate`",
                        false,
                    )));
                }
                actions
            }
            RequestVerdict::Show { frame, name } => {
                vec![
                    self.values
                        .name(request, frame, name, &self.visibility, key),
                ]
            }
            RequestVerdict::Scopes { frame } => {
                vec![Action::ToClient(request.success(self.values.scopes(frame)))]
            }
            RequestVerdict::Inside(arguments) => {
                let request = Request {
                    arguments,
                    ..request
                };
                vec![self.values.inside(request, &self.visibility)]
            }
            RequestVerdict::Answer(body) => vec![Action::ToClient(request.success(body))],
            RequestVerdict::Refuse { missing, why } => {
                let why = match missing {
                    Some(scope) => format!("{why}; {}", self.principal.remedy(scope)),
                    None => why,
                };
                refuse(&request, missing, &why)
            }
        }
    }

    /// Whether [`ViewFilter::on_worker`] would return this message unchanged, and record nothing about it.
    pub(crate) fn leaves(&self, message: &InBytes) -> bool {
        if self.visibility.hides() && message.row.text != Text::Nothing {
            return false;
        }
        match (message.kind, message.request_seq) {
            (MessageType::Request, _) => false,
            (MessageType::Response, Some(seq)) => {
                seq < FIRST_OWN_SEQ && !self.breakpoints.contains_key(&seq)
            }
            (MessageType::Response, None) | (MessageType::Event, _) => true,
        }
    }

    /// Marks the next request as one for a variable that is compared with those of other tasks.
    pub(crate) fn compare_next(&mut self, key: ComparisonKey) {
        self.key = Some(key);
    }

    /// Decides about a message of the worker.
    pub fn on_worker(&mut self, mut message: Value) -> Vec<Action> {
        let kind = message.get("type").and_then(Value::as_str);
        let (is_answer, asks) = (kind == Some("response"), kind == Some("request"));
        let answered = message.get("request_seq").and_then(Value::as_u64);
        let answered = answered.filter(|_| is_answer);
        if let Some(actions) = answered.and_then(|seq| self.values.answered(seq, &message)) {
            return actions;
        }
        let row = messages::OfWorker::of_message(&message);
        // Answers to the relay's own requests never reach the client.
        let is_own = responds_to(&message, &OWN_SEQ)
            && matches!(row.handling, FromWorker::Own | FromWorker::OwnOnceAsked);
        if self.visibility.hides() && !is_own && !row.text.hide(&mut message) {
            return Vec::new();
        }
        if asks
            && let Some(seq) = message.get("seq").and_then(Value::as_u64)
            && self.reverse.len() < MAX_PENDING
        {
            self.reverse.insert(seq);
        }
        if let Some(left_out) = answered.and_then(|seq| self.breakpoints.remove(&seq)) {
            put_back(&mut message, &left_out);
        }
        vec![Action::ToClient(message)]
    }

    /// Forwards the client's answer to a reverse request of the worker, once.
    fn answer_of_client(&mut self, message: &Value) -> Vec<Action> {
        let seq = message.get("request_seq").and_then(Value::as_u64);
        let command = message.get("command").and_then(Value::as_str);
        let known = command.and_then(|command| Reverse::parse(command.as_bytes()));
        let (Some(seq), Some(command)) = (seq, known) else {
            return Vec::new();
        };
        if !self.reverse.remove(&seq) {
            return Vec::new();
        }
        // debugpy ignores the body of this answer, so it is left empty.
        vec![Action::ToWorker(json!({
            "seq": 0, "type": "response", "request_seq": seq, "command": command,
            "success": succeeded(message), "body": {},
        }))]
    }
}

fn refuse(request: &Request, missing: Option<Scope>, why: &str) -> Vec<Action> {
    let mut answer = request.failure(why);
    let view = messages::Request::of(request.command.as_bytes()).view;
    show_dialog(&mut answer, !view.is_asked_in_passing());
    vec![Action::Refuse {
        command: ray_relay_base::wire::text::shortened(&request.command, 40),
        missing,
        answer,
    }]
}

/// Restores the omitted breakpoints: the client expects one answer for each, in its order.
fn put_back(message: &mut Value, left_out: &[Option<&str>]) {
    let Some(Value::Array(answers)) = message.pointer_mut("/body/breakpoints") else {
        return;
    };
    let mut of_worker = std::mem::take(answers).into_iter();
    let all = left_out.iter().map_while(|why| match why {
        None => of_worker.next(),
        Some(why) => Some(json!({"verified": false, "message": why})),
    });
    *answers = all.collect();
}
