//! Keeping a session whose client is lost, and going on with one that was kept.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::opening::not_reached;
use super::phase::{ClientState, WorkerState};
use super::{ActiveSession, HALF_CLOSED, Opening, rules};
use crate::attach::{fingerprint, for_worker, source_note};
use crate::attach_selector::OnClose;
use crate::message_filter::MessageFilter;
use crate::rewrite::is_set;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::{Request, arguments_of, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::reattach::{self, Before};
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::unattended::{self, KeptSplice, Unattended};
use ray_relay_session::context::Context;
use ray_relay_session::session::live::Begun;
use ray_relay_session::session::parks::{ParkShare, ParkView};
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{GroupMember, Session, leaving};
use ray_relay_session::upstream::ConnectError;
use ray_relay_session::upstream::park::{self, Park, ResumeState, Resumed};

/// How long a debugger may take to take the arguments of another `attach`.
const REATTACH_TIMEOUT: Duration = Duration::from_secs(5);

/// What the client of a session that goes on is still to be told, when it has configured.
pub(crate) struct Resumption {
    attach: Request,
    kept: StoredMessages,
    /// How it was left; `None`: it is to be left anew.
    left: Option<ParkView>,
}

impl Resumption {
    /// A thread has stopped before the client has configured.
    pub(super) fn kept_stop(&mut self, stop: &[u8]) {
        self.kept.stopped(stop);
    }
}

/// What is remembered of the session `begun` by this `opening`, whose debugger has answered `capabilities` and was sent an `attach` with this
/// fingerprint. `None` where it would not be kept.
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
    /// Whether the session can be kept without a client: its end was not asked for, and its debugger is where another
    /// client could go on. Half a message of the lost one is none, because it has not been passed on.
    pub(super) fn may_park(&self) -> bool {
        let ends = self.live.is_leaving() || self.live.is_cut_off();
        self.memory.is_some()
            // What has not stopped would stop later, with no client there that asked for it.
            && self.pausing.is_none()
            && !ends
            && self.worker == WorkerState::Attached
            && park::has_task_of(self.context, &self.live)
            && park::outlives_drain(self.context, self.splice.worker().is_kept())
            && self.splice.worker().stays()
    }

    /// The session without its client, from now on, once that is on record.
    ///
    /// # Errors
    /// The session itself, which ends then: there are too many parks, or it cannot be put on record.
    pub(super) async fn parked(mut self: Box<Self>) -> Result<Box<Park<'a>>, Box<Self>> {
        // Where it has none, the last word on that is said below.
        let _ = self.reserved();
        let Some(memory) = self.memory.take() else {
            return Err(self);
        };
        let reserved = self.place.take().map(|place| *place);
        // Who has not configured has changed nothing: it stays parked as it was.
        let as_it_was = self.resumption.as_ref().and_then(|one| one.left.clone());
        let now = Timestamp::now();
        let left = as_it_was.unwrap_or_else(|| self.session.left(memory.stay.until(now)));
        let keeps = now.until(left.until);
        let placed = park::place(self.context, &self.live, keeps, reserved);
        let Some(place) = placed.await else {
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
        // One that was not told of the stops yet was taken over a moment ago.
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
            place,
            left,
            (debugger, *memory),
        ))
    }

    /// Tells the client that has configured which threads stand, and answers what debugpy would not answer once more:
    /// the `configurationDone` of `request`, and the `attach`.
    pub(super) async fn resumed(&mut self, request: &Request, resumption: Resumption) {
        let Resumption { attach, kept, .. } = resumption;
        self.tell(&request.success(Value::Null));
        self.tell(&attach.success(Value::Null));
        self.session
            .set_state(SessionProtocol::Dap, SessionState::Attached);
        if kept.runs()
            && let Some(member) = &self.member
        {
            member.runs();
        }
        for stop in kept.stops() {
            self.on_worker(stop.into()).await;
        }
    }

    /// The client leaves with `goodbye`, and its task stays: that is what it asks for by `suspendDebuggee`, and where it goes
    /// on with a session and has not configured, as a look at what an agent keeps does, it has let nothing run. Where the session cannot
    /// be kept, it goes on.
    pub(super) fn stay_parked(&mut self, mut goodbye: Value) {
        let suspends = is_set(arguments_of(&goodbye), "suspendDebuggee");
        let said = match self.parting.take() {
            Some(said) => Some(said.request),
            None => Request::read(&mut goodbye),
        };
        let reserved = self.reserved();
        if let Some(said) = said {
            self.tell(&match &reserved {
                Ok(()) => said.success(Value::Null),
                Err(why) => said.failure(&format!(
                    "the task cannot be parked, because {why}; the session goes on"
                )),
            });
        }
        if reserved.is_ok() {
            self.client = ClientState::Lost;
            self.live.end_within(HALF_CLOSED, Outcome::Client);
            if suspends {
                self.leave_subprocesses();
            }
        }
    }

    /// Ends the session for its client because of `why`, and keeps the worker for its person; `false`: it cannot be kept.
    /// `important`: as [`notice`] has it.
    pub(super) fn leave_parked(&mut self, why: &str, important: bool) -> bool {
        let keeps = self.memory.as_ref().map(|memory| memory.stay.left());
        let (Ok(()), Some(keeps)) = (self.reserved(), keeps) else {
            return false;
        };
        let title = self.live.worker.title();
        let text = format!(
            "this session with {title} ends, because {why}; the task stays parked for {}: attach again within that time",
            span(keeps)
        );
        self.tell(&notice(&text, important));
        self.tell(&event(Event::Terminated, Value::Null));
        self.live.stay();
        self.client = ClientState::Lost;
        true
    }

    /// Has the session hold its place for the time without its client.
    ///
    /// # Errors
    /// Why it cannot be kept, as a clause.
    pub(super) fn reserved(&mut self) -> Result<(), String> {
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
        if self.place.is_none() {
            let share = match self.share.take() {
                Some(share) => share,
                None => self.another_share()?,
            };
            let place = park::reserve(self.context, &self.live, share)?;
            self.place = Some(Box::new(place));
        }
        Ok(())
    }

    fn another_share(&self) -> Result<Box<ParkShare>, String> {
        let family = self.member.as_deref().map(GroupMember::family);
        park::share(self.context, &self.live, family)
    }

    /// Makes sure of a place for the case that the client is lost, and says so where there is none.
    pub(super) fn provide(&mut self) {
        if self.memory.is_none() || self.share.is_some() {
            return;
        }
        match self.another_share() {
            Ok(share) => self.share = Some(share),
            Err(why) => {
                let text = format!(
                    "if the connection of this session is lost, its task runs on: {why}; end one of those"
                );
                self.tell(&notice(&text, false));
            }
        }
    }

    /// Has the client open the sessions with subprocesses of the task as well, those among them whose clients are found lost only
    /// now.
    fn find_subprocesses(&mut self) {
        if !self.live.worker.holds() {
            return;
        }
        self.children.look_again();
        let (worker, context) = (&self.live.worker, self.context);
        let table = Arc::clone(&context.sessions.table);
        let (id, principal) = (worker.breakpoint().id, worker.principal().clone());
        let made_sure =
            async move { leaving::subprocesses_made_sure(&table, &principal, id).await };
        context.shutdown.tasks.spawn(made_sure);
    }

    /// What the new client hears first: that it may configure, and what was said meanwhile.
    async fn tell_missed(
        &mut self,
        (whose, for_how_long): (&str, &str),
        (visits, refused): (bool, bool),
    ) {
        // A prompt that stays takes over the breakpoints of the one before.
        self.tell(&event(Event::Initialized, json!({"resumed": !visits})));
        let title = self.live.worker.title();
        let text =
            format!("this resumes {whose} session with {title}; it was parked{for_how_long}");
        self.tell(&notice(&text, false));
        if refused {
            let text = "its debugger did not answer, so path mappings, justMyCode and the other settings of `attach` stay those of that session; to change them, disconnect and attach at another stop";
            self.tell(&notice(text, true));
        }
        let Some(mut resumption) = self.resumption.take() else {
            return;
        };
        let (cut, messages) = resumption.kept.messages();
        if cut > 0 {
            let text = format!("{cut} messages of output were dropped meanwhile");
            self.tell(&notice(&text, false));
        }
        for message in messages {
            self.on_worker(message.into()).await;
        }
        self.resumption = Some(resumption);
    }
}

