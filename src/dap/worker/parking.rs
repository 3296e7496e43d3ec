//! Keeping a session whose client is lost, and going on with one that was kept.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{info, warn};

use super::at_agent::taken_up;
use super::opening::not_reached;
use super::{HALF_CLOSED, Opening, Relaying, rules};
use crate::context::Context;
use crate::dap::attach::{fingerprint, for_worker};
use crate::dap::message_filter::MessageFilter;
use crate::dap::park::{self, Memory, Park, Parked};
use crate::dap::splice::{self, Splice};
use crate::moment::Moment;
use crate::session::Session;
use crate::session::live::Begun;
use crate::session::shares::Shortage;
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::wire::dap::conversation::Conversation;
use crate::wire::dap::kept::Kept;
use crate::wire::dap::message::{Request, event, notice};
use crate::wire::dap::names::{Command, Event};
use crate::wire::peer_stream::PeerStream;
use crate::wire::tunnel::messages::Subject;

/// Bytes of a debugger's capabilities that are remembered at most: debugpy's have some 1,500.
const LONGEST_CAPABILITIES: usize = 16 * 1024;

/// What the client of a session that goes on is still to be told, when it has configured.
pub(in crate::dap) struct Resumption {
    attach: Request,
    kept: Kept,
}

impl Resumption {
    /// A thread has stopped before the client has configured.
    pub(super) fn kept_stop(&mut self, stop: &[u8]) {
        self.kept.stopped(stop);
    }
}

impl Memory {
    /// Of a session that `permit` is for, whose debugger has answered `capabilities` and was sent an `attach` with this
    /// fingerprint. `None` where it would not be kept.
    pub(super) fn new(
        context: &Context,
        begun: &Begun<'_>,
        capabilities: &Value,
        attach: u64,
    ) -> Option<Box<Self>> {
        let keeps = park::keeps(context, &begun.permit)?;
        let capabilities = capabilities.to_string();
        let short = capabilities.len() <= LONGEST_CAPABILITIES;
        Some(Box::new(Self {
            keeps,
            capabilities: if short { capabilities } else { String::new() }.into(),
            attach,
        }))
    }
}

impl<'a, S: PeerStream> Relaying<'a, S> {
    /// Whether the session can be kept without a client: nobody has asked for its end, and its debugger is where another
    /// client could go on. Half a message of the lost one is none, because it has not been passed on.
    pub(super) fn may_park(&self) -> bool {
        let ends = self.live.is_leaving() || self.live.is_cut_off();
        self.memory.is_some()
            && !(ends || self.terminated || self.bereft)
            && (!self.context.shutdown.drain.is_cancelled() || self.splice.worker().is_kept())
            && self.splice.worker().stays()
    }

