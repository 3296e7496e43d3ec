//! Compares the frames of paused tasks that run the same: their locations, and their variables by name.
//!
//! Pure. Reads the threads of `/relay/v1/snapshot`. Each task contributes one thread, from the outermost frame of the
//! program's own code on, or the frames of the exception at a post-mortem. Frames are matched by file and function,
//! at any depth.
//!
//! [`super::variable`] compares the values. What the program computes tells more than paths and ids, and
//! those more than properties of the processes: a member is odd by what tells most ([`Weight`]).

mod shown;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::answers::{Answers, fold};
use super::location::{Call, is_library};
use super::noise::is_identity;
use super::variable::{self, ComparedVariable, MISSING, Member, Outcome, Variable, in_one_line};
use ray_relay_base::wire::json::{self, typed_at};
use ray_relay_base::wire::text::replaced;

/// Variables shown of a frame that no other task has.
const MAX_OWN_VARIABLES: usize = 8;

/// The frame names of the process environment, which may differ by node and marks no rank as odd, and of other
/// properties of a process.
const ENVIRONMENT: &str = "environment";
const PROPERTIES: [&str; 2] = ["packages", "random numbers"];

/// Why an inspected task is not compared.
pub const NO_THREAD: &str = "no thread of it waits at a breakpoint any more";

/// The paused thread of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStack {
    /// Outermost first.
    frames: Vec<Frame>,
    exception: Option<String>,
    /// Properties of the process: its environment, packages and random numbers, and the variables of the program's
    /// modules, each as a frame.
    process: Vec<Frame>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    call: Call,
    variables: Vec<Variable>,
    /// Whether the task has computed checksums of variables.
    has_checksums: bool,
}

impl Frame {
    fn read(frame: &Value) -> Self {
        let text = |key: &str| {
            let text: Option<&str> = typed_at(frame, key);
            replaced(text.unwrap_or("?")).into_owned()
        };
        let variables = json::list(frame, "variables").iter();
        let variables: Vec<Variable> = variables.filter_map(Variable::read).collect();
        Self {
            call: Call::named(&text("file"), text("function"), typed_at(frame, "line")),
            has_checksums: variables.iter().any(Variable::has_checksum),
            variables,
        }
    }

    /// Its variable `name`, as that of the member `at`.
    fn member(&self, at: usize, name: &str) -> Member<'_> {
        Member {
            at,
            variable: self.variables.iter().find(|one| one.name == name),
            has_checksums: self.has_checksums,
        }
    }
}

/// A frame, whatever its caller: file, function, and the number of equal ones above it.
type Key<'a> = (&'a str, &'a str, usize);

impl TaskStack {
    /// Reads the first of `threads` that has any frame.
    pub fn read(threads: &Value) -> Option<Self> {
        let is_process = |thread: &&Value| typed_at(thread, "process");
        let frames = |thread: &Value, key: &str| -> Vec<Frame> {
            json::list(thread, key).iter().map(Frame::read).collect()
        };
        let all = threads.as_array()?;
        let process = all.iter().find(is_process);
        let process = process.map(|thread| frames(thread, "frames"));
        let process = process.unwrap_or_default();
        let mut threads = all.iter().filter(|thread| !is_process(thread));
        threads.find_map(|thread| {
            let mut frames = match frames(thread, "raised") {
                raised if raised.is_empty() => frames(thread, "frames"),
                raised => raised,
            };
            let own = frames.iter().position(|f| !is_library(&f.call.file));
            frames.drain(..own.unwrap_or_default());
            let has_checksums = frames.iter().any(|frame| frame.has_checksums);
            for frame in &mut frames {
                frame.has_checksums = has_checksums;
            }
            let exception = typed_at::<Option<&str>>(thread, "exception").map(in_one_line);
            let process = process.clone();
            (!frames.is_empty()).then_some(Self {
                frames,
                exception,
                process,
            })
        })
    }

    /// Builds the stack of a running task from its calls, outermost first, with their variables.
    pub(super) fn of_running(calls: impl IntoIterator<Item = (Call, Vec<Variable>)>) -> Self {
        let frame = |(call, variables)| Frame {
            call,
            variables,
            has_checksums: false,
        };
        Self {
            frames: calls.into_iter().map(frame).collect(),
            exception: None,
            process: Vec::new(),
        }
    }

    fn keyed(&self) -> BTreeMap<Key<'_>, &Frame> {
        let mut keyed = BTreeMap::new();
        for frame in &self.frames {
            let mut key = (&*frame.call.file, &*frame.call.function, 0);
            while keyed.contains_key(&key) {
                key.2 += 1;
            }
            keyed.insert(key, frame);
        }
        keyed
    }

    /// Returns the calls, outermost first.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.frames.iter().map(|frame| frame.call.clone()).collect()
    }

    fn location(&self) -> String {
        self.frames
            .last()
            .map_or_else(String::new, |frame| frame.call.to_string())
    }
}

/// How much a difference tells of what is wrong, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// A number that is not finite where those of others are.
    NotFinite,
    /// Where a task is, and what it computes.
    Value,
    /// A path, an id, an address.
    Identity,
    /// The version of a package, the state of random numbers.
    Process,
    /// A variable of the environment.
    Environment,
}

