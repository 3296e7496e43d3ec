//! Debuggers that listen: a worker dials its node's agent, and a person's `ray-relay reverse` takes it to the debugger on
//! their own machine. The other way round than everything else, with the same identity, policy and record.
//!
//! [`serve`] is the link of one command, from what it wants to its end; [`session`] one worker that has dialled. The bytes are
//! a debugger's own, of whatever protocol: nothing in them is read, so nothing can be masked or recorded, and whoever may
//! debug only where that is done gets no worker this way.

mod session;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Bytes, Message};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, warn};

use self::session::Arriving;
use crate::agents::Socket;
use crate::agents::reverse::{Arrival, Rendezvous, Said};
use crate::audit::{Action, Entry};
use crate::connection::summary::Summary;
use crate::context::Context;
use crate::identity::Principal;
use crate::policy::{Rights, Scope};
use crate::wire::tunnel::close_frame;
use crate::wire::tunnel::messages::{Sentence, StreamId, read, written};
use crate::wire::tunnel::meter::Meter;
use crate::wire::tunnel::reverse::{FromPerson, RendezvousName, ToPerson};

/// The deadline for the command to say what it wants.
const BEGUN: Duration = Duration::from_secs(10);

/// How often a command is asked whether it is there, and how long nothing may come from it.
const PING: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(15);

/// The deadline of one message to the command.
const TAKEN: Duration = Duration::from_secs(10);

/// Workers of one rendezvous at a time.
const SESSIONS: usize = 64;

/// What waits to be said to the command.
const OUTBOX: usize = 64;

/// Messages of one second that a command may send.
const MOST_A_SECOND: u32 = 128;

/// How long sessions may take to be put on record when the link is over, and the command to close.
const CLOSING: Duration = Duration::from_secs(5);

/// What sessions of a link that wait for the command are told: the debugger there cannot be reached.
type Failing = Arc<Mutex<HashMap<StreamId, oneshot::Sender<Sentence>>>>;

/// Why a link is over. `Display` is for the person.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the command has left")]
    Left,
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Later(String),
    #[error("the relay is being shut down")]
    Ending,
}

/// Serves the link of `person`'s command on the connection of `summary`, which wants the rendezvous `name`, to its end.
pub(crate) async fn serve(
    ctx: Arc<Context>,
    socket: Socket,
    person: Principal,
    summary: Summary,
    name: RendezvousName,
) {
    let (say, to_say) = mpsc::channel(OUTBOX);
    let mut link = Link {
        ctx,
        socket,
        person,
        summary,
        name,
        say,
        failing: Failing::default(),
        sessions: JoinSet::new(),
        over: CancellationToken::new(),
        meter: Meter::new(MOST_A_SECOND, MOST_A_SECOND, Instant::now()),
    };
    let end = match link.begin().await {
        Ok(rendezvous) => Box::pin(link.run(rendezvous, to_say)).await,
        Err(end) => end,
    };
    link.close(&end).await;
}

struct Link {
    ctx: Arc<Context>,
    socket: Socket,
    person: Principal,
    summary: Summary,
    name: RendezvousName,
    say: mpsc::Sender<ToPerson>,
    failing: Failing,
    sessions: JoinSet<()>,
    /// Ends them.
    over: CancellationToken,
    meter: Meter,
}

impl Link {
    /// Learns what the command wants, and has it, on record before agents know of it.
    async fn begin(&mut self) -> Result<Rendezvous, End> {
        let wanted = async {
            loop {
                let next = self.socket.next().await;
                if let Some(message) = self.heard(next)? {
                    return Ok::<_, End>(message);
                }
            }
        };
        let wanted = timeout(BEGUN, wanted).await;
        let Ok(Ok(FromPerson::Begin { port, wish })) = wanted else {
            return Err(End::Refused("it does not say what it wants".to_owned()));
        };
        if let Some(why) = self.barred_everywhere() {
            return Err(End::Refused(why.to_owned()));
        }
        if self.ctx.shutdown.leaving.is_cancelled() {
            return Err(End::Ending);
        }
        let agents = &self.ctx.agents;
        let rendezvous = agents.meet(self.name.clone(), &self.person, port, wish);
        let rendezvous = rendezvous.map_err(|why| match why.is_passing() {
            true => End::Later(why.to_string()),
            false => End::Refused(why.to_string()),
        })?;
        let mut entry = Entry::new(Action::Decision)
            .with("protocol", "reverse")
            .with("outcome", "allowed")
            .with("command", "reverse")
            .with("rendezvous", self.name.to_string())
            .with("port", rendezvous.port);
        entry.principal = Some(self.person.clone());
        entry.peer = Some(self.summary.peer());
        entry.request = Some(self.summary.id());
        let recorded = self.ctx.audit.write(entry).await;
        recorded.map_err(|why| End::Later(why.to_string()))?;
        let port = rendezvous.port;
        self.send(&ToPerson::Ready { port }).await?;
        info!(rendezvous = %self.name, port, "a debugger listens");
        rendezvous.open();
        Ok(rendezvous)
    }

