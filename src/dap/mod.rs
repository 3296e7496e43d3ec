//! The Debug Adapter Protocol: how a debugger client gets to a paused worker.
//!
//! [`serve`] answers `initialize` itself, reads `attach`, picks a worker ([`selection`]), and then either runs a session
//! with that worker ([`worker`]) or the cluster session, which announces every worker that pauses ([`cluster`]).
//! A refusal is always an answer, because VS Code shows nothing at all for a bare close.
//! Source: Debug Adapter Protocol specification 1.71; debugpy 1.8; VS Code 1.139.

pub mod attach;
pub mod capabilities;
mod client;
mod cluster;
pub mod codec;
pub mod conversation;
pub mod gate;
pub mod message;
pub mod peek;
pub mod policing;
pub mod refusal;
pub mod rewrite;
pub mod scanner;
pub mod selection;
pub mod splice;
#[cfg(test)]
pub(crate) mod testing;
mod waiting;
pub mod wish;
mod worker;

use std::time::SystemTime;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info};

use self::attach::Dialled;
use self::client::Client;
use self::conversation::{Conversation, Over};
use self::message::{Request, clean, notice};
use self::refusal::{Refusal, hang_up, refuse};
use self::selection::{Choice, Hint, choose};
use self::wish::{Wish, read_wish};
use crate::http::advertise::Resolved;
use crate::listener::Arrival;
use crate::policy::{Authorized, Scope, authorise};
use crate::registry::{BreakpointId, ClaimError, Holder};
use crate::session::{Context, Permit, Session};
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};

/// What a client has said when it is known what it wants.
struct Opened {
    client: Client,
    initialize: Value,
    attach: Request,
    dialled: Dialled,
}

/// Serves one connection that speaks DAP.
pub async fn serve<S>(context: &Context, session: Session, stream: S, arrival: Arrival)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let started = Instant::now();
    let advertised = arrival
        .advertised_port
        .and_then(|port| context.advertised.breakpoint_at(port));
    let ending = converse(context, &session, stream, advertised, started).await;
    let (up, down) = session.bytes();
    let protocol = session.protocol();
    context.metrics.session_ended(protocol, ending);
    info!(
        session = session.id(), peer = %session.peer(), protocol = protocol.label(), outcome = ending.label(),
        seconds = started.elapsed().as_secs_f32(), bytes_up = up, bytes_down = down, "session ended"
    );
}

async fn converse<S>(
    context: &Context,
    session: &Session,
    stream: S,
    advertised: Option<BreakpointId>,
    started: Instant,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut client = Conversation::new(stream, context.config.dap.max_handshake_frame);
    let deadline = started + context.config.listen.handshake_timeout;
    let opened = match timeout_at(deadline, open(context, session, &mut client)).await {
        Ok(Ok(Some(opened))) => opened,
        Ok(Ok(None)) => {
            hang_up(client).await;
            return Outcome::Client;
        }
        Ok(Err(Over::Malformed(why))) => {
            debug!(%why, "not a debug adapter message");
            let _ = client
                .send(&notice(
                    &format!("this connection is closed, because {why}"),
                    true,
                ))
                .await;
            hang_up(client).await;
            return Outcome::Failed;
        }
        Ok(Err(over)) => {
            debug!(%over, "client left before attach");
            return Outcome::Client;
        }
        Err(_) => {
            let patience = context.config.listen.handshake_timeout.as_secs();
            let text =
                format!("this connection is closed, because no `attach` came within {patience} s");
            context.metrics.refused(RefusalKind::Client);
            let _ = client.send(&notice(&text, true)).await;
            hang_up(client).await;
            return Outcome::Refused;
        }
    };
    route(context, session, client, opened, advertised).await
}

/// Answers until the client has said `attach`; `None`: it has said goodbye or was refused for good.
async fn open<S>(
    context: &Context,
    session: &Session,
    client: &mut Conversation<S>,
) -> Result<Option<Opened>, Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut known: Option<(Client, Value)> = None;
    loop {
        let message = client.read().await?;
        let Some(request) = Request::read(&mut message.clone()) else {
            continue;
        };
        match (request.command.as_str(), &known) {
            ("initialize", None) => {
                let who = Client::read(&request.arguments);
                session.set_client(who.name.clone());
                let body = capabilities::debugpy(context.config.dap.allow_terminate);
                client.send(&request.success(body)).await?;
                known = Some((who, message));
            }
            ("attach", Some(_)) => {
                let Some((who, initialize)) = known.take() else {
                    continue;
                };
                let dialled = Dialled::read(&request.arguments, context.port);
                return Ok(Some(Opened {
                    client: who,
                    initialize,
                    attach: request,
                    dialled,
                }));
            }
            ("disconnect", _) => {
                client.send(&request.success(Value::Null)).await?;
                return Ok(None);
            }
            ("launch", _) => {
                let sentence = "ray-relay attaches to tasks that Ray has paused and starts nothing: use \"request\": \"attach\" (ray-relay launch-config prints a configuration)";
                client.send(&request.failure(sentence)).await?;
                return Ok(None);
            }
            (command, state) => {
                let next = if state.is_none() {
                    "initialize"
                } else {
                    "attach"
                };
                let sentence = format!(
                    "`{}` came too early: `{next}` has to come first",
                    clean(command, 40)
                );
                client.send(&request.failure(&sentence)).await?;
            }
        }
    }
}

