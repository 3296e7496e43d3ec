//! Sessions whose worker the agent of its node parks when this relay is lost or shuts down.

use super::ActiveSession;
use super::phase::WorkerState;
use ray_relay_base::wire::dap::message::{event, notice};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::session::live::SessionEnd;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Ends the session because of `end` and leaves its worker to the agent, if that parks it; `false`: it does not.
    pub(super) fn park_at_agent(&mut self, end: &SessionEnd) -> bool {
        let Some(memory) = &self.memory else {
            return false;
        };
        let ends = self.worker > WorkerState::Attached || self.live.is_leaving();
        if ends || !self.splice.worker().is_kept() || !self.splice.worker_mut().abandon() {
            return false;
        }
        self.live.worker.leave_to_keeper();
        let keeps = span(memory.stay.remaining());
        // From now on the end of the worker's connection is no death.
        self.live.cut_off();
        let title = self.live.worker.breakpoint().title();
        let text = format!(
            "this session with {title} ends, because {end}; the task stays parked for {keeps}: attach again within that time, at whatever relay there is then"
        );
        self.send_to_client(&notice(&text, true));
        self.send_to_client(&event(Event::Terminated, serde_json::Value::Null));
        self.worker = WorkerState::Terminated;
        true
    }

    /// Message for a client whose route broke to a worker that the agent of its node parks; `None`: it does not.
    pub(super) fn route_lost(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        let title = self.live.worker.breakpoint().title();
        let keeps = span(memory.stay.remaining());
        self.splice.worker().was_kept().then(|| format!(
            "this session with {title} has ended, because the connection through the agent of its node broke; if that agent still runs, the task stays parked for {keeps}: attach again within that time"
        ))
    }
}