    /// Why no worker of any cluster can be passed on, where that is known already.
    fn barred_everywhere(&self) -> Option<&'static str> {
        let access = self.person.access();
        let whole: Vec<_> = self
            .ctx
            .registry
            .clusters()
            .map(|cluster| access.rights_on_cluster(&cluster))
            .filter(|rights| rights.scopes.contains(Scope::Debug))
            .collect();
        let barred: Vec<_> = whole
            .iter()
            .map(|rights| barred(&self.ctx, rights))
            .collect();
        let narrower = whole.is_empty();
        (!narrower && barred.iter().all(Option::is_some))
            .then(|| barred.into_iter().flatten().next())
            .flatten()
    }

    async fn run(
        &mut self,
        mut rendezvous: Rendezvous,
        mut to_say: mpsc::Receiver<ToPerson>,
    ) -> End {
        let _busy = self.ctx.shutdown.busy.token();
        let shutdown = self.ctx.shutdown.clone();
        let (person, replaced) = (self.person.clone(), rendezvous.replaced.clone());
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent = Instant::now() + SILENCE;
        let mut told = None;
        loop {
            // While the relay drains, and where another process has taken over, what goes on may go on, and nothing begins.
            let draining = shutdown.leaving.is_cancelled();
            if draining && self.sessions.is_empty() {
                return End::Ending;
            }
            let done = tokio::select! {
                over = person.ended() => Err(End::Refused(over.to_string())),
                () = replaced.cancelled() => {
                    Err(End::Refused("you have begun it anew elsewhere".to_owned()))
                }
                () = shutdown.abort.cancelled() => Err(End::Ending),
                () = shutdown.leaving.cancelled(), if !draining => Ok(()),
                () = sleep_until(silent) => Err(End::Left),
                next = self.socket.next() => {
                    silent = Instant::now() + SILENCE;
                    self.heard(next).map(|message| self.on_message(message))
                }
                Some(message) = to_say.recv() => self.send(&message).await,
                Some(arrival) = rendezvous.arrivals.recv() => {
                    if !draining {
                        self.arrive(arrival, rendezvous.port);
                    }
                    Ok(())
                }
                Ok(()) = rendezvous.said.changed() => {
                    let said = status(&rendezvous.said.borrow_and_update());
                    match told.as_ref() == Some(&said) {
                        true => Ok(()),
                        false => {
                            told = Some(said.clone());
                            self.send(&said).await
                        }
                    }
                }
                Some(_) = self.sessions.join_next() => Ok(()),
                _ = ping.tick() => self.put(Message::Ping(Bytes::new())).await,
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
                // It may have been given up.
                let _ = waiting.send(detail);
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival, port: u16) {
        if self.sessions.len() >= SESSIONS {
            let reason =
                format!("{SESSIONS} workers are there, which is all that one name may have");
            let reason = reason.as_str().into();
            // Where more waits to be said than there is room for, it is one of many.
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

    /// What the command says with what came `next`; `None` where that only shows that it is there.
    fn heard(
        &mut self,
        next: Option<Result<Message, tungstenite::Error>>,
    ) -> Result<Option<FromPerson>, End> {
        let message = next.as_ref().and_then(|next| next.as_ref().ok());
        let length = message.map_or(0, Message::len);
        if !self.meter.takes(length, Instant::now()) {
            return Err(End::Refused("it sends too many messages".to_owned()));
        }
        match next {
            Some(Ok(Message::Text(text))) => match read(&text) {
                Ok(message) => Ok(Some(message)),
                Err(why) => Err(End::Refused(why.to_string())),
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => Err(End::Refused(
                "it sends bytes where messages are due".to_owned(),
            )),
            Some(Ok(Message::Close(_)) | Err(_)) | None => Err(End::Left),
        }
    }

    async fn send(&mut self, message: &ToPerson) -> Result<(), End> {
        self.put(Message::text(written(message))).await
    }

    async fn put(&mut self, message: Message) -> Result<(), End> {
        match timeout(TAKEN, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Left),
        }
    }

    /// Ends the sessions, on record, and says why it is over.
    async fn close(mut self, end: &End) {
        info!(rendezvous = %self.name, why = %end, "a debugger no longer listens");
        self.over.cancel();
        let sessions = async { while self.sessions.join_next().await.is_some() {} };
        let _ = timeout(CLOSING, sessions).await;
        let passing = !matches!(end, End::Refused(_));
        let closing = async {
            if !matches!(end, End::Left) {
                let reason = end.to_string().as_str().into();
                let refused = ToPerson::Refused { reason, passing };
                let _ = self.send(&refused).await;
            }
            let frame = close_frame(CloseCode::Normal, &end.to_string());
            let _ = self.socket.close(Some(frame)).await;
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = timeout(CLOSING, closing).await;
    }
}

/// What a command is told of what agents say.
fn status(said: &HashMap<u64, Said>) -> ToPerson {
    let listens = said.values().filter(|said| **said == Said::Listens).count();
    let refused = said.values().find_map(|said| match said {
        Said::Refuses(why) => Some(why.clone()),
        Said::Asked | Said::Listens => None,
    });
    ToPerson::Listening {
        nodes: u32::try_from(listens).unwrap_or(u32::MAX),
        refused,
    }
}

/// Why somebody with `rights` gets no worker this way.
fn barred(ctx: &Context, rights: &Rights) -> Option<&'static str> {
    if rights.obligations.record {
        return Some(
            "your sessions there are recorded, and what a debugger that listens is told cannot be: attach through the relay instead",
        );
    }
    ctx.masking.holds_for(rights).then_some(
        "values are masked in your sessions there, and what a debugger that listens is told cannot be: attach through the relay instead",
    )
}
