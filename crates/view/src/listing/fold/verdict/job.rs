//! The job as the relay's answer shows it: the inspected processes, the idle and dead actors of their classes, and the objects
//! that are waited for.

use std::collections::{BTreeMap, BTreeSet};

use super::super::idle::{Absence, last_lines};
use super::super::inspected::InspectedTasks;
use super::super::location::is_library;
use super::super::member::{Member, frames};
use super::super::waits::{self, ObjectAnswer};
use super::super::who::Who;
use crate::listing::received::RowAnswer;
use ray_relay_base::wire::json::{typed, typed_at};
use ray_relay_base::wire::text::{replaced, shortened};
use ray_relay_ray::ray::look::Thread;

/// Processes and idle actors that are read: the relay sends no more.
const MAX_MEMBERS: usize = 512;
const MAX_IDLE: usize = 256;

/// Objects of one process.
const MAX_OBJECTS: usize = 8;

/// Characters of an id or a name.
const MAX_WORD_CHARS: usize = 200;

/// Hexadecimal digits of an object's id, and the end of the id of a task's first result.
const ID_DIGITS: usize = 56;
const FIRST_RESULT_SUFFIX: &str = "01000000";

/// The role of a process in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It runs tasks or methods.
    Worker,
    /// It started the job, and usually waits for all others.
    Driver,
}

/// A process, as Ray lists it.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) role: Role,
    pub(super) worker_id: Option<String>,
    pub(super) pid: Option<u64>,
    pub(super) node_ip: Option<String>,
    /// The name of its function or class, for `--running`.
    pub(super) function: Option<String>,
    /// The task or method that it runs, or ran last.
    pub(super) method: Option<String>,
    pub(super) breakpoint: Option<String>,
    pub(super) world_size: Option<u32>,
    /// Tasks that run in it.
    pub(super) tasks: usize,
    /// If no task runs in it: why.
    pub(super) absence: Option<Absence>,
    /// The last lines that it has written, if it has died.
    pub(super) last_lines: Vec<String>,
}

/// The task whose result is waited for, in Ray's terms.
#[derive(Debug, Clone, Default)]
pub(super) struct Awaited {
    /// The object and its task, in words.
    pub(super) words: String,
    pub(super) task: Option<String>,
    pub(super) state: Option<String>,
    pub(super) worker_id: Option<String>,
    pub(super) pid: Option<u64>,
    pub(super) is_known: bool,
    pub(super) owner_gone: bool,
    /// Whether it is certainly the task's result, and not an object that the task has put.
    pub(super) is_result: bool,
}

/// The job. Nodes of the graph are numbered as `processes`: the members first, then the idle actors.
pub(super) struct Job {
    pub(super) members: Vec<Member>,
    pub(super) processes: Vec<Process>,
    idle: Vec<Who>,
    /// The objects of each member.
    pub(super) objects: Vec<Vec<Awaited>>,
    /// Processes that fit and were not inspected.
    pub(super) left_out: usize,
    by_worker: BTreeMap<String, usize>,
}

impl Job {
    /// Reads the processes and actors of `inspected`.
    pub(super) fn of(mut inspected: InspectedTasks) -> Self {
        let all = (inspected.processes.len(), inspected.idle.len());
        inspected.processes.truncate(MAX_MEMBERS);
        inspected.idle.truncate(MAX_IDLE);
        let InspectedTasks {
            processes: inspected,
            idle: idle_rows,
            left_out,
        } = inspected;
        let left_out = left_out
            .saturating_add(all.0.saturating_sub(MAX_MEMBERS))
            .saturating_add(all.1.saturating_sub(MAX_IDLE));
        let first = inspected.iter().filter_map(|one| one.tasks.first());
        let rows = first.chain(&idle_rows);
        let jobs: BTreeSet<&str> = rows.filter_map(|row| typed_at(row, "job_id")).collect();
        let several_jobs = jobs.len() > 1;
        let objects = inspected.iter().map(|one| {
            let objects = one.waits_for.iter().take(MAX_OBJECTS);
            objects.map(|object| Awaited::of(&typed(object))).collect()
        });
        let objects = objects.collect();
        let running = inspected.iter().map(|one| {
            let all: Vec<RowAnswer<'_>> = one.tasks.iter().map(typed).collect();
            Process::of(&all)
        });
        let idle = idle_rows.iter().map(|row| Process {
            absence: Some(Absence::read(row)),
            method: typed_at::<Option<&str>>(row, "last_method").map(str::to_owned),
            last_lines: last_lines(row),
            ..Process::of(&[typed(row)])
        });
        let mut processes: Vec<Process> = running.chain(idle).collect();
        let members = inspected
            .into_iter()
            .map(|one| Member::of(&one.tasks, one.look, several_jobs));
        let members: Vec<Member> = members.collect();
        for (process, member) in processes.iter_mut().zip(&members) {
            let of_look = member.look.as_ref().ok().and_then(|look| look.world_size);
            process.world_size = process.world_size.or(of_look);
        }
        let keyed = processes.iter().enumerate();
        let by_worker = keyed.filter_map(|(at, process)| Some((process.worker_id.clone()?, at)));
        let by_worker = by_worker.collect();
        let who = |row| Who::read(&typed(row), several_jobs);
        Self {
            members,
            objects,
            idle: idle_rows.iter().map(who).collect(),
            processes,
            left_out,
            by_worker,
        }
    }

