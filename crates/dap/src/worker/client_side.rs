//! The client of a session: how it disconnects, and whether it is still there.

use serde_json::{Value, json};

use super::opening::Opening;
use super::phase::ClientState;
use super::traffic::Traffic;
use crate::attach_selector::OnClose;
use crate::client::DisconnectMethod;
use crate::messages::{self, FromClient};
use ray_relay_base::wire::dap::message::{Request, event, request, responds_to};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::session::Session;
use ray_relay_session::session::liveness::Reply;

/// The client of a session, apart from its connection.
pub(super) struct ClientSide {
    pub(super) state: ClientState,
    /// How it disconnects.
    pub(super) disconnect_method: DisconnectMethod,
    /// Fate of the task when it disconnects, if it has chosen one.
    pub(super) on_close: Option<OnClose>,
    /// Whether it selects each thread that starts.
    pub(super) selects_threads: bool,
    /// Whether it has set exception filters.
    pub(super) filters_set: bool,
    /// Its last disconnect request, as it was sent.
    disconnect: Option<Box<DisconnectRequest>>,
    /// The last probe that was sent to it.
    last_probe: u64,
}

/// A disconnect request of the client, as it was sent.
struct DisconnectRequest {
    request: Request,
    answered: bool,
}

impl DisconnectRequest {
    /// Parses one that is not answered yet.
    fn read(message: &mut Value) -> Option<Box<Self>> {
        let request = Request::read(message)?;
        Some(Box::new(Self {
            request,
            answered: false,
        }))
    }
}

impl ClientSide {
    /// The client that has sent `opening`.
    pub(super) fn new(opening: &Opening) -> Self {
        Self {
            state: ClientState::default(),
            disconnect_method: opening.disconnect_method,
            on_close: opening.on_close,
            selects_threads: opening.quirks.selects_threads,
            filters_set: false,
            disconnect: None,
            last_probe: 0,
        }
    }

    /// Replaces `terminate` by a disconnect for a client that has no other way to disconnect: the task resumes,
    /// whatever the client's rights.
    pub(super) fn as_disconnect(&mut self, mut message: Value) -> Value {
        if self.disconnect_method != DisconnectMethod::Terminate
            || messages::Request::of_message(&message).handling != FromClient::Terminate
        {
            return message;
        }
        let seq = message.get("seq").unwrap_or(&Value::Null);
        let arguments = json!({"terminateDebuggee": false});
        let disconnect = request(seq.clone(), Command::Disconnect, arguments);
        self.disconnect = DisconnectRequest::read(&mut message);
        disconnect
    }

    /// Records the disconnect request `message`, which goes to the worker.
    pub(super) fn note_disconnect(&mut self, message: &Value) {
        match &mut self.disconnect {
            Some(noted) if message.get("seq") == Some(&noted.request.seq) => noted.answered = false,
            known => *known = DisconnectRequest::read(&mut message.clone()),
        }
    }

    /// Takes the disconnect request in `message`, as the client has sent it.
    pub(super) fn take_disconnect(&mut self, message: &mut Value) -> Option<Request> {
        match self.disconnect.take() {
            Some(known) => Some(known.request),
            None => Request::read(message),
        }
    }

    /// Records that the worker's `answer` is the one to the disconnect request, and returns the command that the client
    /// has sent; `None`: it answers another.
    pub(super) fn disconnect_answered(&mut self, answer: &Value) -> Option<&str> {
        let known = self.disconnect.as_mut()?;
        if !responds_to(answer, &known.request.seq) {
            return None;
        }
        known.answered = true;
        Some(&known.request.command)
    }

    /// Whether it has the answer to its `disconnect`.
    pub(super) fn has_disconnected(&self) -> bool {
        self.disconnect.as_deref().is_some_and(|known| {
            known.answered && known.request.known() == Some(Command::Disconnect)
        })
    }

    /// Returns its disconnect request, if that has no answer.
    pub(super) fn unanswered_disconnect(self) -> Option<Request> {
        let known = self.disconnect.filter(|known| !known.answered);
        known.map(|known| known.request)
    }

    /// Probes whether it is still there, because another client of the same user wants its worker. While a `question`
    /// is pending, detects soon that it is lost, by sending something that no user sees, like debugpy's own telemetry.
    /// A repeated question returns the current state.
    pub(super) fn probe<S: PeerStream>(
        &mut self,
        question: Option<u64>,
        session: &Session,
        traffic: &mut Traffic<S>,
    ) {
        match question {
            None => traffic.splice.client().doubt(false),
            Some(question) if question > self.last_probe => {
                self.last_probe = question;
                traffic.splice.client().doubt(true);
                if !self.state.is_closed() {
                    let body = json!({"category": "telemetry", "output": "ray-relay", "data": {}});
                    traffic.send_to_client(&event(Event::Output, body));
                }
            }
            Some(_) if self.state.is_closed() => {}
            Some(question) => {
                let reply = match traffic.splice.client().has_answered() {
                    Some(true) => Reply::There,
                    None if traffic.splice.has_sent_all() => Reply::Sent,
                    Some(false) | None => Reply::Unknown,
                };
                session.liveness().set_reply(question, reply);
            }
        }
    }
}
