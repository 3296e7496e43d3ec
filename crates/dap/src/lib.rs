//! The Debug Adapter Protocol: how a debugger client gets to a paused worker.
//!
//! [`serve`] answers `initialize` itself, reads `attach` and removes the `credential` from it. It authenticates the
//! client ([`ray_relay_session::session::authenticate`]) and picks a worker among those that the client may see
//! (`route`, [`selection`]). Then it runs a session with that worker ([`worker`]) or the cluster session, which
//! announces every worker that pauses ([`cluster`]). A refusal is always an answer, because VS Code shows nothing at
//! all for a bare close.
//!
//! For editors. It must not know HTTP, nor how a worker is reached.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod attach;
pub mod attach_selector;
pub mod capabilities;
mod client;
mod cluster;
mod commands;
mod credential;
mod linger;
pub mod message_filter;
pub mod messages;
mod opened;
mod rank_words;
pub mod refusal;
pub mod rewrite;
mod route;
pub mod selection;
mod source_folder;
mod verdict;
pub mod view_filter;
mod waiting;
pub mod wall;
mod worker;

use std::sync::Arc;

use serde_json::Value;
use tokio::time::timeout_at;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{Instrument as _, debug};

use self::attach::RelayEndpoint;
use self::client::DebugClient;
use self::opened::{ClientOpening, Initialize, refused};
use self::refusal::{hang_up, refuse};
use self::route::{AttachFlow, Ready};
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::telemetry::metrics::{Outcome, RefusalKind};
use ray_relay_base::shutdown::DRAINING;
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::message::{Request, notice};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::shortened;
use ray_relay_session::context::Context;
use ray_relay_session::session::Session;
use ray_relay_session::session::authenticate::{Authenticated, PresentedCredential, Purpose};
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::upstream::MAX_HANDSHAKE_FRAME;

/// Largest message of an unauthenticated client, in bytes. VS Code's `attach` has some 1,000, with a token twice that.
const MAX_UNKNOWN_FRAME: usize = 16 * 1024;

/// The same with authentication off.
const MAX_ANONYMOUS_FRAME: usize = 64 * 1024;

/// Largest message of a client without a certificate before its `attach` is checked, in bytes.
pub fn unknown_frame(context: &Context) -> usize {
    match context.auth.is_on() {
        true => MAX_UNKNOWN_FRAME,
        false => MAX_ANONYMOUS_FRAME,
    }
}

/// Memory that such a client may use, in bytes: a message in a buffer that grows by doubling, and its `initialize`.
pub fn unknown_weight(context: &Context) -> usize {
    3 * unknown_frame(context)
}

/// Serves one connection that speaks DAP.
///
/// Each stage is boxed and freed when it ends: a session of hours holds nothing of its setup.
pub fn serve<S>(
    context: Arc<Context>,
    session: Session,
    stream: S,
    connection: ConnectionInfo,
) -> impl Future<Output = ()>
where
    S: PeerStream,
{
    let arrived = Box::new((stream, connection));
    async move {
        let begun = Box::pin(begin(&context, &session, arrived));
        let (flow, _busy, (relaying, span)) = match begun.await {
            Ok(begun) => begun,
            Err(ending) => return session.ended(ending),
        };
        let ending = flow.run(relaying).instrument(span).await;
        session.ended(ending);
    }
}

/// Runs the attach flow of the client that has `arrived`, up to a session that is ready to run. The relay counts as
/// busy while the token exists.
///
/// # Errors
/// The outcome of a connection without a session.
async fn begin<'a, S>(
    context: &'a Context,
    session: &'a Session,
    arrived: Box<(S, ConnectionInfo)>,
) -> Result<(AttachFlow<'a>, TaskTrackerToken, Ready<'a, S>), Outcome>
where
    S: PeerStream,
{
    let (stream, connection) = *arrived;
    let recognised = Box::pin(recognise(context, session, stream, &connection));
    let (client, opened, who) = recognised.await?;
    let busy = context.shutdown.busy.token();
    session.set_principal(who.principal.clone());
    let flow = AttachFlow::new(context, session, who);
    let begun = Box::pin(flow.begin(client, opened, connection.advertised_port)).await?;
    Ok((flow, busy, begun))
}

