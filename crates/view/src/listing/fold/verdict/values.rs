//! Values by which one member differs from the others of its group, while all run.
//!
//! Snapshots are not taken at one moment: a member may be a step ahead, and at another line. What only shows this is
//! left out, as is what rank 0 has alone: it usually has other duties.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::answers::Same;
use super::super::differences::{self, Difference, Property, TaskStack, Weight, in_words};
use super::super::location::{Call, is_library};
use super::super::member::frames;
use super::super::number::{are_far, number};
use super::super::variable::{LENGTH, MISSING, Variable};
use super::super::who::Names;
use super::job::Job;
use super::state::{Position, State};
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::look::{Frame, Local, Source, Thread};

/// Differences that are named, and frames of a member that are compared: the innermost of the program's own code.
const MAX_DIFFERENCES: usize = 3;
const MAX_FRAMES: usize = 4;

const MAX_VALUE_CHARS: usize = 160;

/// Members without which no value is odd.
const MIN_MEMBERS: usize = 3;

/// Modules whose objects are no values of a program: their state is that of the moment.
const SYSTEM_MODULES: [&str; 11] = [
    "_io.",
    "_queue.",
    "_thread.",
    "asyncio.",
    "concurrent.",
    "multiprocessing.",
    "queue.",
    "selectors.",
    "socket.",
    "ssl.",
    "threading.",
];

/// How Python writes that there is no value.
const NONE: &str = "None";

/// How far counters of members may be apart that run the same.
const MAX_STEPS: f64 = 2.0;

/// A value of some members that is another one than that of most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OddValue {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) frame: Option<String>,
    pub(super) members: Vec<usize>,
    pub(super) value: String,
    pub(super) others: String,
    /// Whether several members have that value.
    pub(super) is_shared: bool,
    pub(super) weight: Weight,
}

/// Finds odd values in the groups of `job`.
pub(super) fn odd(job: &Job, names: &Names<'_>, positions: &[Position]) -> Vec<OddValue> {
    let mut found = Vec::new();
    for (group, members) in names.groups() {
        let compares = |at: &&usize| {
            let position = positions.get(**at);
            position.is_some_and(|position| position.state != State::Raised)
        };
        let mut by_source: HashMap<Source, BTreeMap<usize, &Thread>> = HashMap::new();
        for at in members.iter().filter(compares) {
            let member = &job.members[*at];
            if let (Ok(look), Some(first)) = (&member.look, member.threads(false).first()) {
                by_source
                    .entry(look.source)
                    .or_default()
                    .insert(*at, *first);
            }
        }
        // Another source spells the same value in another way.
        let threads = by_source.into_values().max_by_key(BTreeMap::len);
        let threads = threads.unwrap_or_default();
        if threads.len() < MIN_MEMBERS {
            continue;
        }
        let compared = differences::compare(&stacks(&threads));
        let is_still = |at: &usize| positions.get(*at).is_some_and(Position::is_still);
        let compared_group = ComparedGroup {
            job,
            group,
            stands: threads.keys().all(is_still),
            threads: &threads,
        };
        let odd = compared.differences.iter();
        found.extend(odd.filter_map(|difference| compared_group.odd(difference)));
        found.extend(odd_versions(job, group, members));
    }
    let names: Vec<(Option<String>, String)> = found
        .iter()
        .map(|one| (one.frame.clone(), one.name.clone()))
        .collect();
    // The text of an object has its attributes too, and that of a list its length.
    found.retain(|one| {
        let is_length = |name: &str| one.name == format!("{LENGTH}{name})");
        let mut of_frame = names.iter().filter(|(frame, _)| *frame == one.frame);
        if of_frame.any(|(_, name)| is_length(name)) {
            return false;
        }
        let mut of_frame = names.iter().filter(|(frame, _)| *frame == one.frame);
        !of_frame.any(|(_, name)| is_part(name, &one.name))
    });
    found.sort_by_key(|one| one.weight);
    found.truncate(MAX_DIFFERENCES);
    found
}