impl Weight {
    const ALL: [Self; 5] = [
        Self::NotFinite,
        Self::Value,
        Self::Identity,
        Self::Process,
        Self::Environment,
    ];

    /// Returns the weight of a variable in the frame of `call`.
    fn of(call: &Call, variable: &ComparedVariable) -> Self {
        let answers = &variable.answers;
        let not_finite =
            |figures: &super::answers::Figures| !figures.not_finite.is_disjoint(&answers.odd());
        let text = answers.same.first().map_or("", |same| &same.text);
        match (call.line, &*call.function) {
            (0, ENVIRONMENT) => Self::Environment,
            (0, kind) if PROPERTIES.contains(&kind) => Self::Process,
            _ if answers.figures.as_ref().is_some_and(not_finite) => Self::NotFinite,
            _ if is_identity(&variable.name, text) => Self::Identity,
            _ => Self::Value,
        }
    }
}

/// A compared property.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    pub(super) property: Property,
    pub(super) weight: Weight,
    /// The function with its file, if it belongs to a frame.
    pub(super) frame: Option<String>,
    pub(super) answers: Answers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Property {
    /// The location of a task.
    Location,
    /// The calls that led there, if the location is the same.
    Callers,
    Exception,
    /// The line of a frame that is not the location of the task.
    Line,
    Variable(String),
}

impl Property {
    fn word(&self) -> &str {
        match self {
            Self::Location => "place",
            Self::Callers => "callers",
            Self::Exception => "exception",
            Self::Line => "line",
            Self::Variable(_) => "variable",
        }
    }
}

/// The differences, odd ones first, and what is equal.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) differences: Vec<Difference>,
    /// Properties that are equal wherever they exist.
    alike: Vec<Difference>,
    /// Properties that differ as they do between any two processes.
    noise: Vec<Difference>,
    /// Properties that look equal, and were not compared as a whole.
    not_compared: Vec<Difference>,
    /// The members that are odd most often, and how often.
    odd: (BTreeSet<usize>, usize),
}

impl Comparison {
    /// Adds what is known as a whole: a location, or an exception.
    fn add(&mut self, property: Property, frame: Option<&Call>, answers: Answers) {
        let all = match answers.agree() {
            true => &mut self.alike,
            false => &mut self.differences,
        };
        let frame = frame.map(in_words);
        all.push(Difference {
            property,
            weight: Weight::Value,
            frame,
            answers,
        });
    }

