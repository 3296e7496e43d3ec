//! Compares the frames of paused tasks that run the same: their locations, and their variables by name.
//!
//! Pure. Reads the threads of `/relay/v1/snapshot`. Each task contributes one thread, from the outermost frame of the
//! program's own code on, or the frames of the exception at a post-mortem. Frames are matched by file and function,
//! at any depth.
//!
//! Values are equal if their checksums are, which the task itself computes over the whole value. Without a checksum,
//! a text that is cut or names an object only by its address cannot be compared: if such values look alike, they
//! count as not compared.

mod held;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::held::{FoldedValues, Frame, MISSING, in_one_line, values};
use super::answer_text::{json as as_json, lines};
use super::answers::{Answers, fold};
use super::location::{Call, is_library};
use super::who::Names;
use ray_relay_base::wire::json::{self, put, typed_at};

/// Differences that are shown, and characters of each value.
const MAX_DIFFERENCES: usize = 40;
const MAX_VALUE_CHARS: usize = 160;

/// Examples shown for a variable that differs everywhere.
const MAX_EXAMPLES: usize = 4;

/// Variables shown of a frame that no other task has.
const MAX_OWN_VARIABLES: usize = 8;

/// Values that were not compared and are named.
const MAX_NAMED_VALUES: usize = 8;

/// The frame name of the process environment. It may differ by node, and marks no rank as odd.
const ENVIRONMENT: &str = "environment";

/// Why an inspected task is not compared.
pub const NO_THREAD: &str = "no thread of it waits at a breakpoint any more";

/// The paused thread of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStack {
    /// Outermost first.
    frames: Vec<Frame>,
    exception: Option<String>,
    /// Properties of the process: its environment, packages and random numbers, each as a frame of that name.
    process: Vec<Frame>,
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
            let exception = typed_at::<Option<&str>>(thread, "exception").map(in_one_line);
            let process = process.clone();
            (!frames.is_empty()).then_some(Self {
                frames,
                exception,
                process,
            })
        })
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

/// A compared property.
#[derive(Debug, Clone, PartialEq)]
struct Difference {
    property: Property,
    /// The function with its file, if it belongs to a frame.
    frame: Option<String>,
    answers: Answers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Property {
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
    differences: Vec<Difference>,
    /// Properties that are equal wherever they exist.
    alike: Vec<Difference>,
    /// Properties that look equal, and were not compared as a whole.
    not_compared: Vec<Difference>,
    /// The members that are odd most often, and how often.
    odd: (BTreeSet<usize>, usize),
}

impl Comparison {
    /// Adds a property of the tasks, or of `frame`.
    fn add(&mut self, property: Property, frame: Option<&Call>, answers: Answers) {
        let all = match answers.agree() {
            true => &mut self.alike,
            false => &mut self.differences,
        };
        all.push(Difference::new(property, frame, answers));
    }

