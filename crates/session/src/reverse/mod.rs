//! Listening debuggers: a worker dials its node's agent, and a user's `ray-relay reverse` forwards it to the debugger
//! on their machine. The opposite direction of all other sessions, with the same identity, policy and audit.
//!
//! [`serve`] runs the link of one command, [`session`] one worker that has dialled. The bytes are a debugger's own, in
//! any protocol: the relay reads none of them, so it cannot record them. A user who may debug only with recording gets
//! no worker this way.

mod session;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, warn};

use self::session::{Arriving, Failing, barred};
use crate::agents::reverse::{DialledWorker, Rendezvous, RendezvousEvent};
use crate::agents::{Carrier, Socket};
use crate::context::Context;
use ray_relay_access::audit::{Entry, EntryKind};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::link::{CloseReason, ControlLink, LinkError};
use ray_relay_base::wire::tunnel::reverse::{FromPerson, RendezvousName, ToPerson};

/// Deadline for the command's request.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Concurrent workers of one rendezvous.
const MAX_SESSIONS: usize = 64;

/// Queue of messages to the command.
const OUTBOX_CAPACITY: usize = 64;

/// Messages per second that a command may send.
const MAX_MESSAGES_PER_SECOND: u32 = 128;

/// Deadline for sessions to be audited when the link is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a link ended. `Display` is for the user.
#[derive(Debug, thiserror::Error)]
enum ReverseEnd {
    #[error("the command has left")]
    Left,
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Later(String),
    #[error("the relay is being shut down")]
    Ending,
}

impl ReverseEnd {
    fn close_reason(&self) -> CloseReason {
        match self {
            Self::Left => CloseReason::Left,
            Self::Refused(_) => CloseReason::Refused,
            Self::Later(_) => CloseReason::Later,
            Self::Ending => CloseReason::Ending,
        }
    }
}

impl From<LinkError> for ReverseEnd {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Flood(_) | LinkError::Invalid(_) | LinkError::Short(_) => {
                Self::Refused(format!("the command {error}"))
            }
            LinkError::Closed(..)
            | LinkError::Gone
            | LinkError::Silent
            | LinkError::NotTaken
            | LinkError::Broken(_) => Self::Left,
        }
    }
}

/// Serves the link of `person`'s command on the connection of `summary`, for the rendezvous `name`, to its end.
pub async fn serve(
    ctx: Arc<Context>,
    socket: Socket,
    person: Principal,
    summary: Summary,
    name: RendezvousName,
) {
    let (say, to_say) = mpsc::channel(OUTBOX_CAPACITY);
    let mut link = CommandLink {
        ctx,
        wire: ControlLink::asking(socket, MAX_MESSAGES_PER_SECOND, MAX_MESSAGES_PER_SECOND),
        person,
        summary,
        name,
        say,
        failing: Failing::default(),
        sessions: JoinSet::new(),
        over: CancellationToken::new(),
    };
    let end = match link.begin().await {
        Ok(rendezvous) => Box::pin(link.run(rendezvous, to_say)).await,
        Err(end) => end,
    };
    link.close(&end).await;
}

struct CommandLink {
    ctx: Arc<Context>,
    wire: ControlLink<Carrier, FromPerson, ToPerson>,
    person: Principal,
    summary: Summary,
    name: RendezvousName,
    say: mpsc::Sender<ToPerson>,
    failing: Failing,
    sessions: JoinSet<()>,
    /// Ends the sessions.
    over: CancellationToken,
}

impl CommandLink {
    /// Reads the command's request and creates the rendezvous; audited before agents are notified.
    async fn begin(&mut self) -> Result<Rendezvous, ReverseEnd> {
        let request = async {
            loop {
                if let Some(message) = self.wire.next().await? {
                    return Ok::<_, LinkError>(message);
                }
            }
        };
        let request = timeout(BEGIN_TIMEOUT, request).await;
        let Ok(Ok(FromPerson::Begin { port, wish })) = request else {
            return Err(ReverseEnd::Refused("it sent no valid request".to_owned()));
        };
        if let Some(why) = self.barred_everywhere() {
            return Err(ReverseEnd::Refused(why.to_owned()));
        }
        if self.ctx.shutdown.drain.is_cancelled() {
            return Err(ReverseEnd::Ending);
        }
        let agents = &self.ctx.peers.agents;
        let rendezvous = agents.meet(self.name.clone(), &self.person, port, wish);
        let rendezvous = rendezvous.map_err(|why| match why.is_passing() {
            true => ReverseEnd::Later(why.to_string()),
            false => ReverseEnd::Refused(why.to_string()),
        })?;
        let mut entry = Entry::new(EntryKind::Decision)
            .with("protocol", "reverse")
            .with("outcome", "allowed")
            .with("command", "reverse")
            .with("rendezvous", self.name.to_string())
            .with("port", rendezvous.port);
        entry.principal = Some(self.person.clone());
        entry.peer = Some(self.summary.peer());
        entry.request = Some(self.summary.id());
        let recorded = self.ctx.audit.write(entry).await;
        recorded.map_err(|why| ReverseEnd::Later(why.to_string()))?;
        let port = rendezvous.port;
        self.wire.say(&ToPerson::Ready { port }).await?;
        info!(rendezvous = %self.name, port, "a debugger listens");
        rendezvous.open();
        Ok(rendezvous)
    }