async fn route<S>(
    context: &Context,
    session: &Session,
    client: Conversation<S>,
    opened: Opened,
    advertised: Option<BreakpointId>,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hint = advertised.map_or_else(|| hint(context, &opened.dialled), Hint::Breakpoint);
    if let Hint::Breakpoint(id) = hint {
        wait_until_known(context, id).await;
    }
    let chosen = read_wish(&opened.attach.arguments).and_then(|wish| {
        let snapshot = context.registry.snapshot();
        let choice = choose(
            &wish,
            hint,
            opened.client.children,
            &snapshot,
            SystemTime::now(),
        )?;
        Ok((wish, choice))
    });
    let (wish, choice) = match chosen {
        Ok(chosen) => chosen,
        Err(refusal) => return refused(context, client, &opened.attach, &refusal).await,
    };
    match choice {
        Choice::Worker(breakpoint) => match hold(context, session, &opened.client, breakpoint.id) {
            Ok(permit) => attached(context, session, client, opened, wish, permit).await,
            Err(refusal) => refused(context, client, &opened.attach, &refusal).await,
        },
        Choice::Subprocess(breakpoint) => {
            let permit = authorized(context, breakpoint.id)
                .ok()
                .and_then(|authorized| Permit::subprocess(&context.registry, authorized));
            match permit {
                Some(permit) => attached(context, session, client, opened, wish, permit).await,
                None => {
                    let refusal = Refusal::Nothing(
                        "the session that this subprocess belongs to has ended".into(),
                    );
                    refused(context, client, &opened.attach, &refusal).await
                }
            }
        }
        Choice::Cluster => {
            session.set_state(SessionProtocol::Cluster, "attached");
            let announcer = cluster::Announcer::new(
                opened.attach,
                opened.dialled,
                opened.client.children,
                wish,
            );
            cluster::run(context, client, announcer).await
        }
        Choice::Next => {
            session.set_state(SessionProtocol::Dap, "waiting");
            let try_hold = |id| hold(context, session, &opened.client, id);
            match waiting::for_next(context, client, &opened.attach, &wish, try_hold).await {
                Ok((client, permit)) => {
                    attached(context, session, client, opened, wish, permit).await
                }
                Err(ending) => ending,
            }
        }
    }
}

async fn attached<S>(
    context: &Context,
    session: &Session,
    client: Conversation<S>,
    opened: Opened,
    wish: Wish,
    permit: Permit,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let breakpoint = permit.breakpoint();
    info!(
        session = session.id(), peer = %session.peer(), client = opened.client.name, breakpoint = %breakpoint.id,
        cluster = %breakpoint.cluster, name = breakpoint.name(), subprocess = !permit.holds(), "session attaches"
    );
    let opening = worker::Opening {
        initialize: opened.initialize,
        attach: opened.attach,
        local_root: wish.local_root,
        dialled: opened.dialled,
    };
    worker::run(context, session, client, opening, permit).await
}

fn hold(
    context: &Context,
    session: &Session,
    client: &Client,
    id: BreakpointId,
) -> Result<Permit, Refusal> {
    let now = SystemTime::now();
    let authorized = authorized(context, id)?;
    let holder = Holder {
        subject: None,
        session: session.id(),
        client: client.name.clone(),
        peer: session.peer(),
        since: now,
    };
    Permit::hold(&context.registry, authorized, holder).map_err(|why| match why {
        ClaimError::Held(holder) => match context.registry.snapshot().find(id) {
            Some(breakpoint) => Refusal::held(breakpoint, &holder, now),
            None => Refusal::Nothing(format!("{id} is being debugged by {holder}")),
        },
        ClaimError::Ended(breakpoint) => Refusal::ended(&breakpoint, now),
        ClaimError::Unknown => {
            Refusal::unknown(&format!("has the id {id}"), &context.registry.snapshot())
        }
    })
}

/// Leave for the client to debug `id`.
fn authorized(context: &Context, id: BreakpointId) -> Result<Authorized, Refusal> {
    let snapshot = context.registry.snapshot();
    let unknown = || Refusal::unknown(&format!("has the id {id}"), &snapshot);
    let known = snapshot.find(id).or_else(|| snapshot.find_ended(id));
    let principal = context.auth.anonymous().ok_or_else(unknown)?;
    authorise(&principal, known.ok_or_else(unknown)?, Scope::Debug)
        .map_err(|denied| Refusal::Nothing(denied.to_string()))
}

/// Waits for a moment where `id` is not in the list yet: a client that reads Ray's State API through the relay can
/// know of a worker, under an address that says which, up to one poll before the registry does.
async fn wait_until_known(context: &Context, id: BreakpointId) {
    let mut snapshots = context.registry.watch();
    // One that ended does not count: the same worker may have stopped again.
    let known = snapshots.wait_for(|list| list.find(id).is_some());
    let _ = timeout(context.config.registry.poll_interval * 2, known).await;
}

fn hint(context: &Context, dialled: &Dialled) -> Hint {
    match dialled
        .host_text()
        .map(|host| context.advertised.resolve(host))
    {
        Some(Resolved::Breakpoint(id)) => Hint::Breakpoint(id),
        Some(Resolved::Unknown) => Hint::Stale,
        Some(Resolved::Plain) | None => Hint::None,
    }
}

async fn refused<S>(
    context: &Context,
    client: Conversation<S>,
    request: &Request,
    refusal: &Refusal,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    debug!(%refusal, "refused");
    context.metrics.refused(refusal.kind());
    refuse(client, request, &refusal.to_string()).await;
    Outcome::Refused
}

#[cfg(test)]
mod tests;
