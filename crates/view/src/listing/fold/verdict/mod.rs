//! One verdict about a job that hangs, or in which ranks differ, with its evidence.
//!
//! Pure. Reads the processes that the relay has [inspected](super::inspected), best with the objects that they wait for.
//!
//! 1. [`job`] reads the processes, and [`state`] finds what each of them does. [`locks`] follows its threads from a
//!    lock to the owner.
//! 2. [`edges`] builds the graph of who waits for whom: by [`gather`] within a group, with PyTorch's [`collectives`], by
//!    Ray's objects otherwise. [`things`] are waited for too, and are no inspected processes.
//! 3. [`roots`] are the ends of all waiting. A process that waits for another one is never a root, unless they wait for
//!    each other.
//! 4. [`decide`] chooses the kind of the verdict by how long the roots have not moved. If none holds others up,
//!    [`unheld`] does, and [`values`] compares variables.
//! 5. [`words`], [`waiting`], [`summary`], [`evidence`], [`next`] and [`shown`] write it down, as a [`report`].

mod collectives;
mod decide;
mod edges;
mod evidence;
mod gather;
mod gathering;
mod graph;
mod job;
mod locks;
mod next;
mod report;
mod roots;
mod shown;
mod state;
mod summary;
mod things;
mod unheld;
mod values;
mod waiting;
mod words;

use self::edges::WaitGraph;
use self::job::Job;
pub use self::report::{Judged, Kept, Verdict};
use self::roots::Found;
use self::state::Position;
use self::words::Words;
use super::inspected::InspectedTasks;
use super::who::Names;

impl Verdict {
    /// Returns the verdict about `inspected`. Computes: up to some seconds for as much as a relay answers.
    pub fn of(inspected: InspectedTasks) -> Self {
        let job = Job::of(inspected);
        let names = Names::new(job.who());
        let members = job.members.iter().zip(&job.processes);
        let positions: Vec<Position> = members
            .map(|(member, process)| Position::of(member, process))
            .collect();
        let waits = WaitGraph::of(&job, &names, &positions);
        let found = Found {
            job: &job,
            positions: &positions,
            waits: &waits,
        };
        let words = Words {
            found,
            names: &names,
        };
        decide::decide(words)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