/// Finds packages of which some of `members` have loaded another version than most.
fn odd_versions(job: &Job, group: &str, members: &BTreeSet<usize>) -> Vec<OddValue> {
    let mut packages: BTreeMap<&str, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
    for at in members.iter().filter(|at| **at < job.members.len()) {
        let look = job.members[*at].look.as_ref().ok();
        for (name, version) in look.into_iter().flat_map(|look| &look.versions) {
            let versions = packages.entry(name).or_default();
            versions.entry(version).or_default().push(*at);
        }
    }
    let odd = packages.into_iter().filter_map(|(name, versions)| {
        let all: usize = versions.values().map(Vec::len).sum();
        let (most, having) = versions.iter().max_by_key(|(_, having)| having.len())?;
        let (odd, members) = versions.iter().find(|(version, _)| *version != most)?;
        let is_clear = all >= MIN_MEMBERS && 2 * having.len() > all;
        is_clear.then(|| OddValue {
            group: group.to_owned(),
            name: format!("{name}.__version__"),
            frame: None,
            members: members.clone(),
            value: (*odd).to_owned(),
            others: (*most).to_owned(),
            is_shared: true,
            weight: Weight::Process,
        })
    });
    odd.collect()
}

/// Returns the own calls of `thread`, outermost first.
fn own(thread: &Thread) -> Vec<&Frame> {
    let own = frames(thread)
        .iter()
        .filter(|frame| !is_library(&frame.file));
    let mut own: Vec<&Frame> = own.take(MAX_FRAMES).collect();
    own.reverse();
    own
}

/// Returns the stacks of `threads` to compare: only calls and variables that most of them have.
fn stacks(threads: &BTreeMap<usize, &Thread>) -> BTreeMap<usize, TaskStack> {
    let mut counts: BTreeMap<(String, Option<&str>), usize> = BTreeMap::new();
    for thread in threads.values() {
        let mut seen = BTreeSet::new();
        for frame in own(thread) {
            let call = in_words(&Call::of(frame));
            let locals = frame.locals.iter().flatten();
            seen.extend(locals.map(|local| (call.clone(), Some(&*local.name))));
            seen.insert((call, None));
        }
        for one in seen {
            *counts.entry(one).or_default() += 1;
        }
    }
    let is_common = |call: &str, name: Option<&str>| {
        let count = counts.get(&(call.to_owned(), name));
        count.is_some_and(|count| 2 * count > threads.len())
    };
    let stack = |thread: &Thread| {
        let calls = own(thread).into_iter().filter_map(|frame| {
            let call = Call::of(frame);
            let words = in_words(&call);
            let locals = || frame.locals.iter().flatten();
            let of_system: Vec<&Local> = locals().filter(|local| is_of_system(local)).collect();
            let is_hidden = |local: &Local| {
                let mut whole = of_system.iter().map(|one| &*one.name);
                whole.any(|whole| local.name == whole || is_part(&local.name, whole))
            };
            let common =
                locals().filter(|local| is_common(&words, Some(&local.name)) && !is_hidden(local));
            let lengths = common.clone().filter_map(Variable::length_of);
            let variables = common.map(Variable::of_running).chain(lengths).collect();
            is_common(&words, None).then_some((call, variables))
        });
        TaskStack::of_running(calls)
    };
    threads
        .iter()
        .map(|(at, thread)| (*at, stack(thread)))
        .collect()
}

/// A group whose values are compared.
struct ComparedGroup<'a> {
    job: &'a Job,
    group: &'a str,
    /// Whether no member has moved for long: then none is a step ahead because it was read later.
    stands: bool,
    threads: &'a BTreeMap<usize, &'a Thread>,
}