    /// Returns the identities of all nodes.
    pub(super) fn who(&self) -> impl Iterator<Item = &Who> {
        self.members
            .iter()
            .map(|member| &member.who)
            .chain(&self.idle)
    }

    /// Returns the group of a node.
    pub(super) fn group(&self, at: usize) -> &str {
        let member = self.members.get(at).map(|member| &member.who);
        let who = member.or_else(|| self.idle.get(at.checked_sub(self.members.len())?));
        who.map_or("", |who| &who.group)
    }

    /// Returns the rank of a node.
    pub(super) fn rank(&self, at: usize) -> Option<u32> {
        self.who().nth(at)?.number
    }

    /// Whether the node is an actor that runs no method, and has not died.
    pub(super) fn is_idle(&self, at: usize) -> bool {
        let absence = self.processes.get(at).and_then(|one| one.absence.as_ref());
        matches!(absence, Some(Absence::Idle(_)))
    }

    pub(super) fn has_died(&self, at: usize) -> bool {
        let absence = self.processes.get(at).and_then(|one| one.absence.as_ref());
        matches!(absence, Some(Absence::Dead(_)))
    }

    /// Whether the node took part in what the nodes `others` run: it has died meanwhile, or one of them runs the method
    /// that it ran last.
    pub(super) fn took_part(&self, at: usize, others: &[usize]) -> bool {
        let Some(process) = self.processes.get(at) else {
            return false;
        };
        let runs_it = |at: &usize| {
            let method = self.processes.get(*at).and_then(|one| one.method.as_ref());
            method.is_some() && method == process.method.as_ref()
        };
        match process.absence {
            Some(Absence::Dead(_)) => true,
            // Without ranks they may be consumers, of which one has ended before the others.
            Some(Absence::Idle(_)) => self.rank(at).is_some() && others.iter().any(runs_it),
            None => false,
        }
    }

    pub(super) fn is_driver(&self, at: usize) -> bool {
        let process = self.processes.get(at);
        process.is_some_and(|process| process.role == Role::Driver)
    }

    /// Returns the thread of the member `at` that runs the method of `awaited`, if several run there and another one
    /// stands for the member.
    pub(super) fn other_thread(&self, at: usize, awaited: &Awaited) -> Option<&Thread> {
        let member = self.members.get(at)?;
        let is_one_of_several = self.processes.get(at)?.tasks > 1;
        let method = awaited.task.as_deref().filter(|_| is_one_of_several)?;
        let method = method.rsplit('.').next()?;
        let runs_it = |thread: &&&Thread| {
            let own = frames(thread).iter().filter(|one| !is_library(&one.file));
            own.map(|one| one.function.rsplit('.').next())
                .any(|one| one == Some(method))
        };
        let threads = member.threads(false);
        let mut running = threads.iter().filter(runs_it);
        let found = *running.next()?;
        let is_other = threads.first().is_some_and(|first| first.id != found.id);
        (is_other && running.next().is_none()).then_some(found)
    }

    /// Returns the node that runs the task of `awaited`.
    pub(super) fn runs(&self, awaited: &Awaited) -> Option<usize> {
        let by_id = awaited.worker_id.as_ref();
        if let Some(at) = by_id.and_then(|id| self.by_worker.get(id)) {
            return Some(*at);
        }
        // An older relay does not say in which worker: its process id tells, if it occurs once.
        let pid = awaited.pid.filter(|_| by_id.is_none())?;
        let mut found = self
            .processes
            .iter()
            .enumerate()
            .filter(|(_, process)| process.pid == Some(pid));
        let (at, _) = found.next()?;
        found.next().is_none().then_some(at)
    }
}

impl Process {
    /// Reads the `rows` of the tasks that run in it.
    fn of(rows: &[RowAnswer<'_>]) -> Self {
        let first = rows.first();
        let word = |text: Option<&str>| text.map(|text| shortened(&replaced(text), MAX_WORD_CHARS));
        let of = |key: fn(&RowAnswer<'_>) -> Option<String>| first.and_then(key);
        let is_driver = first.is_some_and(|row| row.what == Some("driver"));
        Self {
            role: if is_driver {
                Role::Driver
            } else {
                Role::Worker
            },
            worker_id: word(first.and_then(|row| row.worker_id)),
            pid: first.and_then(|row| row.pid),
            node_ip: word(first.and_then(|row| row.node_ip)),
            function: of(|row| row.group.or(row.name).map(str::to_owned)),
            method: of(|row| row.name.map(str::to_owned)),
            breakpoint: word(rows.iter().find_map(|row| row.breakpoint)),
            world_size: first.and_then(|row| row.world_size),
            tasks: rows.len(),
            absence: None,
            last_lines: Vec::new(),
        }
    }
}

impl Awaited {
    fn of(object: &ObjectAnswer<'_>) -> Self {
        let word = |text: Option<&str>| text.map(|text| shortened(&replaced(text), MAX_WORD_CHARS));
        let task = object.task.unwrap_or_default();
        let is_put = |id: &str| id.len() == ID_DIGITS && !id.ends_with(FIRST_RESULT_SUFFIX);
        Self {
            words: waits::sentence(object),
            task: word(task.name),
            state: word(task.state.or(object.state)),
            worker_id: word(task.worker_id),
            pid: task.pid,
            is_known: object.unknown.is_none(),
            owner_gone: object.owner_gone,
            is_result: object.object_id.is_some_and(|id| !is_put(id)),
        }
    }
}
