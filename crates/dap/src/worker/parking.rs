//! Parks a session whose client is lost, and tells the client of a resumed one what it has missed.

use serde_json::{Value, json};

use super::phase::ClientState;
use super::reverse_requests::park_subprocesses;
use super::{ActiveSession, HALF_CLOSED_TIMEOUT};
use crate::rewrite::is_set;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::message::{Request, arguments_of, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::unattended::{self, Unattended};
use ray_relay_session::session::GroupMember;
use ray_relay_session::session::live::SessionEnd;
use ray_relay_session::session::parks::{ParkShare, ParkView};
use ray_relay_session::session::state::SessionState;
use ray_relay_session::upstream::park::{self, Park, ResumableDebugger};

/// Messages due to the client of a resumed session, once it has configured.
pub(crate) struct Resumption {
    attach: Request,
    kept: StoredMessages,
    /// The park as it was; `None`: the next one starts anew.
    view: Option<ParkView>,
}

impl Resumption {
    pub(super) fn new(attach: &Request, kept: StoredMessages, view: Option<ParkView>) -> Self {
        Self {
            attach: Request {
                seq: attach.seq.clone(),
                command: Command::Attach.as_str().to_owned(),
                arguments: Value::Null,
            },
            kept,
            view,
        }
    }

    /// Stores a stop that comes before the client has configured.
    pub(super) fn kept_stop(&mut self, stop: &[u8]) {
        self.kept.stopped(stop);
    }
}

impl<'a, S: PeerStream> ActiveSession<'a, S> {
    /// Whether the session can be parked: its end was not requested, and its debugger is in a state where another
    /// client can resume. A partial message of the lost client does not count, because it was not forwarded.
    pub(super) fn may_park(&self) -> bool {
        let ends = self.live.is_leaving() || self.live.is_cut_off();
        let debugger = self.traffic.splice.worker();
        self.parking.is_on()
            // A task that has not stopped yet would stop later, without the client that requested it.
            && !self.task.pausing.is_for_client()
            && !ends
            && self.worker.is_attached()
            && park::has_task_of(self.context, &self.live)
            && park::outlives_drain(self.context, debugger.is_kept())
            && debugger.stays()
    }

    /// Parks the session, audited.
    ///
    /// # Errors
    /// The session itself, which then ends: the limit of parks is reached, or the park cannot be audited.
    pub(super) async fn parked(mut self: Box<Self>) -> Result<Box<Park<'a>>, Box<Self>> {
        // Without a reservation, `slot` below decides.
        let _ = self.reserve_slot();
        let Some(memory) = self.parking.memory.take() else {
            return Err(self);
        };
        let reserved = self.parking.take_slot();
        // A client that has not configured has changed nothing: the park stays as it was.
        let as_it_was = self.resumption.as_ref().and_then(|one| one.view.clone());
        let now = Timestamp::now();
        let view = as_it_was.unwrap_or_else(|| self.session.park_view(memory.stay.until(now)));
        let keeps = now.until(view.until);
        let placed = park::slot(self.context, &self.live, keeps, reserved);
        let Some(slot) = placed.await else {
            return Err(self);
        };
        let Self {
            context,
            session,
            live,
            traffic,
            resumption,
            task,
            ..
        } = *self;
        // A client that was not notified of the stops yet took over a moment ago.
        let kept = resumption.map_or_else(
            || StoredMessages::of(task.threads),
            |resumption| resumption.kept,
        );
        let rules = unattended::rules(context.config.dap.max_frame);
        let mut debugger = Unattended::splice(traffic.splice.without_client(rules), kept);
        if let Some(keep) = memory.keep(&live, Some(keeps)) {
            debugger.keep_by(None, &keep).await;
        }
        let protocol = SessionProtocol::Dap;
        let memory = *memory;
        let debugger = ResumableDebugger { debugger, memory };
        Ok(Park::begin(
            context, session, protocol, live, slot, view, debugger,
        ))
    }

    /// Reports the paused threads to the client that has configured, and answers what debugpy would not answer again:
    /// the `configurationDone` of `request`, and the `attach`.
    pub(super) async fn resumed(&mut self, request: &Request, resumption: Resumption) {
        let Resumption { attach, kept, .. } = resumption;
        self.traffic.send_to_client(&request.success(Value::Null));
        self.traffic.send_to_client(&attach.success(Value::Null));
        self.session
            .set_state(SessionProtocol::Dap, SessionState::Attached);
        if kept.runs()
            && let Some(member) = &self.member
        {
            member.note_running();
        }
        for stop in kept.stops() {
            self.on_worker(stop.into()).await;
        }
    }

    /// Parks the task when the client disconnects with `disconnect`. The client asks for that by `suspendDebuggee`. A
    /// resumed session is parked too if its client has not configured, as after an inspection of a park at an agent: it
    /// has resumed nothing. If the session cannot be parked, it continues.
    pub(super) fn stay_parked(&mut self, mut disconnect: Value) {
        let suspends = is_set(arguments_of(&disconnect), "suspendDebuggee");
        let request = self.client.take_disconnect(&mut disconnect);
        let reserved = self.reserve_slot();
        if let Some(request) = request {
            self.traffic.send_to_client(&match &reserved {
                Ok(()) => request.success(Value::Null),
                Err(why) => request.failure(&format!(
                    "the task cannot be parked, because {why}; the session goes on"
                )),
            });
        }
        if reserved.is_ok() {
            self.client.state = ClientState::Lost;
            self.live.end_within(HALF_CLOSED_TIMEOUT, Outcome::Client);
            if suspends {
                park_subprocesses(self.context, &self.live);
            }
        }
    }

    /// Ends the session for its client because of `why`, and parks the worker; `false`: it cannot be parked.
    /// `important`: see [`notice`].
    pub(super) fn leave_parked(&mut self, why: &str, important: bool) -> bool {
        let keeps = self.parking.memory.as_ref();
        let keeps = keeps.map(|memory| memory.stay.remaining());
        let (Ok(()), Some(keeps)) = (self.reserve_slot(), keeps) else {
            return false;
        };
        let title = self.live.worker.title();
        let text = format!(
            "this session with {title} ends, because {why}; the task stays parked for {}: attach again within that time",
            span(keeps)
        );
        self.traffic.send_to_client(&notice(&text, important));
        self.traffic.send_terminated();
        self.live.stay();
        self.client.state = ClientState::Lost;
        true
    }

    /// Reserves the slot of the session's park.
    ///
    /// # Errors
    /// Why it cannot be parked, as a clause.
    pub(super) fn reserve_slot(&mut self) -> Result<(), String> {
        if !self.parking.is_on() {
            let why = "neither the policy nor `[park] for` nor `rayRelay.onClose` turns parking on";
            return Err(why.to_owned());
        }
        if !park::has_task_of(self.context, &self.live) {
            return Err("the session with the task that it belongs to has ended".to_owned());
        }
        if !self.may_park() {
            return Err("its debugger is not attached, or is being left".to_owned());
        }
        let family = self.member.as_deref().map(GroupMember::family);
        self.parking.reserve_slot(self.context, &self.live, family)
    }

    /// Reserves a share in case the client is lost, and notifies the client if there is none.
    pub(super) fn ensure_share(&mut self) {
        let family = self.member.as_deref().map(GroupMember::family);
        let ensured = self.parking.ensure_share(self.context, &self.live, family);
        if let Err(why) = ensured {
            let text = format!(
                "if the connection of this session is lost, its task runs on: {why}; end one of those"
            );
            self.traffic.send_to_client(&notice(&text, false));
        }
    }

    /// Takes over the `share` of the park, unless that may belong to a cluster session whose other tasks are still
    /// parked.
    pub(super) fn inherit(&mut self, share: Option<Box<ParkShare>>) {
        let principal = self.live.worker.principal();
        let share = share.filter(|share| self.member.is_none() && share.is_of(principal));
        if let Some(share) = share {
            self.parking.inherit(share);
        }
    }

    /// Ends the session because of `end` and leaves its worker to the agent of its node, if that parks it when this
    /// relay is lost or shuts down; `false`: it does not.
    pub(super) fn park_at_agent(&mut self, end: &SessionEnd) -> bool {
        let Some(memory) = &self.parking.memory else {
            return false;
        };
        let ends = !self.worker.is_attached() || self.live.is_leaving();
        let splice = &mut self.traffic.splice;
        if ends || !splice.worker().is_kept() || !splice.detaching_worker().abandon() {
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
        self.traffic.send_to_client(&notice(&text, true));
        self.notify_terminated();
        true
    }

    /// Message for a client whose route broke to a worker that the agent of its node parks; `None`: it does not.
    pub(super) fn route_lost(&self) -> Option<String> {
        let memory = self.parking.memory.as_ref()?;
        let title = self.live.worker.breakpoint().title();
        let keeps = span(memory.stay.remaining());
        self.traffic.splice.worker().was_kept().then(|| format!(
            "this session with {title} has ended, because the connection through the agent of its node broke; if that agent still runs, the task stays parked for {keeps}: attach again within that time"
        ))
    }

    /// Sends the first messages to the new client: that it may configure, and what it has missed.
    pub(super) async fn send_missed(
        &mut self,
        whose: &str,
        duration_text: &str,
        visits: bool,
        refused: bool,
    ) {
        // A prompt that stays adopts the breakpoints of the previous one.
        self.traffic
            .send_to_client(&event(Event::Initialized, json!({"resumed": !visits})));
        let title = self.live.worker.title();
        let text =
            format!("this resumes {whose} session with {title}; it was parked{duration_text}");
        self.traffic.send_to_client(&notice(&text, false));
        if refused {
            let text = "its debugger did not answer, so path mappings, justMyCode and the other settings of `attach` stay those of that session; to change them, disconnect and attach at another stop";
            self.traffic.send_to_client(&notice(text, true));
        }
        let Some(mut resumption) = self.resumption.take() else {
            return;
        };
        let (cut, messages) = resumption.kept.messages();
        if cut > 0 {
            let text = format!("{cut} messages of output were dropped meanwhile");
            self.traffic.send_to_client(&notice(&text, false));
        }
        for message in messages {
            self.on_worker(message.into()).await;
        }
        self.resumption = Some(resumption);
    }
}
