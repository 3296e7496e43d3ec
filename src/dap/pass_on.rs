//! Passing a client on to the process from which this one has taken over, where a session of that is meant: a child of a
//! cluster session there, a subprocess of a worker that is debugged there, a session that is parked there, or a cluster
//! session that restarts.
//!
//! What the client has said is said again there, the credential included, and the answer to `initialize`, which the client
//! has, is left out. From then on this relay passes bytes. Who the client is and what it may do is decided by the process
//! that has the session, as for everybody who dials it.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info};

use super::attach_selector::read_selector;
use super::{ClientOpening, credential};
use crate::connection::ConnectionInfo;
use crate::context::Context;
use crate::session::Session;
use crate::session::authenticate::PresentedCredential;
use crate::session::state::SessionState;
use crate::takeover::{OwningProcess, RequestedSession, Takeover};
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::wire::dap::codec::{frame, put_frame};
use crate::wire::dap::conversation::{Closed, Conversation};
use crate::wire::peer_stream::PeerStream;
use crate::wire::tunnel::join::{ByteCount, ClosedSide, join};

/// The predecessor that has what `opened` asks for.
pub(super) fn home(
    takeover: &Takeover,
    session: &Session,
    opened: &ClientOpening,
) -> Option<OwningProcess> {
    let selector = read_selector(&opened.attach.arguments).ok()?;
    let wanted = match (&selector.family, selector.subprocess, selector.breakpoint) {
        (_, Some(_), Some(id)) => RequestedSession::Subprocess(id),
        (Some(family), ..) => RequestedSession::Family(family),
        (None, None, Some(id)) => RequestedSession::Parked(id),
        _ => RequestedSession::Any {
            peer: session.peer().ip(),
            client: &opened.client.name,
        },
    };
    takeover.home_of(&wanted)
}

/// Passes `client`, which has said what is in `opened` and presents `presented`, on to `home`, to the end of either.
pub(super) async fn pass_on<S: PeerStream>(
    context: &Context,
    session: &Session,
    client: Conversation<S>,
    opened: Box<ClientOpening>,
    presented: PresentedCredential,
    (home, connection): (OwningProcess, &ConnectionInfo),
) -> Outcome {
    let _busy = context.shutdown.busy.token();
    session.set_state(SessionProtocol::Dap, SessionState::PassedOn);
    let pid = home.pid();
    info!(pid, "forwarded to the predecessor, which owns the session");
    let Some(far) = home.pass(connection) else {
        return Outcome::Failed;
    };
    let deadline = connection.accepted + context.config.listen.handshake_timeout;
    let (client, far) = match introduce(context, client, far, *opened, presented, deadline).await {
        Ok(joined) => joined,
        Err(why) => {
            debug!(%why, pid, "the connection could not be forwarded");
            return Outcome::Failed;
        }
    };
    let passed = ByteCount::default();
    let joined = tokio::select! {
        joined = join(client, far, &passed) => joined,
        () = context.shutdown.abort.cancelled() => return Outcome::Drained,
    };
    session.set_bytes((passed.up(), passed.down()));
    match joined {
        Ok(ClosedSide::First) => Outcome::Client,
        Ok(ClosedSide::Second) => Outcome::Upstream,
        Err(error) => {
            debug!(%error, "a forwarded connection broke");
            Outcome::Client
        }
    }
}

/// Says there what the client has said so far, and gives the client what it has not heard.
async fn introduce<S: PeerStream>(
    context: &Context,
    client: Conversation<S>,
    mut far: tokio::net::UnixStream,
    opened: ClientOpening,
    presented: PresentedCredential,
    deadline: Instant,
) -> Result<(S, tokio::net::UnixStream), Closed> {
    let ClientOpening {
        initialize, attach, ..
    } = opened;
    let mut arguments = attach.arguments;
    credential::put_back(&mut arguments, &presented);
    let attach = json!({
        "seq": attach.seq, "type": "request", "command": attach.command, "arguments": arguments,
    });
    let (mut client, unread) = client.into_parts();
    let mut said = Vec::new();
    put_frame(&mut said, initialize.body.as_bytes());
    said.extend_from_slice(&frame(&attach));
    said.extend_from_slice(&unread);
    far.write_all(&said).await?;
    let mut there = Conversation::new(far, context.config.dap.max_frame);
    let answered = timeout_at(deadline, there.read()).await;
    answered.map_err(|_| Closed::ByPeer)??;
    let (far, unheard) = there.into_parts();
    client.write_all(&unheard).await?;
    client.flush().await?;
    Ok((client, far))
}
