//! A variable by its name: hover and watch, answered from what the worker lists and not by evaluating.
//!
//! Pure. The relay asks for the scopes of the frame and for the variables of one scope after the other; in a scope
//! debugpy puts some into groups, which are looked through as well. All of it is what a client does that opens the
//! frame in its list of variables.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

use super::Request;
use crate::dap::verdict::{Action, pass};
use crate::wire::dap::names::Command;

/// Names that are looked up at the same time.
const MAX_LOOKUPS: usize = 256;
/// Numbers for the relay's own requests, after the first.
const OWN_SEQS: u64 = (1 << 28) - 1;
/// Lists that are asked for to find one name: two scopes with four groups each.
const MAX_LISTS: usize = 10;
/// How debugpy calls its groups.
const GROUPS: [&str; 4] = [
    "special variables",
    "protected variables",
    "function variables",
    "class variables",
];
/// What an answer to `evaluate` takes over from a variable.
const SHOWN: [&str; 5] = [
    "type",
    "variablesReference",
    "namedVariables",
    "indexedVariables",
    "presentationHint",
];

/// A request of the client's that waits.
#[derive(Debug)]
pub(super) struct PendingLookup {
    pub(super) request: Request,
    /// The variable asked for.
    pub(super) name: String,
}

#[derive(Debug)]
struct Lookup {
    wanted: PendingLookup,
    /// References of the lists to look through next; `None`: the scopes are asked for.
    lists: Option<VecDeque<u64>>,
    left: usize,
}

/// The lookups that are under way, by the `seq` of the relay's own request.
#[derive(Debug)]
pub(super) struct Lookups {
    under_way: HashMap<u64, Lookup>,
    first_seq: u64,
    next_seq: u64,
}

impl Lookups {
    /// No lookups yet; their requests are numbered from `first_seq` on.
    pub(super) fn new(first_seq: u64) -> Self {
        Self {
            under_way: HashMap::new(),
            first_seq,
            next_seq: first_seq,
        }
    }

    /// Starts to look for a variable in `frame`.
    pub(super) fn begin(&mut self, frame: u64, wanted: PendingLookup) -> Action {
        if self.under_way.len() >= MAX_LOOKUPS {
            return wanted.fail("too many names are being looked up; try again");
        }
        let lookup = Lookup {
            wanted,
            lists: None,
            left: MAX_LISTS,
        };
        self.ask(Command::Scopes, json!({ "frameId": frame }), lookup)
    }

    /// `None` where `seq` is no request of the relay's own.
    pub(super) fn answered(&mut self, seq: u64, answer: &Value) -> Option<Vec<Action>> {
        if !(self.first_seq..=self.first_seq + OWN_SEQS).contains(&seq) {
            return None;
        }
        // Never for the client, also where nothing waits for it.
        let lookup = self.under_way.remove(&seq);
        Some(
            lookup
                .map(|lookup| self.go_on(lookup, answer))
                .into_iter()
                .collect(),
        )
    }

    fn go_on(&mut self, mut lookup: Lookup, answer: &Value) -> Action {
        if answer["success"] != true {
            return lookup
                .wanted
                .fail("the frame is not stopped any more, or has no variables");
        }
        let lists = lookup.lists.take();
        let of = |key: &str| answer["body"][key].as_array().into_iter().flatten();
        let reference = |list: &Value| list["variablesReference"].as_u64().filter(|r| *r > 0);
        let mut lists = match lists {
            None => of("scopes").filter_map(reference).collect(),
            Some(mut lists) => {
                let found = of("variables").find(|v| v["name"] == *lookup.wanted.name);
                if let Some(variable) = found {
                    return lookup.wanted.show(variable);
                }
                // The groups of a scope before the next scope.
                let groups = of("variables")
                    .filter(|v| GROUPS.iter().any(|group| v["name"] == **group))
                    .filter_map(reference)
                    .take(GROUPS.len());
                for group in groups.collect::<Vec<_>>().into_iter().rev() {
                    lists.push_front(group);
                }
                lists
            }
        };
        match lists.pop_front().filter(|_| lookup.left > 0) {
            Some(list) => {
                lookup.left -= 1;
                lookup.lists = Some(lists);
                self.ask(
                    Command::Variables,
                    json!({ "variablesReference": list }),
                    lookup,
                )
            }
            None => {
                let name = &lookup.wanted.name;
                let why = format!("no variable `{name}` in this frame");
                lookup.wanted.fail(&why)
            }
        }
    }

    fn ask(&mut self, command: Command, arguments: Value, lookup: Lookup) -> Action {
        let seq = self.next_seq;
        // Those of the beginning are answered by the time their numbers come again.
        self.next_seq = if seq >= self.first_seq + OWN_SEQS {
            self.first_seq
        } else {
            seq + 1
        };
        self.under_way.insert(seq, lookup);
        pass(seq, command, arguments)
    }
}

impl PendingLookup {
    fn show(self, variable: &Value) -> Action {
        let mut body = Map::new();
        body.insert("result".into(), variable["value"].clone());
        for key in SHOWN {
            if let Some(value) = variable.get(key) {
                body.insert(key.into(), value.clone());
            }
        }
        body.entry("variablesReference").or_insert(0.into());
        Action::ToClient(self.request.success(Value::Object(body)))
    }

    pub(super) fn fail(self, why: &str) -> Action {
        let mut answer = self.request.failure(why);
        answer["body"]["error"]["showUser"] = false.into();
        Action::ToClient(answer)
    }
}
