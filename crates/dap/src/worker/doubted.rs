//! Probes whether the client is still there: another client of the same user wants its worker.

use serde_json::json;

use super::ActiveSession;
use ray_relay_base::wire::dap::message::event;
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::session::liveness::Reply;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Detects a lost client soon while a `question` is pending, by sending something that no user sees, like debugpy's
    /// own telemetry. A repeated question returns the current state.
    pub(super) fn doubt(&mut self, question: Option<u64>) {
        match question {
            None => self.splice.client().doubt(false),
            Some(question) if question > self.question => {
                self.question = question;
                self.splice.client().doubt(true);
                if !self.client.is_closed() {
                    let body = json!({"category": "telemetry", "output": "ray-relay", "data": {}});
                    self.send_to_client(&event(Event::Output, body));
                }
            }
            Some(_) if self.client.is_closed() => {}
            Some(question) => {
                let reply = match self.splice.client().has_answered() {
                    Some(true) => Reply::There,
                    None if self.splice.has_sent_all() => Reply::Sent,
                    Some(false) | None => Reply::Unknown,
                };
                self.session.liveness().set_reply(question, reply);
            }
        }
    }
}