    /// The session without its client, from now on, once that is on record.
    ///
    /// # Errors
    /// The session itself, which ends then: there are too many parks, or it cannot be put on record.
    pub(super) async fn parked(mut self: Box<Self>) -> Result<Box<Park<'a>>, Box<Self>> {
        let Some(memory) = self.memory.take() else {
            return Err(self);
        };
        let principal = self.live.worker.principal().clone();
        let id = self.live.worker.breakpoint().id;
        let mut details = Map::new();
        let place = match self.context.parks.park(&principal, id) {
            Ok(place) => place,
            Err(shortage) => {
                let most = match shortage {
                    Shortage::Yours(most) => format!("one person may have {most} parked sessions"),
                    Shortage::All(most) => format!("there may be {most} parked sessions"),
                };
                info!(%id, %most, "a session whose client is lost is not parked, and its task runs on");
                details.insert("outcome".into(), "refused".into());
                details.insert("reason".into(), most.into());
                // The session ends either way.
                let _ = self.live.audit.parked(details).await;
                return Err(self);
            }
        };
        let now = Moment::now();
        details.insert("outcome".into(), "parked".into());
        details.insert("seconds".into(), memory.keeps.as_secs().into());
        if let Err(why) = self.live.audit.parked(details).await {
            warn!(%id, %why, "a session whose client is lost is not parked, and its task runs on");
            return Err(self);
        }
        let Self {
            context,
            session,
            mut live,
            mut splice,
            resumption,
            stop,
            ..
        } = *self;
        live.stay();
        if let Some(keep) = memory.keep(&live, Some(memory.keeps)) {
            Box::pin(splice.beside().keep_by(&keep)).await;
        }
        let until = Moment {
            instant: now.instant + memory.keeps,
            time: now.time + memory.keeps,
        };
        session.set_state(SessionProtocol::Dap, "parked");
        live.worker.shown_as(session.parked(&principal, until));
        info!(
            seconds = memory.keeps.as_secs(),
            "the client of the session is lost, and its worker stays as it is"
        );
        // One that was not told of the stops yet was taken over a moment ago.
        let mut kept = resumption.map_or_else(Kept::default, |resumption| resumption.kept);
        if let Some(stop) = stop {
            kept.stopped(&stop);
        }
        let parked = Parked {
            splice: splice.without_client(splice::rules(context.config.dap.max_frame)),
            memory: *memory,
            kept,
        };
        Ok(Box::new(Park {
            context,
            session,
            live,
            parked,
            place,
            until: until.instant,
        }))
    }

    /// Tells the client that has configured which threads stand, and answers what debugpy would not answer once more:
    /// the `configurationDone` of `request`, and the `attach`.
    pub(super) async fn resumed(&mut self, request: &Request, resumption: Resumption) {
        let Resumption { attach, kept } = resumption;
        self.tell(&request.success(Value::Null));
        self.tell(&attach.success(Value::Null));
        self.session.set_state(SessionProtocol::Dap, "attached");
        for stop in kept.stops() {
            self.on_worker(stop.into()).await;
        }
    }

    /// The client of a session that goes on leaves with `goodbye` before it has configured, as `ray-relay snapshot` does:
    /// it has let nothing run, so the session is what it was before.
    pub(super) fn stay_parked(&mut self, mut goodbye: Value) {
        let said = match self.parting.take() {
            Some(said) => Some(*said),
            None => Request::read(&mut goodbye),
        };
        if let Some(said) = said {
            self.tell(&said.success(Value::Null));
        }
        (self.client_closed, self.vanished) = (true, true);
        self.live.end_within(HALF_CLOSED, Outcome::Client);
    }

    /// What the new client hears first: that it may configure, and what was said while nobody heard it.
    async fn tell_missed(&mut self, whose: &str, differs: bool) {
        self.tell(&event(Event::Initialized, Value::Null));
        let title = self.live.worker.breakpoint().title();
        let text =
            format!("this goes on with {whose} session with {title}, whose connection was lost");
        self.tell(&notice(&text, false));
        if differs {
            let text = "path mappings, justMyCode and whatever else `attach` says are those of that session; disconnect and attach at another stop for others";
            self.tell(&notice(text, false));
        }
        let Some(mut resumption) = self.resumption.take() else {
            return;
        };
        let (cut, messages) = resumption.kept.messages();
        if cut > 0 {
            let text = format!("{cut} messages of output from meanwhile were not kept");
            self.tell(&notice(&text, false));
        }
        for message in messages {
            self.on_worker(message.into()).await;
        }
        self.resumption = Some(resumption);
    }
}

/// Where the worker of a session that goes on is.
pub(in crate::dap) enum Origin {
    /// It was parked here; the session `began` then.
    Here { parked: Box<Parked>, began: Instant },
    /// The agent of its node keeps it for this owner.
    Agent { owner: Subject },
}

/// Goes on with a session that was parked, for a client that has sent `opening`. `whose` it was is said in its first line.
///
/// # Errors
/// How the session has ended, which is on record: the worker is not handed over, and the client knows.
pub(in crate::dap) async fn resume<'a, S>(
    context: &'a Context,
    session: &'a Session,
    client: Conversation<S>,
    opening: Opening,
    begun: Begun<'a>,
    origin: Origin,
    whose: &str,
) -> Result<Box<Relaying<'a, S>>, Outcome>
where
    S: PeerStream,
{
    let (parked, began) = match origin {
        Origin::Here { parked, began } => (*parked, began),
        Origin::Agent { owner } => match Box::pin(taken_up(context, &begun.permit, owner)).await {
            Ok((parked, lasted)) => {
                let now = Instant::now();
                (parked, now.checked_sub(lasted).unwrap_or(now))
            }
            Err(why) => {
                let ended = not_reached(
                    context,
                    session.summary(),
                    client,
                    &opening.attach,
                    begun,
                    why,
                );
                return Err(Box::pin(ended).await);
            }
        },
    };
    let Parked {
        mut splice,
        memory,
        kept,
    } = parked;
    let filter = MessageFilter::new(begun.permit.rights(), Some(&context.masking));
    let capabilities = serde_json::from_str(&memory.capabilities).unwrap_or_default();
    let breakpoint = begun.permit.breakpoint();
    let arguments = for_worker(
        &opening.attach.arguments,
        breakpoint,
        opening.local_root.as_deref(),
    );
    let attach = fingerprint(&filter.attach_arguments(arguments));
    let remembered = Memory::new(context, &begun, &capabilities, memory.attach);
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
    let splice: Splice<S, _> = splice.with_client(client, from_client, up, down);
    let resumption = Resumption {
        attach: Request {
            seq: opening.attach.seq.clone(),
            command: Command::Attach.as_str().to_owned(),
            arguments: Value::Null,
        },
        kept,
    };
    let mut relaying = Relaying::new(context, session, live, opening, splice, filter, remembered);
    relaying.resumption = Some(Box::new(resumption));
    relaying.tell_beginning(capabilities, None);
    relaying.tell_missed(whose, attach != memory.attach).await;
    Ok(relaying)
}