/// Reads the request of the client of `stream`, and authenticates it.
///
/// # Errors
/// The outcome: the client has disconnected, or was refused and notified.
async fn recognise<S>(
    context: &Context,
    session: &Session,
    stream: S,
    connection: &ConnectionInfo,
) -> Result<(Conversation<S>, Box<ClientOpening>, Authenticated), Outcome>
where
    S: PeerStream,
{
    let limit = match connection.certificate {
        Some(_) => MAX_HANDSHAKE_FRAME,
        None => unknown_frame(context),
    };
    let mut client = Conversation::new(stream, limit);
    if let Some(principal) = &connection.certificate {
        client.count(&context.account(principal));
    }
    let deadline = connection.accepted + context.config.listen.handshake_timeout;
    let (opened, presented) = match timeout_at(deadline, open(context, session, &mut client)).await
    {
        Ok(Ok(Some(opened))) => opened,
        Ok(Ok(None)) => {
            hang_up(client).await;
            return Err(Outcome::Client);
        }
        Ok(Err(Closed::Malformed(why))) => {
            debug!(%why, "not a debug adapter message");
            let _ = client
                .send(&notice(
                    &format!("this connection is closed, because {why}"),
                    true,
                ))
                .await;
            hang_up(client).await;
            return Err(Outcome::Failed);
        }
        Ok(Err(over)) => {
            debug!(%over, "client left before attach");
            return Err(Outcome::Client);
        }
        Err(_) => {
            let patience = context.config.listen.handshake_timeout.as_secs();
            let text =
                format!("this connection is closed, because no `attach` came within {patience} s");
            context.metrics.refused(RefusalKind::Client);
            let _ = client.send(&notice(&text, true)).await;
            hang_up(client).await;
            return Err(Outcome::Refused);
        }
    };
    let presented = match context.shutdown.drain.is_cancelled() {
        true => Err(SessionRefusal::Unable(DRAINING.to_owned())),
        false => presented,
    };
    let presented = match presented {
        Ok(presented) => presented,
        Err(refusal) => {
            return Err(refused(context, session, client, &opened.attach, &refusal).await);
        }
    };
    let authentication = context.authentication(connection, Purpose::Session(session), deadline);
    let who = match authentication.authenticate(presented).await {
        Ok(who) => who,
        Err(why) => {
            let sentence = session.summary().refusal(&why.to_string());
            refuse(client, &opened.attach, &sentence).await;
            return Err(Outcome::Refused);
        }
    };
    client.allow(MAX_HANDSHAKE_FRAME);
    client.count(&context.account(&who.principal));
    Ok((client, opened, who))
}

/// Answers requests until `attach`, and returns it with its credential; `None`: the client disconnected or was refused
/// for good.
async fn open<S>(
    context: &Context,
    session: &Session,
    client: &mut Conversation<S>,
) -> Result<
    Option<(
        Box<ClientOpening>,
        Result<PresentedCredential, SessionRefusal>,
    )>,
    Closed,
>
where
    S: PeerStream,
{
    let mut known: Option<(DebugClient, Initialize)> = None;
    loop {
        let mut message = client.read().await?;
        let initialize = Request::is(&message, Command::Initialize).then(|| message.clone());
        let Some(mut request) = Request::read(&mut message) else {
            continue;
        };
        match (request.known(), &known) {
            (Some(Command::Initialize), None) => {
                let whole = initialize.unwrap_or_default();
                known = introduced(context, session, client, request, whole).await?;
            }
            (Some(Command::Attach), Some(_)) => {
                let Some((who, initialize)) = known.take() else {
                    continue;
                };
                let presented = credential::take(&mut request.arguments);
                let dialled = RelayEndpoint::read(&request.arguments, context.port);
                let opened = ClientOpening {
                    client: who,
                    initialize,
                    attach: request,
                    dialled,
                };
                return Ok(Some((Box::new(opened), presented)));
            }
            // Nothing is attached yet.
            (Some(Command::Disconnect | Command::Terminate), _) => {
                client.send(&request.success(Value::Null)).await?;
                return Ok(None);
            }
            (Some(Command::Launch), _) => {
                let sentence = "ray-relay attaches to tasks that Ray has paused and starts nothing: use \"request\": \"attach\" (ray-relay launch-config prints a configuration)";
                client.send(&request.failure(sentence)).await?;
                return Ok(None);
            }
            (_, state) => {
                let next = match state {
                    None => Command::Initialize,
                    Some(_) => Command::Attach,
                };
                let sentence = format!(
                    "`{}` came too early: `{}` has to come first",
                    shortened(&request.command, 40),
                    next.as_str()
                );
                client.send(&request.failure(&sentence)).await?;
            }
        }
    }
}

/// Answers the client's `initialize` in `request`, whose `whole` message it returns for the worker, with the client as
/// it describes itself; `None`: it was refused.
async fn introduced<S>(
    context: &Context,
    session: &Session,
    client: &mut Conversation<S>,
    request: Request,
    mut whole: Value,
) -> Result<Option<(DebugClient, Initialize)>, Closed>
where
    S: PeerStream,
{
    if let Some(why) = capabilities::refusal(&request.arguments) {
        client.send(&request.failure(&why)).await?;
        return Ok(None);
    }
    let who = DebugClient::read(&request.arguments);
    session.set_client(who.name.clone());
    session.set_editor(who.editor);
    if who.quirks.shows_bodies {
        client.bare_failures();
    }
    let body = capabilities::announced(context, who.disconnect_method);
    client.send(&request.success(body.clone())).await?;
    credential::strip_all(&mut whole);
    let initialize = Initialize {
        seq: request.seq,
        body: whole.to_string(),
    };
    Ok(Some((who, initialize)))
}

#[cfg(test)]
mod tests;