/// Goes on with a session that was parked, for a client that has sent `opening`. Whose it was is said in its first line.
///
/// # Errors
/// How the session has ended, which is on record: the worker is not handed over, and the client knows.
pub(crate) async fn resume<'a, S>(
    context: &'a Context,
    session: &'a Session,
    client: Conversation<S>,
    opening: Opening,
    mut begun: Begun<'a>,
    resumed: Resumed,
) -> Result<Box<ActiveSession<'a, S>>, Outcome>
where
    S: PeerStream,
{
    let (whose, is_own) = (resumed.whose(), resumed.is_own());
    let Resumed { origin, left, .. } = resumed;
    let for_how_long = origin.for_how_long();
    let reached = Box::pin(origin.reach(context, &mut begun.permit)).await;
    let reached = reached.and_then(|(parked, began)| {
        // An editor is no taker of another.
        let why = || "it is at the prompt of Ray's legacy debugger".to_owned();
        let worker = parked.line.into_worker();
        let worker = worker.ok_or_else(|| ConnectError::NoWay(why()))?;
        let of_park = (parked.kept, parked.memory, parked.share);
        Ok((worker, of_park, began))
    });
    let (worker, (kept, memory, share), began) = match reached {
        Ok(reached) => reached,
        Err(why) => {
            let ended = not_reached(context, client, &opening.attach, begun, why);
            return Err(Box::pin(ended).await);
        }
    };
    let max_frame = context.config.dap.max_frame;
    let account = context.account(begun.permit.principal());
    let splice = unattended::keeping(account, worker, Vec::new(), max_frame);
    let permit = &begun.permit;
    let filter = MessageFilter::new(permit.rights(), permit.principal());
    let capabilities = serde_json::from_str(&memory.capabilities).unwrap_or_default();
    let breakpoint = begun.permit.breakpoint();
    let arguments = for_worker(
        &opening.attach.arguments,
        breakpoint,
        opening.local_root.as_deref(),
    );
    let arguments = filter.attach_arguments(arguments);
    let attach = fingerprint(&arguments);
    let visits = opening.visits;
    let same = visits || is_own && attach == memory.attach;
    let (mut splice, kept, taken) = match same {
        true => (splice, kept, None),
        false => match Box::pin(reattached((splice, kept), &arguments, is_own)).await {
            Ok((splice, kept, taken)) => (splice, kept, Some(taken)),
            Err(why) => {
                let ended = not_reached(context, client, &opening.attach, begun, why);
                return Err(Box::pin(ended).await);
            }
        },
    };
    let note = source_note(&arguments, breakpoint).filter(|_| taken == Some(true));
    let attach = match taken {
        Some(true) => attach,
        _ => memory.attach,
    };
    let left = left.filter(|_| opening.park_for.is_none());
    let mut remembered = remembered(context, &begun, &opening, &capabilities, attach);
    if let Some(remembered) = &mut remembered {
        // Who goes on with a park for a moment, as a script does, leaves it no shorter than it was.
        remembered.stay.at_least = left.as_ref().map(|left| left.until);
    }
    let mut live = begun.attached_since(began);
    if kept.runs() {
        live.task.resumed();
    }
    let keep = match &remembered {
        Some(remembered) => remembered.keep(&live, None),
        // Not beyond this session.
        None => memory.keep(&live, Some(Duration::ZERO)),
    };
    if let Some(keep) = keep {
        Box::pin(splice.beside().keep_by(&keep)).await;
    }
    let (up, down) = rules(context, &live, &filter);
    let (client, from_client) = client.into_parts();
    let splice = splice.with_client(client, from_client, up, down);
    let mut stands = kept.threads.cleared();
    stands.attach(&opening.attach.arguments);
    let resumption = Resumption {
        attach: Request {
            seq: opening.attach.seq.clone(),
            command: Command::Attach.as_str().to_owned(),
            arguments: Value::Null,
        },
        kept,
        left,
    };
    let mut relaying =
        ActiveSession::new(context, session, live, opening, splice, filter, remembered);
    relaying.stands = stands;
    relaying.resumption = Some(Box::new(resumption));
    // It may be a part of a cluster session's, whose other tasks are parked still.
    let principal = relaying.live.worker.principal();
    let share = share.filter(|share| relaying.member.is_none() && share.is_of(principal));
    relaying.share = share.or(relaying.share.take());
    relaying.find_subprocesses();
    relaying.tell_beginning(capabilities, note);
    let whose = (&*whose, &*for_how_long);
    let told = (visits, taken == Some(false));
    relaying.tell_missed(whose, told).await;
    Ok(relaying)
}

/// The debugger of a park, which is handed the `arguments` of another `attach`, and whether it has taken them. What another user's
/// session has left in it is removed.
///
/// # Errors
/// [`ConnectError`]: it stays in the middle of a message.
async fn reattached(
    (splice, kept): (KeptSplice, StoredMessages),
    arguments: &Value,
    is_own: bool,
) -> Result<(KeptSplice, StoredMessages, bool), ConnectError> {
    let before = match is_own {
        true => Before::Kept,
        false => Before::Forgotten,
    };
    let expression = reattach::attach(arguments, before);
    let mut debugger = Unattended::splice(splice, kept);
    let answer = debugger.value_of(&expression, REATTACH_TIMEOUT).await;
    let unheard = ConnectError::TimedOut(REATTACH_TIMEOUT);
    let (mut splice, kept) = debugger.into_splice().ok_or(unheard)?;
    if arguments.as_object().is_some_and(mappings::has_mappings) {
        splice.worker_mut().maps();
    }
    Ok((splice, kept, matches!(answer, Some(Ok(_)))))
}
