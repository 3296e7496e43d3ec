//! Post-mortem stops: the debugger must stop for the exception, and where it was raised.

use serde_json::Value;

use super::ActiveSession;
use super::evaluating::Evaluating;
use crate::rewrite;
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::post_mortem::pausing_monitoring;
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::Reason;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Whether the stop is a post-mortem, as currently known: the reason may have become known after the claim.
    pub(super) fn post_mortem(&self) -> bool {
        let snapshot = self.context.registry.snapshot();
        snapshot
            .find(self.live.worker.breakpoint().id)
            .is_some_and(|b| b.reason == Reason::PostMortem)
    }

    /// Holds the client's `configurationDone` until the debugger is ready for the stop: evaluations are answered out of
    /// order.
    pub(super) fn prepare_post_mortem(&mut self, configured: Value) {
        if !self.filters_set {
            let mut filters = Value::Null;
            rewrite::break_on_uncaught(&mut filters);
            self.request(Command::SetExceptionBreakpoints, filters);
        }
        let evaluate = Command::Evaluate.as_str().as_bytes();
        self.splice.capture_answers(Side::Worker, evaluate);
        self.request(Command::Evaluate, pausing_monitoring());
        self.questions
            .evaluating
            .push_back(Evaluating::BeforeConfigured(configured));
    }

    /// Handles the answer to an evaluation by the relay.
    pub(super) fn evaluated(&mut self, answer: &Value) {
        match self.questions.evaluating.pop_front() {
            Some(Evaluating::Files(request)) => self.mapped(request, answer),
            Some(Evaluating::BeforeConfigured(configured)) if !self.live.is_leaving() => {
                self.splice.insert(Side::Worker, &frame(&configured));
            }
            Some(Evaluating::BeforeConfigured(_)) | None => {}
        }
    }
}
