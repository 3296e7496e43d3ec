//! When a task of a job stops on its own, decides which of the job's running sessions are asked to stop with it, once
//! for each stop.
//!
//! A stop that the relay or a user requested, or the end of a step, does not count. Pure.

use std::collections::{HashMap, HashSet};

use super::jobs::JobName;
use super::together::StopsTogether;
use ray_relay_session::session::family::GroupTask;

/// Rounds of stops of one cluster session.
pub(super) struct Rounds<'a> {
    stops: StopsTogether<'a>,
    /// Own stops of each session's task when the others were requested to stop.
    seen: HashMap<u64, u64>,
    /// Stops of each session's task when it was requested to stop: it is not requested again before the next one.
    requested: HashMap<u64, u64>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(stops: StopsTogether<'a>) -> Self {
        Self {
            stops,
            seen: HashMap::new(),
            requested: HashMap::new(),
        }
    }

    /// Whether `all` are several, or others stop with the only one.
    pub(super) fn are_for_several(&self, all: &[GroupTask]) -> bool {
        let others = |task: &GroupTask| self.stops.with(&task.breakpoint);
        all.len() > 1 || self.stops.are_wished() || all.iter().any(others)
    }

    /// Whether `task` runs and was about to stop with another; cancels that.
    pub(super) fn take_back(&mut self, task: &GroupTask) -> bool {
        let was_requested = self.requested.get(&task.session) == Some(&task.stops);
        if was_requested {
            self.requested.remove(&task.session);
        }
        !task.stands && (was_requested || task.arriving)
    }

    /// Those of `all` that must be asked to stop now.
    pub(super) fn due(&mut self, all: &[GroupTask]) -> Vec<GroupTask> {
        let known: HashSet<u64> = all.iter().map(|task| task.session).collect();
        self.seen.retain(|session, _| known.contains(session));
        self.requested.retain(|session, _| known.contains(session));
        let (mut jobs, mut stopped) = (HashSet::new(), HashSet::new());
        for task in all {
            let seen = self.seen.get(&task.session).copied().unwrap_or_default();
            if task.breaks > seen && (task.asks || self.stops.with(&task.breakpoint)) {
                self.seen.insert(task.session, task.breaks);
                stopped.insert(task.session);
                jobs.extend(JobName::of(&task.breakpoint));
            }
        }
        let is_requested =
            |task: &GroupTask| self.requested.get(&task.session) == Some(&task.stops);
        let is_due = |task: &&GroupTask| {
            let runs = !task.stands && !task.arriving && !stopped.contains(&task.session);
            let job = || JobName::of(&task.breakpoint);
            runs && !is_requested(task) && job().is_some_and(|job| jobs.contains(&job))
        };
        let due: Vec<GroupTask> = all.iter().filter(is_due).cloned().collect();
        let now = due.iter().map(|task| (task.session, task.stops));
        self.requested.extend(now);
        due
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attach_selector::read_selector;
    use ray_relay_access::identity::Principal;
    use ray_relay_ray::ray::testing::paused;

    /// A task of session `session` in `job`, with its number of stops and of breakpoint stops.
    fn task(session: u64, job: &str, is_stopped: bool, stops: u64, breaks: u64) -> GroupTask {
        let mut breakpoint = paused("step", session.try_into().unwrap());
        breakpoint.names_mut().job_id = Some(job.to_owned());
        GroupTask {
            session,
            breakpoint: breakpoint.into(),
            stands: is_stopped,
            arriving: false,
            stops,
            breaks,
            since: stops,
            asks: false,
            followed: 0,
            rank: None,
            location: None,
        }
    }

    fn due(rounds: &mut Rounds<'_>, all: &[GroupTask]) -> Vec<u64> {
        let due = rounds.due(all);
        due.iter().map(|task| task.session).collect()
    }

    fn rounds<'a>(principal: &'a Principal, block: &serde_json::Value) -> Rounds<'a> {
        let selector = read_selector(&json!({ "rayRelay": block })).unwrap();
        Rounds::new(StopsTogether::new(&selector, principal))
    }

    #[test]
    fn running_tasks_are_paused_once_per_stop_in_their_job() {
        let anonymous = Principal::anonymous();
        let mut rounds = rounds(&anonymous, &json!({"group": "job"}));
        let mut other_task = task(4, "02000000", false, 1, 0);
        let running = |session| task(session, "01000000", false, 1, 0);
        // A stop by the relay's pause or by a step does not stop other tasks.
        let tasks = [
            task(1, "01000000", true, 1, 0),
            running(2),
            running(3),
            other_task.clone(),
        ];
        assert_eq!(due(&mut rounds, &tasks), [0; 0]);
        let tasks = [
            task(1, "01000000", true, 2, 1),
            running(2),
            running(3),
            other_task.clone(),
        ];
        assert_eq!(due(&mut rounds, &tasks), [2, 3]);
        assert_eq!(due(&mut rounds, &tasks), [0; 0]);
        // A task with a new session stops because of the attach.
        other_task = task(5, "01000000", false, 0, 0);
        other_task.arriving = true;
        // The second stops by the pause, the third at its own breakpoint before it. Neither pauses the other.
        let tasks = [
            task(1, "01000000", false, 2, 1),
            task(2, "01000000", true, 2, 0),
            task(3, "01000000", true, 2, 1),
            other_task.clone(),
        ];
        assert_eq!(due(&mut rounds, &tasks), [1]);
        // The task has been resumed since. One that has just stopped is not paused again.
        let tasks = [
            task(1, "01000000", false, 3, 2),
            task(2, "01000000", false, 2, 0),
            task(3, "01000000", true, 2, 1),
            other_task,
        ];
        assert_eq!(due(&mut rounds, &tasks), [2]);
        // A task with a pending pause, for example in a collective, is not paused again.
        let tasks = [
            task(1, "01000000", true, 4, 2),
            task(2, "01000000", false, 2, 0),
            task(3, "01000000", true, 3, 2),
        ];
        assert_eq!(due(&mut rounds, &tasks), [0; 0]);
    }

    #[test]
    fn without_group_only_a_requesting_task_pauses_others() {
        let anonymous = Principal::anonymous();
        let mut rounds = rounds(&anonymous, &json!({"all": true}));
        let running = task(2, "01000000", false, 1, 0);
        let mut stopped = task(1, "01000000", true, 1, 1);
        assert_eq!(
            due(&mut rounds, &[stopped.clone(), running.clone()]),
            [0; 0]
        );
        // The client requests the stack a moment later.
        stopped.asks = true;
        assert_eq!(due(&mut rounds, &[stopped, running]), [2]);
    }
}
