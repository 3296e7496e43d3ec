//! Reports of a session about its task to the lead of its family: whether it accepts requests, is paused or runs, and
//! what it asks of others.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::GroupMember;
use super::asking::{MAX_QUESTIONS, Report};
use super::leaving::{GroupTask, MemberState, Members, RequestChannel};
use ray_relay_ray::ray::registry::{Breakpoint, Location};

impl GroupMember {
    /// Reports that the task of this session asks the others of its job to stop with it.
    pub fn request_group_stop(&self) {
        if let Some(family) = self.families.lock().get(&self.name) {
            family.members.send_if_modified(|members| {
                let own = members.sessions.get_mut(&self.session);
                own.is_some_and(|own| !std::mem::replace(&mut own.asks, true))
            });
        }
    }

    /// Accepts requests of the lead from now on, for the task that this session holds at `breakpoint`.
    pub fn accept_requests(&mut self, breakpoint: &Arc<Breakpoint>) {
        let (questions, requests) = mpsc::channel(MAX_QUESTIONS);
        self.requests = Some(requests);
        let task = GroupTask {
            session: self.session,
            breakpoint: Arc::clone(breakpoint),
            stands: false,
            arriving: true,
            stops: 0,
            breaks: 0,
            since: 0,
            asks: false,
            followed: 0,
            rank: None,
            location: None,
        };
        self.update(|one| one.line = Some(RequestChannel { task, questions }));
    }

    /// Sets whether the task is paused.
    pub fn set_paused(&mut self, stands: bool) {
        if std::mem::replace(&mut self.stands, stands) == stands {
            return;
        }
        if let Some(family) = self.families.lock().get(&self.name) {
            family.members.send_modify(|members| {
                members.stops += u64::from(stands);
                let Some(one) = members.sessions.get_mut(&self.session) else {
                    return;
                };
                one.asks &= stands;
                if let Some(RequestChannel { task, .. }) = &mut one.line {
                    task.stands = stands;
                    task.stops += u64::from(stands);
                    task.arriving = false;
                    task.location = None;
                    if stands {
                        task.since = members.stops;
                    }
                }
            });
        }
    }

    /// Reports that the task has been running since before this session, which continues with it.
    pub fn note_running(&self) {
        self.update_task(|task| task.arriving = false);
    }

    /// Counts a stop that neither a user nor the relay had requested.
    pub fn note_own_stop(&self) {
        self.update_task(|task| task.breaks += 1);
    }

    /// Whether the lead's client sees a thread for all tasks, which should have the focus.
    pub fn is_led(&self) -> bool {
        self.members.borrow().led
    }

    /// Counts a stop that was not for the client of this session.
    pub fn note_followed(&self) {
        self.update_task(|task| task.followed += 1);
    }

    /// Sets the rank that the process of the task reported.
    pub fn set_rank(&self, rank: u32) {
        self.update_task(|task| task.rank = Some(rank));
    }

    /// Sets the location of the paused task.
    pub fn set_location(&self, location: Location) {
        self.update_task(|task| task.location = Some(Arc::new(location)));
    }

    /// Reports `text`, logged by a breakpoint in the task. Returns whether the lead's client will see it: one that
    /// reads too slowly does not.
    pub fn report_log(&self, text: String) -> bool {
        let session = self.session;
        self.report(Report::Logged { session, text })
    }

    /// Reports by `text` that the process has no rank, which a breakpoint needs. Returns whether the lead's client may
    /// see it.
    pub fn report_unranked(&self, text: String) -> bool {
        self.report(Report::Unranked { text })
    }

    fn report(&self, report: Report) -> bool {
        let known = self.families.lock();
        known
            .get(&self.name)
            .is_some_and(|family| family.reports.try_send(report).is_ok())
    }

    fn update_task(&self, what: impl FnOnce(&mut GroupTask)) {
        self.update(|one| {
            if let Some(line) = &mut one.line {
                what(&mut line.task);
            }
        });
    }

    fn update(&self, what: impl FnOnce(&mut MemberState)) {
        if let Some(family) = self.families.lock().get(&self.name) {
            let update = |members: &mut Members| members.sessions.get_mut(&self.session).map(what);
            family.members.send_modify(|members| _ = update(members));
        }
    }
}
