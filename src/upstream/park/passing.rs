//! A park goes to the process that has taken over; the park of a subprocess goes after its task, and is whose the task is.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{Park, has_task_of, park_id};
use crate::telemetry::metrics::Outcome;
use crate::upstream::restored::Ownership;

/// How long a process that ends waits until it can hand a park over.
const HANDED_OVER: Duration = Duration::from_secs(3);

impl Park<'_> {
    /// Whether the task is there that it belongs to, where it is a subprocess: the person who let that go, or whose time for it is
    /// over, has let this go too.
    pub(super) fn has_task(&self) -> bool {
        let id = park_id(&self.live);
        let is_held = || {
            let list = self.context.registry.snapshot();
            list.find(id.breakpoint)
                .is_some_and(|task| task.holder().is_some())
        };
        has_task_of(self.context, &self.live) || self.is_apart && is_held()
    }

    /// It was restored for another person than its task where the two do not agree.
    pub(super) fn apart(mut self: Box<Self>) -> Box<Self> {
        self.is_apart = !has_task_of(self.context, &self.live);
        self
    }

    /// Has it kept for the person who has taken over the task that it is a subprocess of, also where this process is lost.
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
        let left = self.waiting.until;
        let left = left.saturating_duration_since(Instant::now());
        let keep = self.memory.keep_for(&self.owner, &self.live, Some(left));
        if let (Some(tenant), Some(keep)) = (self.tenant(), keep) {
            self.waiting.debugger.keep_by(Some(tenant), &keep).await;
        }
    }

    /// Whose it is, as the next process has to know.
    fn tenant(&self) -> Option<Value> {
        let worker = &self.live.worker;
        let (breakpoint, process) = (worker.breakpoint(), worker.process());
        let list = self.context.registry.snapshot();
        let holder = match process {
            None => list
                .find(breakpoint.id)
                .and_then(|now| now.holder().cloned()),
            Some(_) => Some(self.session.parked(&self.owner, &self.left)),
        };
        Ownership::of(&self.owner, (breakpoint, process), &holder?)
    }

    /// This process ends: the one that has taken over has it, as soon as it can. Otherwise a keeper has it, or its task runs on.
    pub(super) async fn leave_with_process(mut self: Box<Self>) -> Outcome {
        let late = Instant::now() + HANDED_OVER;
        let takeover = &self.context.peers.takeover;
        while !self.stays_here && takeover.takes_parks() && Instant::now() < late {
            if self.pass_on() {
                return self.leave(Outcome::TakenOver, false).await;
            }
            // What its debugger was asked is answered, or the task of a subprocess has gone.
            tokio::select! {
                heard = self.waiting.debugger.next() => {
                    if let Some(outcome) = self.on_heard(heard).await {
                        return self.leave(outcome, false).await;
                    }
                }
                () = takeover.may_take_parks() => {}
            }
        }
        self.leave(Outcome::Drained, false).await
    }

    /// Hands it to the process that has taken over; `false`: it stays here, for now or for good.
    pub(super) fn pass_on(&mut self) -> bool {
        if self.stays_here || !self.waiting.debugger.is_quiet() || self.waits_for_task() {
            return false;
        }
        let Some(place) = self.context.peers.takeover.place_for_park() else {
            return false;
        };
        // Once, whatever comes of it: what another process cannot have is reached here.
        self.stays_here = true;
        let Some(tenant) = self.tenant() else {
            return false;
        };
        let id = park_id(&self.live);
        let parks = &self.context.sessions.parks;
        let debugger = &mut self.waiting.debugger;
        if id.process.is_none() {
            let named = parks.never_opened(id.breakpoint);
            named.into_iter().for_each(|process| debugger.name(process));
        }
        let left = self.waiting.until;
        let left = left.saturating_duration_since(Instant::now());
        let keep = self.memory.keep_for(&self.owner, &self.live, Some(left));
        let goes = match keep.and_then(|keep| debugger.hand_over(tenant, &keep)) {
            Some((connection, stored)) => {
                place.give(connection, &stored);
                true
            }
            None => debugger.abandon(),
        };
        if goes && id.process.is_none() {
            parks.passed_on(id.breakpoint);
        }
        goes
    }

    /// Whether the task is here that it is a subprocess of: who has that, or takes it over, finds both at one process.
    fn waits_for_task(&self) -> bool {
        let id = park_id(&self.live);
        let list = self.context.registry.snapshot();
        let parks = &self.context.sessions.parks;
        id.process.is_some() && !parks.is_without_task(&list, id)
    }
}
