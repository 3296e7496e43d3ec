//! Parks a session whose client is lost, and tells the client of a resumed one what it has missed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::phase::{ClientState, WorkerState};
use super::{ActiveSession, HALF_CLOSED_TIMEOUT, Opening};
use crate::attach_selector::OnClose;
use crate::rewrite::is_set;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::message::{Request, arguments_of, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::unattended::{self, Unattended};
use ray_relay_session::context::Context;
use ray_relay_session::session::live::Begun;
use ray_relay_session::session::parks::{ParkShare, ParkView};
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{GroupMember, leaving};
use ray_relay_session::upstream::park::{self, Park, ResumeState};

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

/// The retained state of the session `begun` by this `opening`, from the debugger's `capabilities` and the fingerprint
/// of its `attach`. `None` if it will not be parked.
pub(super) fn remembered(
    context: &Context,
    begun: &Begun<'_>,
    opening: &Opening,
    capabilities: &Value,
    attach: u64,
) -> Option<Box<ResumeState>> {
    if opening.on_close == Some(OnClose::Continue) {
        return None;
    }
    let keeps = park::keeps(context, &begun.permit, opening.park_for)?;
    let family = opening.member.as_ref().map(GroupMember::family);
    let family = family.or(opening.group.as_deref());
    let task = park::task_of(begun.permit.breakpoint(), begun.permit.process());
    let memory = ResumeState::new(keeps.into(), capabilities, attach);
    let memory = memory.in_family(family.or(task.as_deref()));
    Some(Box::new(memory))
}

impl<'a, S: PeerStream> ActiveSession<'a, S> {
    /// Whether the session can be parked: its end was not requested, and its debugger is in a state where another
    /// client can resume. A partial message of the lost client does not count, because it was not forwarded.
    pub(super) fn may_park(&self) -> bool {
        let ends = self.live.is_leaving() || self.live.is_cut_off();
        self.memory.is_some()
            // A task that has not stopped yet would stop later, without the client that requested it.
            && self.pausing.is_none()
            && !ends
            && self.worker == WorkerState::Attached
            && park::has_task_of(self.context, &self.live)
            && park::outlives_drain(self.context, self.splice.worker().is_kept())
            && self.splice.worker().stays()
    }

    /// Parks the session, audited.
    ///
    /// # Errors
    /// The session itself, which then ends: the limit of parks is reached, or the park cannot be audited.
    pub(super) async fn parked(mut self: Box<Self>) -> Result<Box<Park<'a>>, Box<Self>> {
        // Without a reservation, `slot` below decides.
        let _ = self.reserve_slot();
        let Some(memory) = self.memory.take() else {
            return Err(self);
        };
        let reserved = self.slot.take().map(|slot| *slot);
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
            splice,
            resumption,
            stands,
            ..
        } = *self;
        // A client that was not notified of the stops yet took over a moment ago.
        let kept =
            resumption.map_or_else(|| StoredMessages::of(stands), |resumption| resumption.kept);
        let rules = unattended::rules(context.config.dap.max_frame);
        let mut debugger = Unattended::splice(splice.without_client(rules), kept);
        if let Some(keep) = memory.keep(&live, Some(keeps)) {
            debugger.keep_by(None, &keep).await;
        }
        let protocol = SessionProtocol::Dap;
        Ok(Park::begin(
            (context, session),
            protocol,
            live,
            slot,
            view,
            (debugger, *memory),
        ))
    }

    /// Reports the paused threads to the client that has configured, and answers what debugpy would not answer again:
    /// the `configurationDone` of `request`, and the `attach`.
    pub(super) async fn resumed(&mut self, request: &Request, resumption: Resumption) {
        let Resumption { attach, kept, .. } = resumption;
        self.send_to_client(&request.success(Value::Null));
        self.send_to_client(&attach.success(Value::Null));
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
        let request = match self.disconnect_request.take() {
            Some(known) => Some(known.request),
            None => Request::read(&mut disconnect),
        };
        let reserved = self.reserve_slot();
        if let Some(request) = request {
            self.send_to_client(&match &reserved {
                Ok(()) => request.success(Value::Null),
                Err(why) => request.failure(&format!(
                    "the task cannot be parked, because {why}; the session goes on"
                )),
            });
        }
        if reserved.is_ok() {
            self.client = ClientState::Lost;
            self.live.end_within(HALF_CLOSED_TIMEOUT, Outcome::Client);
            if suspends {
                self.park_subprocesses();
            }
        }
    }

    /// Ends the session for its client because of `why`, and parks the worker; `false`: it cannot be parked.
    /// `important`: see [`notice`].
    pub(super) fn leave_parked(&mut self, why: &str, important: bool) -> bool {
        let keeps = self.memory.as_ref().map(|memory| memory.stay.remaining());
        let (Ok(()), Some(keeps)) = (self.reserve_slot(), keeps) else {
            return false;
        };
        let title = self.live.worker.title();
        let text = format!(
            "this session with {title} ends, because {why}; the task stays parked for {}: attach again within that time",
            span(keeps)
        );
        self.send_to_client(&notice(&text, important));
        self.send_to_client(&event(Event::Terminated, Value::Null));
        self.live.stay();
        self.client = ClientState::Lost;
        true
    }

    /// Reserves the slot of the session's park.
    ///
    /// # Errors
    /// Why it cannot be parked, as a clause.
    pub(super) fn reserve_slot(&mut self) -> Result<(), String> {
        if self.memory.is_none() {
            let why = "neither the policy nor `[park] for` nor `rayRelay.onClose` turns parking on";
            return Err(why.to_owned());
        }
        if !park::has_task_of(self.context, &self.live) {
            return Err("the session with the task that it belongs to has ended".to_owned());
        }
        if !self.may_park() {
            return Err("its debugger is not attached, or is being left".to_owned());
        }
        if self.slot.is_none() {
            let share = match self.share.take() {
                Some(share) => share,
                None => self.new_share()?,
            };
            let slot = park::reserve(self.context, &self.live, share)?;
            self.slot = Some(Box::new(slot));
        }
        Ok(())
    }

    fn new_share(&self) -> Result<Box<ParkShare>, String> {
        let family = self.member.as_deref().map(GroupMember::family);
        park::share(self.context, &self.live, family)
    }

    /// Reserves a share in case the client is lost, and notifies the client if there is none.
    pub(super) fn ensure_share(&mut self) {
        if self.memory.is_none() || self.share.is_some() {
            return;
        }
        match self.new_share() {
            Ok(share) => self.share = Some(share),
            Err(why) => {
                let text = format!(
                    "if the connection of this session is lost, its task runs on: {why}; end one of those"
                );
                self.send_to_client(&notice(&text, false));
            }
        }
    }

    /// Takes over the `share` of the park, unless that may belong to a cluster session whose other tasks are still
    /// parked.
    pub(super) fn inherit(&mut self, share: Option<Box<ParkShare>>) {
        let principal = self.live.worker.principal();
        let share = share.filter(|share| self.member.is_none() && share.is_of(principal));
        self.share = share.or(self.share.take());
    }

    /// Has the client open the sessions with subprocesses of the task as well, including those whose clients are only
    /// now found lost.
    pub(super) fn find_subprocesses(&mut self) {
        if !self.live.worker.holds() {
            return;
        }
        self.children.look_again();
        let (worker, context) = (&self.live.worker, self.context);
        let table = Arc::clone(&context.sessions.table);
        let (id, principal) = (worker.breakpoint().id, worker.principal().clone());
        let probe = async move { leaving::probe_subprocess_clients(&table, &principal, id).await };
        context.shutdown.tasks.spawn(probe);
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
        self.send_to_client(&event(Event::Initialized, json!({"resumed": !visits})));
        let title = self.live.worker.title();
        let text =
            format!("this resumes {whose} session with {title}; it was parked{duration_text}");
        self.send_to_client(&notice(&text, false));
        if refused {
            let text = "its debugger did not answer, so path mappings, justMyCode and the other settings of `attach` stay those of that session; to change them, disconnect and attach at another stop";
            self.send_to_client(&notice(text, true));
        }
        let Some(mut resumption) = self.resumption.take() else {
            return;
        };
        let (cut, messages) = resumption.kept.messages();
        if cut > 0 {
            let text = format!("{cut} messages of output were dropped meanwhile");
            self.send_to_client(&notice(&text, false));
        }
        for message in messages {
            self.on_worker(message.into()).await;
        }
        self.resumption = Some(resumption);
    }
}
