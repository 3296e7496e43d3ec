//! The message filter of a session: which messages its rights concern, and how they are handled.
//!
//! [`super::worker`] fetches the functions that decide which messages are captured once, and passes captured messages
//! in. A principal that may run code sees everything at no cost: no message of the worker is parsed unless the relay
//! needs it for itself.

use serde_json::Value;

use super::messages::{self, FromClient, FromWorker, OnRecord};
pub use super::verdict::Action;
use super::view_filter::{ViewFilter, attach, narrowed};
use super::wall;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_base::wire::dap::schema::Fields;
use ray_relay_debugger::pdb::ComparisonKey;

/// Whether a message is captured, by its type and its command or event.
pub type Captures = fn(MessageType, &[u8]) -> bool;

/// The fields with which a captured message passes all the same, by its type and its command or event.
pub type Examined = fn(MessageType, &[u8]) -> Option<&'static Fields>;

/// The filter of one session: what its rights let pass, change or refuse.
#[derive(Debug)]
pub struct MessageFilter {
    view: Option<Box<ViewFilter>>,
}

impl MessageFilter {
    /// The filter for `principal` with `rights`.
    pub fn new(rights: &Rights, principal: &Principal) -> Self {
        let view_only = !rights.scopes.contains(Scope::Debug);
        Self {
            view: view_only.then(|| Box::new(ViewFilter::new(rights, principal))),
        }
    }

    /// Whether there are no rules, so that no message has to be inspected.
    pub(crate) fn has_no_rules(&self) -> bool {
        self.view.is_none()
    }

    /// Whether a captured message of the worker passes to the client without any handling by the relay; what no client
    /// may see is overwritten in it. Decided without building it; false if in doubt, and for stacks if the session
    /// `wants_stacks`.
    pub fn passes(&self, body: &mut [u8], wants_stacks: bool) -> bool {
        let Some(view) = &self.view else {
            // The scanner has tried.
            return false;
        };
        wall::overwrite(body).is_some_and(|message| {
            let is_wanted = wants_stacks && message.row.handling == FromWorker::Stack;
            !is_wanted && view.leaves(&message)
        })
    }

    /// Selects client messages to capture; `otherwise` selects those captured for other reasons.
    pub fn captures_from_client(&self, otherwise: Captures) -> Captures {
        match &self.view {
            Some(_) => |_, _| true,
            None => otherwise,
        }
    }

    /// Selects worker messages to capture.
    pub fn captures_from_worker(&self) -> Captures {
        match &self.view {
            Some(_) => messages::captures_for_view,
            None => messages::captures_from_worker,
        }
    }

    /// Selects the fields with which one of them passes all the same.
    pub fn examined(&self) -> Examined {
        match &self.view {
            Some(_) => |_, _| None,
            None => wall::examined,
        }
    }

    /// Filters attach arguments for the worker.
    pub fn attach_arguments(&self, arguments: Value) -> Value {
        match self.view {
            Some(_) => attach::harmless(arguments),
            None => arguments,
        }
    }

    /// Messages to the client at the begin of the session.
    pub fn opening(&self) -> Vec<Value> {
        match self.view {
            Some(_) => ViewFilter::opening().into(),
            None => Vec::new(),
        }
    }

    /// Marks the next request as one for a variable that is compared with those of other tasks.
    pub(crate) fn compare_next(&mut self, key: ComparisonKey) {
        if let Some(view) = &mut self.view {
            view.compare_next(key);
        }
    }

    /// Narrows the client's request in `body` for the worker, if it only shows something and the relay only has to omit
    /// arguments. If in doubt `None`, and [`MessageFilter::on_client`] decides.
    pub fn narrowed(&self, body: &[u8]) -> Option<String> {
        self.view.as_ref()?;
        // A known command occurs only once.
        let Peek::Known(MessageType::Request, name) =
            Walk::new(Depth::Whole).peek(body, body.len())
        else {
            return None;
        };
        let command = Command::parse(name)?;
        let row = messages::Request::of(name);
        let passes = row.handling == FromClient::Pass && row.record == OnRecord::Never;
        passes.then(|| narrowed(body, command, row.view))?
    }

    /// Decides about a captured message of the client.
    pub fn on_client(&mut self, message: Value) -> Vec<Action> {
        match &mut self.view {
            Some(view) => view.on_client(message),
            None => vec![Action::ToWorker(message)],
        }
    }

    /// Decides about a captured message of the worker.
    pub fn on_worker(&mut self, message: Value) -> Vec<Action> {
        match &mut self.view {
            Some(view) => view.on_worker(message),
            None => vec![Action::ToClient(message)],
        }
    }
}
