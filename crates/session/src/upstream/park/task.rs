//! The park of a subprocess follows its task: it belongs to the task's owner.

use serde_json::Value;
use tokio::time::Instant;

use super::{Park, has_task_of, park_id};
use crate::upstream::restored::Ownership;

impl Park<'_> {
    /// Whether the parent task is still held, if this is a subprocess: when its user resumes the task, or it expires,
    /// this park ends too.
    pub(super) fn has_task(&self) -> bool {
        let id = park_id(&self.live);
        let is_held = || {
            let list = self.context.registry.snapshot();
            list.find(id.breakpoint)
                .is_some_and(|task| task.holder().is_some())
        };
        has_task_of(self.context, &self.live) || self.is_apart && is_held()
    }

    /// Marks it as apart if, after restoring, its owner differs from the holder of its task.
    pub(super) fn apart(mut self: Box<Self>) -> Box<Self> {
        self.is_apart = !has_task_of(self.context, &self.live);
        self
    }

    /// Transfers it to the user who has taken over the parent task, also in case this process is lost.
    pub(super) async fn follow_task(&mut self) {
        if self.live.worker.holds() {
            return;
        }
        let list = self.context.registry.snapshot();
        let parks = &self.context.sessions.parks;
        let owner = parks.follow_task(&list, park_id(&self.live));
        let Some(owner) = owner.filter(|owner| !owner.is_same_person(&self.owner)) else {
            return;
        };
        self.owner = owner;
        let remaining = self.waiting.until;
        let remaining = remaining.saturating_duration_since(Instant::now());
        let keep = self
            .memory
            .keep_for(&self.owner, &self.live, Some(remaining));
        if let (Some(tenant), Some(keep)) = (self.tenant(), keep) {
            self.waiting.debugger.keep_by(Some(tenant), &keep).await;
        }
    }

    /// Its owner, as stored for the next process.
    fn tenant(&self) -> Option<Value> {
        let worker = &self.live.worker;
        let (breakpoint, process) = (worker.breakpoint(), worker.process());
        let list = self.context.registry.snapshot();
        let holder = match process {
            None => list
                .find(breakpoint.id)
                .and_then(|now| now.holder().cloned()),
            Some(_) => Some(self.session.parked(&self.owner, &self.view)),
        };
        Ownership::of(&self.owner, breakpoint, process, &holder?)
    }
}
