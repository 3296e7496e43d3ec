//! Scopes, variables, hover and watch in a view-only session: rendered by the relay's own probe.
//!
//! Pure. debugpy shows a value by the program's `__repr__` and expands it by its properties. So a view-only client gets
//! references of the relay's own, each with the path to its value from a frame. Their children are fetched by the probe
//! ([`Open`]) in one `evaluate` request that the client never sees.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Request;
use crate::verdict::{Action, ask};
use ray_relay_access::visibility::Visibility;
use ray_relay_debugger::pdb::{ComparisonKey, Open, Opened, OpenedValue};

/// Pending requests to the probe.
const MAX_PENDING: usize = 256;
/// Range of `seq` for the relay's own requests, after the first.
const OWN_SEQS: u64 = (1 << 28) - 1;
/// Remembered references. Beyond that, all are dropped, and the client must expand the frame again.
const MAX_REFERENCES: usize = 1 << 16;
/// Longest list that is fetched at once; longer ones are fetched in pages.
const MAX_UNPAGED_VALUES: u64 = 100;

/// Location of a value.
#[derive(Debug, Clone)]
struct Location {
    frame: u64,
    scope: u8,
    /// Path from the frame; empty: the frame itself.
    path: Vec<Value>,
}

/// A pending request.
#[derive(Debug)]
struct Pending {
    request: Request,
    location: Location,
    /// The name, if one variable is requested, as by a hover.
    name: Option<String>,
}

/// References and pending requests of one session.
#[derive(Debug)]
pub(super) struct Values {
    under_way: HashMap<u64, Pending>,
    first_seq: u64,
    next_seq: u64,
    references: HashMap<u64, Location>,
    last_reference: u64,
}

/// The requested page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part {
    variables_reference: u64,
    start: Option<u64>,
    count: Option<u64>,
    filter: Option<String>,
}

impl Values {
    /// Creates the state; requests are numbered from `first_seq` on.
    pub(super) fn new(first_seq: u64) -> Self {
        Self {
            under_way: HashMap::new(),
            first_seq,
            next_seq: first_seq,
            references: HashMap::new(),
            last_reference: 0,
        }
    }

    /// The scopes of `frame`.
    pub(super) fn scopes(&mut self, frame: u64) -> Value {
        let mut scope = |scope: u8, name: &str| {
            let path = Vec::new();
            let reference = self.keep(Location { frame, scope, path });
            json!({"name": name, "variablesReference": reference, "expensive": false})
        };
        json!({"scopes": [scope(0, "Locals"), scope(1, "Globals")]})
    }

    /// Requests the variable `name` of `frame`, with a checksum if it is compared with those of other tasks.
    pub(super) fn name(
        &mut self,
        request: Request,
        frame: u64,
        name: String,
        visibility: &Visibility,
        key: Option<ComparisonKey>,
    ) -> Action {
        let location = Location {
            frame,
            scope: 0,
            path: Vec::new(),
        };
        let open = Open::Name { name: name.clone() };
        let expression = open.expression(&visibility.rendering(key));
        let name = Some(name);
        self.ask(
            Pending {
                request,
                location,
                name,
            },
            &expression,
        )
    }

    /// Requests the children of a reference, which the arguments of `request` name.
    pub(super) fn inside(&mut self, request: Request, visibility: &Visibility) -> Action {
        let part = Part::deserialize(&request.arguments).unwrap_or_default();
        let Some(location) = self.references.get(&part.variables_reference).cloned() else {
            return fail(
                &request,
                "this variable is not known any more: open its frame again",
            );
        };
        let open = Open::Inside {
            scope: location.scope,
            path: location.path.clone(),
            start: part.start,
            count: part.count.filter(|count| *count > 0),
            filter: part.filter,
        };
        let expression = open.expression(&visibility.rendering(None));
        self.ask(
            Pending {
                request,
                location,
                name: None,
            },
            &expression,
        )
    }

    /// Handles the answer to `seq`; `None`: that is no request of the relay's own.
    pub(super) fn answered(&mut self, seq: u64, answer: &Value) -> Option<Vec<Action>> {
        if !(self.first_seq..=self.first_seq + OWN_SEQS).contains(&seq) {
            return None;
        }
        // Never for the client, even if nothing waits for it.
        let Some(pending) = self.under_way.remove(&seq) else {
            return Some(Vec::new());
        };
        let result = answer
            .pointer("/body/result")
            .filter(|_| answer.get("success") == Some(&Value::Bool(true)));
        let opened = result.and_then(Value::as_str).and_then(Opened::read);
        let Some(opened) = opened else {
            let why = "the frame is not stopped any more, or has no such variables";
            return Some(vec![fail(&pending.request, why)]);
        };
        Some(vec![self.show(pending, opened)])
    }

    fn show(&mut self, pending: Pending, opened: Opened) -> Action {
        let Pending {
            request,
            mut location,
            name,
        } = pending;
        location.scope = opened.scope;
        let variables = opened.variables.into_iter();
        let mut variables = variables.map(|value| self.variable(&location, value));
        let Some(name) = name else {
            let variables: Vec<_> = variables.collect();
            return Action::ToClient(request.success(json!({ "variables": variables })));
        };
        match variables.next() {
            Some(Value::Object(mut variable)) => {
                let value = variable.shift_remove("value").unwrap_or_default();
                variable.shift_remove("name");
                variable.insert("result".to_owned(), value);
                Action::ToClient(request.success(Value::Object(variable)))
            }
            _ => fail(&request, &format!("no variable `{name}` in this frame")),
        }
    }

    fn variable(&mut self, within: &Location, value: OpenedValue) -> Value {
        let mut variable = json!({"name": value.name, "type": value.kind, "value": value.value, "variablesReference": 0});
        if value.inside > 0
            && let Value::Object(variable) = &mut variable
        {
            let mut location = within.clone();
            location.path.push(value.step);
            variable.insert("variablesReference".to_owned(), self.keep(location).into());
            if value.indexed && value.inside > MAX_UNPAGED_VALUES {
                variable.insert("indexedVariables".to_owned(), value.inside.into());
            }
        }
        variable
    }

    fn keep(&mut self, location: Location) -> u64 {
        if self.references.len() >= MAX_REFERENCES {
            self.references.clear();
        }
        // Small enough for every client: 2^31 of them take days.
        self.last_reference += 1;
        self.references.insert(self.last_reference, location);
        self.last_reference
    }

    fn ask(&mut self, pending: Pending, expression: &str) -> Action {
        if self.under_way.len() >= MAX_PENDING {
            return fail(
                &pending.request,
                "too many variables are being asked for; try again",
            );
        }
        let seq = self.next_seq;
        // The first ones are answered by the time the numbers wrap around.
        self.next_seq = if seq >= self.first_seq + OWN_SEQS {
            self.first_seq
        } else {
            seq + 1
        };
        let frame = pending.location.frame;
        self.under_way.insert(seq, pending);
        ask(seq, frame, expression)
    }
}

fn fail(request: &Request, why: &str) -> Action {
    let mut answer = request.failure(why);
    if let Some(error) = answer
        .pointer_mut("/body/error")
        .and_then(Value::as_object_mut)
    {
        error.insert("showUser".to_owned(), false.into());
    }
    Action::ToClient(answer)
}
