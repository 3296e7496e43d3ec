//! Finding out whether the client is there: another client of the same person wants its worker.

use serde_json::json;

use super::ActiveSession;
use ray_relay_base::wire::dap::message::event;
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::session::liveness::Reply;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Has a client that is gone without a word noticed soon, while there is a `question` whether it is there: by something to
    /// send it that no person sees, as debugpy's own telemetry. A client that asks again is told how far that is.
    pub(super) fn doubt(&mut self, question: Option<u64>) {
        match question {
            None => self.splice.client().doubt(false),
            Some(question) if question > self.question => {
                self.question = question;
                self.splice.client().doubt(true);
                if !self.client.is_closed() {
                    let body = json!({"category": "telemetry", "output": "ray-relay", "data": {}});
                    self.tell(&event(Event::Output, body));
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
