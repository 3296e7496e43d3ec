//! The message filter of a session: which messages its rights concern, and what becomes of them.
//!
//! [`super::worker`] asks once for the functions that decide which messages are captured, and hands over what they
//! captured. A principal that may do everything and sees everything costs nothing here: no message of the worker's is
//! parsed that the relay does not need for itself.

use std::sync::Arc;

use serde_json::Value;

use super::messages::{self, FromClient, OnRecord};
pub use super::verdict::Action;
use super::view_filter::{ViewFilter, attach, narrowed};
use super::wall;
use crate::identity::Principal;
use crate::masking::{Carries, MaskedSession, Masking};
use crate::policy::{Rights, Scope};
use crate::wire::dap::names::Command;
use crate::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use crate::wire::dap::texts::look_through;

/// Whether a message is captured, by its type and its command or event.
pub type Captures = fn(MessageType, &[u8]) -> bool;

/// The filter of one session: what its rights and the masking rules let pass, change or refuse.
#[derive(Debug)]
pub struct MessageFilter {
    view: Option<Box<ViewFilter>>,
    masked: Option<Box<MaskedSession>>,
}

impl MessageFilter {
    /// The filter for `principal` with `rights`, with `masking` as far as it holds for them.
    pub fn new(rights: &Rights, principal: &Principal, masking: Option<&Arc<Masking>>) -> Self {
        let view_only = !rights.scopes.contains(Scope::Debug);
        Self {
            view: view_only.then(|| Box::new(ViewFilter::new(rights.scopes, principal))),
            masked: masking
                .filter(|rules| rules.holds_for(rights))
                .map(|rules| Box::new(MaskedSession::new(rules.clone()))),
        }
    }

    /// Whether there are no rules, so that messages need not be looked at.
    pub fn sees_nothing(&self) -> bool {
        self.view.is_none() && self.masked.is_none()
    }

    /// Whether a captured message of the worker's goes to the client as it came, and the relay has nothing to do with it.
    /// Told from its texts, without building it; in doubt it is not.
    pub fn passes(&self, body: &[u8]) -> bool {
        if !wall::as_it_came(body) {
            return false;
        }
        if self.sees_nothing() {
            return true;
        }
        let mut longest = 0;
        let front = look_through(body, |text| {
            longest = longest.max(text.len());
            self.masked.as_ref().is_none_or(|masked| masked.shows(text))
        });
        let Some(front) = front else {
            return false;
        };
        let row = messages::OfWorker::of(front.kind, front.name.as_bytes());
        let masked = self.masked.as_ref();
        masked.is_none_or(|masked| masked.leaves(row.carries, longest))
            && self.view.as_ref().is_none_or(|view| view.leaves(&front))
    }

    /// Messages of the client's to capture, where `otherwise` are captured for other reasons.
    pub fn captures_from_client(&self, otherwise: Captures) -> Captures {
        match (&self.view, &self.masked) {
            (Some(_), _) => |_, _| true,
            (None, Some(_)) => messages::captures_for_masking,
            (None, None) => otherwise,
        }
    }

    /// Messages of the worker's to capture.
    pub fn captures_from_worker(&self) -> Captures {
        match (&self.view, &self.masked) {
            (Some(_), None) => messages::captures_for_view,
            (_, Some(_)) => messages::captures_masked,
            (None, None) => messages::captures_from_worker,
        }
    }

    /// Attach arguments as the worker may have them.
    pub fn attach_arguments(&self, arguments: Value) -> Value {
        match self.view {
            Some(_) => attach::harmless(arguments),
            None => arguments,
        }
    }

    /// What the client is told when the session begins.
    pub fn opening(&self) -> Vec<Value> {
        match self.view {
            Some(_) => ViewFilter::opening().into(),
            None => Vec::new(),
        }
    }

    /// The request of the client's in `body` as the worker may have it, where it shows something and the relay has nothing
    /// to do with it but to leave arguments out; in doubt `None`, and [`MessageFilter::on_client`] decides.
    pub fn narrowed(&self, body: &[u8]) -> Option<String> {
        self.view.as_ref()?;
        // What is known so is there once.
        let Peek::Known(MessageType::Request, name) =
            Walk::new(Depth::Whole).peek(body, body.len())
        else {
            return None;
        };
        let command = Command::parse(name)?;
        let row = messages::Request::of(name);
        let unmasked = match row.carries {
            Carries::Nothing | Carries::Texts => true,
            Carries::Variables => self.masked.as_deref().is_none_or(MaskedSession::hides_none),
            Carries::One { .. } => false,
        };
        let passes = row.handling == FromClient::Pass && row.record == OnRecord::Never && unmasked;
        passes.then(|| narrowed(body, command, row.view))?
    }

    /// What becomes of a captured message of the client's.
    pub fn on_client(&mut self, message: Value) -> Vec<Action> {
        if let Some(masked) = &mut self.masked
            && let carries = messages::Request::of_message(&message).carries
            && let Some(answer) = masked.on_client(&message, carries, self.view.is_some())
        {
            return vec![Action::ToClient(answer)];
        }
        match &mut self.view {
            Some(view) => view.on_client(message),
            None => vec![Action::ToWorker(message)],
        }
    }

    /// What becomes of a captured message of the worker's. Masked first, so that what is looked up in it is as well.
    pub fn on_worker(&mut self, mut message: Value) -> Vec<Action> {
        if let Some(masked) = &mut self.masked {
            let carries = messages::OfWorker::of_message(&message).carries;
            masked.on_worker(&mut message, carries);
        }
        match &mut self.view {
            Some(view) => view.on_worker(message),
            None => vec![Action::ToClient(message)],
        }
    }
}
