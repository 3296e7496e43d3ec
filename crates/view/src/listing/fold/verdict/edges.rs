//! Who waits for whom: the graph of members, idle actors and things.

use std::collections::{BTreeMap, BTreeSet};

use super::super::location::Location;
use super::super::who::Names;
use super::gather::Gatherings;
use super::gathering::Gathering;
use super::graph::Graph;
use super::job::{Job, Process};
use super::state::{Position, State};
use super::things::Thing;

/// The wait-for graph of a job. Its nodes are the processes of the [`Job`], and then the things.
pub(super) struct WaitGraph {
    pub(super) graph: Graph,
    gatherings: Gatherings,
    /// For each member, the gathering in which it waits.
    gathered: BTreeMap<usize, usize>,
    things: Vec<Thing>,
    processes: usize,
    /// Waits in `ray.get` for the one task that runs in the other process: they cannot end before it.
    sure: BTreeSet<(usize, usize)>,
    /// Actors in which a group seems to meet.
    barriers: BTreeSet<usize>,
}

impl WaitGraph {
    /// Builds the graph of `job`, whose members are at `positions`.
    pub(super) fn of(job: &Job, names: &Names<'_>, positions: &[Position]) -> Self {
        let processes = job.processes.len();
        let mut all = Self {
            graph: Graph::new(processes),
            gatherings: Gatherings::of(job, names, positions),
            gathered: BTreeMap::new(),
            things: Vec::new(),
            processes,
            sure: BTreeSet::new(),
            barriers: BTreeSet::new(),
        };
        all.add_gatherings(job);
        for (at, position) in positions.iter().enumerate() {
            match &position.state {
                State::WaitsForObject => {
                    // In `ray.wait` one of several may be enough.
                    let location = position.location.as_ref();
                    let waits = location.and_then(Location::waits);
                    all.add_objects(job, names, at, waits != Some("ray.wait"));
                }
                State::WaitsForFileLock(holders) => all.add_lock_holders(job, at, holders),
                _ => {}
            }
        }
        for (at, position) in positions.iter().enumerate() {
            if matches!(
                position.state,
                State::WaitsForFuture | State::WaitsForThread
            ) {
                all.add_absent_callers(job, names, at);
            }
        }
        all
    }

    /// Adds what the member `at` waits for if most of a group's processes that live wait for it: it is their barrier, and
    /// the others of the group have not called it.
    fn add_absent_callers(&mut self, job: &Job, names: &Names<'_>, at: usize) {
        let callers: BTreeSet<usize> = self.graph.waiters(at).iter().copied().collect();
        for group in names.groups().values() {
            let called = group.intersection(&callers).count();
            let living = group.iter().filter(|at| !job.has_died(**at)).count();
            if group.contains(&at) || called < 2 || 2 * called <= living {
                continue;
            }
            for absent in group.difference(&callers) {
                self.graph.add(at, *absent);
                self.barriers.insert(at);
            }
        }
    }

    /// Whether the member `at` seems to be an actor in which others meet.
    pub(super) fn is_barrier(&self, at: usize) -> bool {
        self.barriers.contains(&at)
    }

    fn add_gatherings(&mut self, job: &Job) {
        for (number, gathering) in self.gatherings.all.iter().enumerate() {
            let absent = gathering.absent.as_ref().map(|ranks| {
                let group = gathering.members.first().map_or("", |at| job.group(*at));
                let rank = match ranks.parse::<u32>() {
                    Ok(_) => "rank",
                    Err(_) => "ranks",
                };
                self.things
                    .push(Thing::Absent(format!("{rank} {ranks} of {group}")));
                self.graph.add_node()
            });
            for at in &gathering.members {
                self.gathered.insert(*at, number);
                if self.gatherings.surplus.contains(at) {
                    continue;
                }
                for missing in gathering.missing.iter().copied().chain(absent) {
                    self.graph.add(*at, missing);
                }
            }
        }
    }

    /// Adds the objects that the member `at` waits for, `of_all` or of one.
    fn add_objects(&mut self, job: &Job, names: &Names<'_>, at: usize, of_all: bool) {
        for awaited in &job.objects[at] {
            let thing = Thing::of(awaited);
            let by_process = thing
                .as_ref()
                .is_some_and(|thing| !thing.is_before_process());
            let runs = job.runs(awaited).filter(|_| by_process);
            let to = match (runs, thing) {
                // What a driver makes is put by it, and exists already.
                (Some(to), _) if job.is_driver(to) => continue,
                (Some(to), _) if let Some(thread) = job.other_thread(to, awaited) => {
                    let whose = names.in_words(job.group(to), &[to].into());
                    self.node(Thing::method(awaited, thread, &whose))
                }
                (Some(to), _) => {
                    let is_alone = |at: usize| job.processes[at].tasks <= 1;
                    if of_all && awaited.is_result && is_alone(at) && is_alone(to) {
                        self.sure.insert((at, to));
                    }
                    to
                }
                (None, Some(thing)) => self.node(thing),
                (None, None) => continue,
            };
            if !self.graph.targets(at).contains(&to) {
                self.graph.add(at, to);
            }
        }
    }

    /// Adds those of the processes `holders` of its machine that are of the job, for the lock of a file that the member `at`
    /// waits for.
    fn add_lock_holders(&mut self, job: &Job, at: usize, holders: &[u32]) {
        let node_ip = &job.processes[at].node_ip;
        let is_holder = |one: &Process| {
            let holds = |pid: u64| holders.iter().any(|holder| u64::from(*holder) == pid);
            one.node_ip == *node_ip && node_ip.is_some() && one.pid.is_some_and(holds)
        };
        let processes = job.processes.iter().enumerate();
        for (holder, _) in processes.filter(|(_, one)| is_holder(one)) {
            self.graph.add(at, holder);
        }
    }

    /// Returns the node of `thing`, which several members may wait for.
    fn node(&mut self, thing: Thing) -> usize {
        let known = self.things.iter().position(|one| *one == thing);
        match known {
            Some(at) => self.processes + at,
            None => {
                self.things.push(thing);
                self.graph.add_node()
            }
        }
    }

    /// Returns the thing that is the node `at`.
    pub(super) fn thing(&self, at: usize) -> Option<&Thing> {
        self.things.get(at.checked_sub(self.processes)?)
    }

    /// Returns the gathering in which the member `at` waits.
    pub(super) fn gathering(&self, at: usize) -> Option<&Gathering> {
        self.gatherings.all.get(*self.gathered.get(&at)?)
    }

    /// Whether the member `at` seems to wait in one call too many.
    pub(super) fn is_surplus(&self, at: usize) -> bool {
        self.gatherings.surplus.contains(&at)
    }

    /// Says in what the member `at` differs from the others of its collective, behind `rank 3's`.
    pub(super) fn remark(&self, at: usize) -> Option<&str> {
        self.gatherings.remarks.get(&at).map(String::as_str)
    }

    /// Whether each of `nodes` waits for the only task of another one of them.
    pub(super) fn is_sure(&self, nodes: &[usize]) -> bool {
        nodes.iter().all(|from| {
            let targets = self.graph.targets(*from);
            targets.iter().all(|to| self.sure.contains(&(*from, *to)))
        })
    }
}