    /// Adds the variable `name` of `frame`.
    fn add_variable(&mut self, name: &str, frame: &Call, values: FoldedValues) {
        let property = Property::Variable(name.to_owned());
        match values.answers.agree() && !values.are_compared {
            true => {
                let difference = Difference::new(property, Some(frame), values.answers);
                self.not_compared.push(difference);
            }
            false => self.add(property, Some(frame), values.answers),
        }
    }
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
    // Differences that involve the odd member come first. A variable that differs everywhere is the least useful.
    let key = |difference: &Difference| {
        let odd = difference.answers.odd();
        let tells = !odd.is_disjoint(&comparison.odd.0);
        (!tells, odd.is_empty(), difference.answers.all_differ())
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
            .flat_map(|frame| &frame.locals)
            .map(|local| &*local.name)
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let of = |name: &str| values(name, members.iter().map(|(at, frame)| (*at, *frame)));
        if members.len() == 1 {
            // With nothing to compare it to, its variables are shown if the task is paused there.
            if all.len() > 1 && members.iter().all(|(at, frame)| stands_in(at, frame)) {
                for name in names.into_iter().take(MAX_OWN_VARIABLES) {
                    let property = Property::Variable(name.to_owned());
                    let difference = Difference::new(property, Some(&first.call), of(name).answers);
                    comparison.differences.push(difference);
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
            comparison.add_variable(name, &first.call, of(name));
        }
    }
}

/// Compares properties of the processes: by kind, then by name.
fn of_processes(comparison: &mut Comparison, all: &BTreeMap<usize, TaskStack>) {
    let mut names: BTreeSet<(&str, &str)> = BTreeSet::new();
    for frame in all.values().flat_map(|stack| &stack.process) {
        let locals = frame.locals.iter();
        names.extend(locals.map(|local| (&*frame.call.function, &*local.name)));
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
        let mut values = values(name, frames.iter().copied());
        if kind == ENVIRONMENT {
            values.answers.clear_odd();
        }
        comparison.add_variable(name, &frame.call, values);
    }
}

/// Returns who of `size` members is odd most often, and how often. Empty if that would be half of them.
fn odd(differences: &[Difference], size: usize) -> (BTreeSet<usize>, usize) {
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for member in differences
        .iter()
        .flat_map(|difference| difference.answers.odd())
    {
        *times.entry(member).or_default() += 1;
    }
    let most = times.values().copied().max().unwrap_or_default();
    let odd = times.iter().filter(|(_, count)| **count == most);
    let odd: BTreeSet<usize> = odd.map(|(member, _)| *member).collect();
    match 2 * odd.len() < size {
        true => (odd, most),
        false => (BTreeSet::new(), 0),
    }
}

impl Comparison {
    /// Formats the comparison.
    pub(super) fn text(&self, names: &Names<'_>) -> String {
        let (alike, differ) = (self.alike.len(), self.differences.len());
        let values = |count: usize| match count {
            1 => "1 value".to_owned(),
            count => format!("{count} values"),
        };
        let rest = format!("{} alike{}.\n", values(alike), self.not_compared_clause());
        if differ == 0 {
            return format!("Nothing differs: {rest}");
        }
        let marked: BTreeSet<usize> = self
            .differences
            .iter()
            .flat_map(|difference| difference.answers.odd())
            .collect();
        let mut text = match &self.odd {
            (odd, times) if !odd.is_empty() => {
                let (one, differs) = match odd.len() {
                    1 => ("is the odd one out", "it differs"),
                    _ => ("are the odd ones out", "each differs"),
                };
                let who = names.of(odd);
                format!(
                    "{who} {one}: {differs} from most in {times} of {}.\n",
                    values(alike + differ + self.not_compared.len())
                )
            }
            _ if !marked.is_empty() => format!(
                "{} differ from most somewhere, none of them more often than the others.\n",
                names.of(&marked)
            ),
            _ => "None is the odd one out.\n".to_owned(),
        };
        for difference in self.differences.iter().take(MAX_DIFFERENCES) {
            text.push('\n');
            text += &difference.text(names);
        }
        if differ > MAX_DIFFERENCES {
            text += &format!(
                "\n… and {} more differences; --json has all\n",
                differ - MAX_DIFFERENCES
            );
        }
        text + &format!("\n{rest}")
    }

    /// Says how many values were not compared, as the end of a sentence.
    fn not_compared_clause(&self) -> String {
        let named = self
            .not_compared
            .iter()
            .filter_map(|one| match &one.property {
                Property::Variable(name) => Some(&**name),
                _ => None,
            });
        let named: BTreeSet<&str> = named.collect();
        let some: Vec<&str> = named.iter().copied().take(MAX_NAMED_VALUES).collect();
        let more = if named.len() > MAX_NAMED_VALUES {
            ", …"
        } else {
            ""
        };
        match self.not_compared.len() {
            0 => String::new(),
            count => format!(", {count} not compared ({}{more})", some.join(", ")),
        }
    }

    /// Returns the comparison as JSON.
    pub(super) fn json(&self, names: &Names<'_>) -> Value {
        let differences = self.differences.iter().map(|difference| {
            let json_row = as_json(names, &difference.answers);
            difference.named(json_row)
        });
        let same = |all: &[Difference]| -> Vec<Value> {
            let same = all.iter().flat_map(|alike| {
                let same = alike.answers.same.iter();
                same.map(|same| {
                    let members = &same.members;
                    alike.named(
                        json!({"who": names.of(members), "members": members, "text": same.text}),
                    )
                })
            });
            same.collect()
        };
        json!({
            "odd": self.odd.0, "odd_in": self.odd.1, "alike": self.alike.len(),
            "differences": differences.collect::<Vec<_>>(), "same": same(&self.alike),
            "not_compared": same(&self.not_compared),
        })
    }
}

impl Difference {
    fn new(property: Property, frame: Option<&Call>, answers: Answers) -> Self {
        Self {
            property,
            frame: frame.map(|call| format!("{} ({})", call.function, call.file)),
            answers,
        }
    }

    /// Adds the property to `json_row`.
    fn named(&self, mut json_row: Value) -> Value {
        put(&mut json_row, "what", self.property.word());
        if let Property::Variable(name) = &self.property {
            put(&mut json_row, "name", &**name);
        }
        put(&mut json_row, "frame", self.frame.clone());
        json_row
    }

    fn text(&self, names: &Names<'_>) -> String {
        let property = match &self.property {
            Property::Location => "stands at",
            Property::Callers => "was called by",
            Property::Exception => "raised",
            Property::Line => "is at",
            Property::Variable(name) => name,
        };
        let frame = self.frame.as_ref().map(|frame| format!(", in {frame}"));
        let head = format!("{property}{}", frame.unwrap_or_default());
        if self.answers.all_differ()
            && self.answers.odd().is_empty()
            && self.answers.same.len() > MAX_EXAMPLES
        {
            let mut some = self.answers.clone();
            some.same.truncate(MAX_EXAMPLES);
            let count = self.answers.same.len();
            let lines = lines(names, &some, "  ", Some(MAX_VALUE_CHARS));
            return format!("{head}: another one for each of {count}, such as\n{lines}");
        }
        format!(
            "{head}\n{}",
            lines(names, &self.answers, "  ", Some(MAX_VALUE_CHARS))
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