    /// Why no worker of any cluster can be forwarded, if that is certain already.
    fn barred_everywhere(&self) -> Option<&'static str> {
        let access = self.person.access();
        let whole: Vec<_> = self
            .ctx
            .registry
            .clusters()
            .map(|cluster| access.rights_on_cluster(&cluster))
            .filter(|rights| rights.scopes.contains(Scope::Debug))
            .collect();
        let barred: Vec<_> = whole.iter().map(barred).collect();
        let narrower = whole.is_empty();
        (!narrower && barred.iter().all(Option::is_some))
            .then(|| barred.into_iter().flatten().next())
            .flatten()
    }

    async fn run(
        &mut self,
        mut rendezvous: Rendezvous,
        mut to_say: mpsc::Receiver<ToPerson>,
    ) -> ReverseEnd {
        let _busy = self.ctx.shutdown.busy.token();
        let shutdown = self.ctx.shutdown.clone();
        let (person, replaced) = (self.person.clone(), rendezvous.replaced.clone());
        let mut reported = None;
        loop {
            // While draining, or once a successor has taken over, running sessions continue and none begins.
            let draining = shutdown.drain.is_cancelled();
            if draining && self.sessions.is_empty() {
                return ReverseEnd::Ending;
            }
            let done = tokio::select! {
                over = person.ended() => Err(ReverseEnd::Refused(over.to_string())),
                () = replaced.cancelled() => {
                    Err(ReverseEnd::Refused("you have started it again elsewhere".to_owned()))
                }
                () = shutdown.abort.cancelled() => Err(ReverseEnd::Ending),
                () = shutdown.drain.cancelled(), if !draining => Ok(()),
                next = self.wire.next() => match next {
                    Ok(message) => {
                        self.on_message(message);
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                },
                Some(message) = to_say.recv() => self.say(&message).await,
                Some(arrival) = rendezvous.arrivals.recv() => {
                    if !draining {
                        self.arrive(arrival, rendezvous.port);
                    }
                    Ok(())
                }
                Ok(()) = rendezvous.answers.changed() => {
                    let listening = status(&rendezvous.answers.borrow_and_update());
                    match reported.as_ref() == Some(&listening) {
                        true => Ok(()),
                        false => {
                            reported = Some(listening.clone());
                            self.say(&listening).await
                        }
                    }
                }
                Some(_) = self.sessions.join_next() => Ok(()),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    fn on_message(&self, message: Option<FromPerson>) {
        if let Some(FromPerson::Failed { stream, detail }) = message {
            let waiting = self.failing.lock().remove(&stream);
            if let Some(waiting) = waiting {
                // The session may be gone.
                let _ = waiting.send(detail);
            }
        }
    }

    fn arrive(&mut self, arrival: DialledWorker, port: u16) {
        if self.sessions.len() >= MAX_SESSIONS {
            let reason =
                format!("{MAX_SESSIONS} workers are connected, the most that one name may have");
            let reason = reason.as_str().into();
            // If the queue is full, this message is one of many.
            let _ = self.say.try_send(ToPerson::TurnedAway { reason });
            return warn!(rendezvous = %self.name, "too many workers at one rendezvous");
        }
        let arriving = Arriving {
            ctx: Arc::clone(&self.ctx),
            person: self.person.clone(),
            summary: self.summary.clone(),
            name: self.name.clone(),
            port,
            arrival,
            say: self.say.clone(),
            failing: Arc::clone(&self.failing),
            over: self.over.child_token(),
        };
        self.sessions.spawn(arriving.run().in_current_span());
    }

    async fn say(&mut self, message: &ToPerson) -> Result<(), ReverseEnd> {
        Ok(self.wire.say(message).await?)
    }

    /// Ends the sessions, audited, and sends the reason.
    async fn close(mut self, end: &ReverseEnd) {
        info!(rendezvous = %self.name, why = %end, "a debugger no longer listens");
        self.over.cancel();
        let sessions = async { while self.sessions.join_next().await.is_some() {} };
        let _ = timeout(CLOSE_TIMEOUT, sessions).await;
        let why = end.to_string();
        let refused = (!matches!(end, ReverseEnd::Left)).then(|| ToPerson::Refused {
            reason: why.as_str().into(),
            passing: !matches!(end, ReverseEnd::Refused(_)),
        });
        self.wire.close(refused, end.close_reason(), &why).await;
    }
}

/// Summarises the agents' answers for the command.
fn status(answers: &HashMap<u64, RendezvousEvent>) -> ToPerson {
    let listens = answers
        .values()
        .filter(|answer| **answer == RendezvousEvent::Listens)
        .count();
    let refused = answers.values().find_map(|answer| match answer {
        RendezvousEvent::Refuses(why) => Some(why.clone()),
        RendezvousEvent::Asked | RendezvousEvent::Listens => None,
    });
    ToPerson::Listening {
        nodes: u32::try_from(listens).unwrap_or(u32::MAX),
        refused,
    }
}