    /// Adds the variable `name` of `members`, and what is inside of it, in the frame of `call`.
    fn add_variable(&mut self, name: &str, call: &Call, members: &[Member<'_>]) {
        for mut compared in variable::compare(name, members) {
            let weight = Weight::of(call, &compared);
            if weight == Weight::Environment {
                compared.answers.clear_odd();
            }
            let all = match compared.outcome {
                Outcome::Alike => &mut self.alike,
                Outcome::Noise => &mut self.noise,
                Outcome::NotCompared => &mut self.not_compared,
                Outcome::Differs => &mut self.differences,
                Outcome::Elsewhere => continue,
            };
            all.push(Difference {
                property: Property::Variable(compared.name),
                weight,
                frame: Some(in_words(call)),
                answers: compared.answers,
            });
        }
    }

    /// Returns how many properties were compared, or were to be.
    fn count(&self) -> usize {
        self.alike.len() + self.differences.len() + self.noise.len() + self.not_compared.len()
    }
}

/// `step (train.py)`.
pub(super) fn in_words(call: &Call) -> String {
    format!("{} ({})", call.function, call.file)
}

/// Compares the locations of `all`, which run the same.
pub(super) fn compare(all: &BTreeMap<usize, TaskStack>) -> Comparison {
    let mut comparison = Comparison::default();
    let of = |text: fn(&TaskStack) -> String| {
        let texts: Vec<_> = all.iter().map(|(at, stack)| (*at, text(stack))).collect();
        fold(texts.iter().map(|(at, text)| (*at, &**text)))
    };
    let location = of(TaskStack::location);
    if location.agree() {
        let callers = of(|stack| {
            let calls = stack.frames.iter().map(|frame| &*frame.call.function);
            calls.collect::<Vec<_>>().join(" > ")
        });
        comparison.add(Property::Callers, None, callers);
    }
    comparison.add(Property::Location, None, location);
    if all.values().any(|stack| stack.exception.is_some()) {
        let exception = of(|stack| {
            stack
                .exception
                .clone()
                .unwrap_or_else(|| MISSING.to_owned())
        });
        comparison.add(Property::Exception, None, exception);
    }
    in_frames(&mut comparison, all);
    of_processes(&mut comparison, all);
    comparison.odd = odd(&comparison.differences, all.len());
    // Differences that involve the odd member come first, and of those what tells most. A variable that differs
    // everywhere is the least useful.
    let key = |difference: &Difference| {
        let odd = difference.answers.odd();
        let tells = !odd.is_disjoint(&comparison.odd.0);
        (
            !tells,
            odd.is_empty(),
            difference.weight,
            difference.answers.all_differ(),
        )
    };
    let mut differences = std::mem::take(&mut comparison.differences);
    differences.sort_by_key(key);
    comparison.differences = differences;
    comparison
}

/// Compares frames that several tasks have, innermost first. Lists the variables of a frame that only one task is
/// paused in.
fn in_frames(comparison: &mut Comparison, all: &BTreeMap<usize, TaskStack>) {
    let mut frames: BTreeMap<Key<'_>, BTreeMap<usize, &Frame>> = BTreeMap::new();
    let mut order: Vec<Key<'_>> = Vec::new();
    for (at, stack) in all {
        let keyed = stack.keyed();
        for (key, frame) in keyed {
            let members = frames.entry(key).or_insert_with(|| {
                order.push(key);
                BTreeMap::new()
            });
            members.insert(*at, frame);
        }
    }
    let depth = |key: &Key<'_>| {
        let depths = all.values().map(|stack| {
            let calls = stack.frames.iter().rev().map(|frame| &frame.call);
            let mut calls = calls.map(|call| (&*call.file, &*call.function));
            calls
                .position(|call| call == (key.0, key.1))
                .unwrap_or(usize::MAX)
        });
        depths.min()
    };
    order.sort_by_key(|key| (depth(key), *key));
    for key in order {
        let members = &frames[&key];
        let stands_in = |at: &usize, frame: &&Frame| {
            all[at]
                .frames
                .last()
                .is_some_and(|last| std::ptr::eq(last, *frame))
        };
        let Some((_, first)) = members.first_key_value() else {
            continue;
        };
        let mut names: Vec<&str> = Vec::new();
        for name in members
            .values()
            .flat_map(|frame| &frame.variables)
            .map(|variable| &*variable.name)
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let of = |name: &str| -> Vec<Member<'_>> {
            let members = members.iter();
            members.map(|(at, frame)| frame.member(*at, name)).collect()
        };
        if members.len() == 1 {
            // With nothing to compare it to, its variables are shown if the task is paused there.
            if all.len() > 1 && members.iter().all(|(at, frame)| stands_in(at, frame)) {
                for name in names.into_iter().take(MAX_OWN_VARIABLES) {
                    comparison.differences.push(Difference {
                        property: Property::Variable(name.to_owned()),
                        weight: Weight::Value,
                        frame: Some(in_words(&first.call)),
                        answers: variable::as_a_whole(name, &of(name)).answers,
                    });
                }
            }
            continue;
        }
        if !members.iter().all(|(at, frame)| stands_in(at, frame)) {
            let at_line = |frame: &Frame| format!("line {}", frame.call.line);
            let texts: Vec<_> = members
                .iter()
                .map(|(at, frame)| (*at, at_line(frame)))
                .collect();
            let answers = fold(texts.iter().map(|(at, text)| (*at, &**text)));
            comparison.add(Property::Line, Some(&first.call), answers);
        }
        for name in names {
            comparison.add_variable(name, &first.call, &of(name));
        }
    }
}

/// Compares properties of the processes: by kind, then by name.
fn of_processes(comparison: &mut Comparison, all: &BTreeMap<usize, TaskStack>) {
    let mut names: BTreeSet<(&str, &str)> = BTreeSet::new();
    for frame in all.values().flat_map(|stack| &stack.process) {
        let variables = frame.variables.iter();
        names.extend(variables.map(|one| (&*frame.call.function, &*one.name)));
    }
    for (kind, name) in names {
        let frames = all.iter().filter_map(|(at, stack)| {
            let mut frames = stack.process.iter();
            Some((*at, frames.find(|frame| frame.call.function == kind)?))
        });
        let frames: Vec<_> = frames.collect();
        let Some((_, frame)) = frames.first() else {
            continue;
        };
        let members: Vec<_> = frames
            .iter()
            .map(|(at, frame)| frame.member(*at, name))
            .collect();
        comparison.add_variable(name, &frame.call, &members);
    }
}

/// Returns who of `size` members is odd most often by what tells most, and in how many differences. Empty if that would
/// be half of them.
fn odd(differences: &[Difference], size: usize) -> (BTreeSet<usize>, usize) {
    let times = |of: &dyn Fn(&Difference) -> bool| {
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        let odd = differences.iter().filter(|difference| of(difference));
        for member in odd.flat_map(|difference| difference.answers.odd()) {
            *times.entry(member).or_default() += 1;
        }
        times
    };
    let by_weight = |weight: &Weight| times(&|difference| difference.weight == *weight);
    let telling = Weight::ALL
        .iter()
        .map(by_weight)
        .find(|times| !times.is_empty());
    let telling = telling.unwrap_or_default();
    let most = telling.values().copied().max().unwrap_or_default();
    let odd = telling.iter().filter(|(_, count)| **count == most);
    let odd: BTreeSet<usize> = odd.map(|(member, _)| *member).collect();
    let all = times(&|_| true);
    let least = odd.iter().filter_map(|member| all.get(member)).min();
    match 2 * odd.len() < size {
        true => (odd.clone(), least.copied().unwrap_or_default()),
        false => (BTreeSet::new(), 0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