impl ComparedGroup<'_> {
    /// Returns `difference` if it says more than that members are a step apart.
    fn odd(&self, difference: &Difference) -> Option<OddValue> {
        let Self {
            job,
            group,
            threads,
            ..
        } = *self;
        let Property::Variable(name) = &difference.property else {
            return None;
        };
        if difference.weight > Weight::Value {
            return None;
        }
        let same = &difference.answers.same;
        let is_odd = |same: &&Same| same.odd;
        let not_finite = |same: &&Same| number(&same.text).is_some_and(|value| !value.is_finite());
        let odd = same.iter().filter(is_odd).find(not_finite);
        let odd = odd.or_else(|| same.iter().find(is_odd))?;
        let most = same.iter().max_by_key(|same| same.members.len())?;
        let all: usize = same.iter().map(|same| same.members.len()).sum();
        let is_finite = difference.weight != Weight::NotFinite;
        if is_finite && (2 * most.members.len() <= all || !self.tells(name, &odd.text, &most.text))
        {
            return None;
        }
        let line = |at: &usize| Some(own_frame(threads, *at, difference)?.line);
        let is_missing = |same: &&Same| same.text == MISSING;
        let lack = same.iter().filter(is_missing);
        let mut lack = lack.flat_map(|same| &same.members);
        if lack.any(|at| !has_sibling(own_frame(threads, *at, difference), name)) {
            return None;
        }
        let is_part = name.contains(['.', '[']);
        let at_line = |members: &BTreeSet<usize>| members.first().and_then(line);
        // At another line, a local variable may be of another step.
        if is_finite && !is_part && at_line(&odd.members) != at_line(&most.members) {
            return None;
        }
        let is_length = name.starts_with(LENGTH);
        // A list that grows or shrinks has many lengths.
        if is_length && same.len() > 2 {
            return None;
        }
        let is_first = |at: &usize| job.rank(*at) == Some(0);
        let is_count = !is_length && number(&odd.text).is_some() && number(&most.text).is_some();
        if is_finite && !is_count && odd.members.iter().all(is_first) {
            return None;
        }
        // The last stage of a pipeline has what the others lack.
        let last = threads.keys().filter_map(|at| job.rank(*at)).max();
        let is_last = |at: &usize| last.is_some() && job.rank(*at) == last;
        let is_absent = odd.text == NONE || most.text == NONE;
        if is_finite && is_absent && odd.members.iter().all(is_last) {
            return None;
        }
        Some(OddValue {
            group: group.to_owned(),
            name: name.clone(),
            is_shared: most.members.len() > 1,
            frame: difference.frame.clone(),
            members: odd.members.iter().copied().collect(),
            value: shortened(&odd.text, MAX_VALUE_CHARS),
            others: shortened(&most.text, MAX_VALUE_CHARS),
            weight: difference.weight,
        })
    }

    /// Whether `odd` instead of `most` says more than that a member is a step ahead, or was read later.
    fn tells(&self, name: &str, odd: &str, most: &str) -> bool {
        let is_unread = |text: &str| text.starts_with('‹');
        if is_unread(odd) || is_unread(most) {
            return false;
        }
        let is_missing = |text: &str| text == MISSING;
        if is_missing(odd) || is_missing(most) {
            // A variable may not be set yet; a key or an attribute usually is.
            return name.contains(['.', '[']);
        }
        let (Some(odd), Some(most)) = (number(odd), number(most)) else {
            return true;
        };
        let apart = (odd - most).abs();
        let are_counters = odd.fract() == 0.0 && most.fract() == 0.0;
        match are_counters {
            true if self.stands => apart > 0.0,
            true => apart > MAX_STEPS && are_far(odd, most),
            false => apart.is_nan() || are_far(odd, most),
        }
    }
}

/// Whether `local` is a queue, a lock, a socket or the like.
fn is_of_system(local: &Local) -> bool {
    let mut modules = SYSTEM_MODULES.iter();
    modules.any(|module| local.kind.starts_with(module))
}

/// Whether `path` is a part of `whole`: `self.a[0]` of `self.a` and of `self`.
fn is_part(path: &str, whole: &str) -> bool {
    let rest = path.strip_prefix(whole);
    rest.is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Returns the innermost frame of member `at` that `difference` is about.
fn own_frame<'a>(
    threads: &BTreeMap<usize, &'a Thread>,
    at: usize,
    difference: &Difference,
) -> Option<&'a Frame> {
    let frames = own(threads.get(&at)?).into_iter().rev();
    let mut frames = frames.filter(|frame| difference.frame == Some(in_words(&Call::of(frame))));
    frames.next()
}

/// Whether `frame` shows something beside `path`, in the same value. The hook looks into variables of some frames only:
/// otherwise the path may be missing for that reason.
fn has_sibling(frame: Option<&Frame>, path: &str) -> bool {
    let Some(end) = path.rfind(['.', '[']) else {
        return true;
    };
    let parent = &path[..end];
    let locals = frame.iter().flat_map(|frame| frame.locals.iter().flatten());
    let mut names = locals.map(|local| &*local.name);
    names.any(|name| is_part(name, parent))
}
