//! Line protocol for `nc` or `telnet`: the list of paused tasks, and a prompt on one of them.
//!
//! The listener calls [`serve`] with a connection whose first bytes are text. `authenticate` identifies the client,
//! `session` shows the list and acquires the permit, and `session::attached` runs the session with a worker. `prompt`
//! runs [`ray_relay_debugger::pdb`] on a debugpy breakpoint. `legacy` relays the socket of a legacy one, after which
//! `session::following` may wait for its next stop. `several` is one prompt for many tasks. `input` reads lines,
//! `output` writes.
//!
//! Invariants: before a client is authenticated and has picked a breakpoint, it learns nothing of any breakpoint and no
//! worker is dialled. However a session ends, its task resumes, unless the session is parked.

mod authenticate;
mod input;
pub mod legacy;
mod output;
mod prompt;
mod running_command;
mod session;
mod several;

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use self::authenticate::{Enter, TOKEN_NEEDED, TOKEN_QUESTION};
use self::input::ClientInput;
use self::output::{Out, pump};
use self::session::{ClientEnding, TERMINAL, TerminalSession};
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::telemetry::metrics::{Editor, Outcome, SessionProtocol};
use ray_relay_base::shutdown::DRAINING;
use ray_relay_session::context::Context;
use ray_relay_session::session::Session;
use ray_relay_session::session::state::SessionState;

/// Time limit for flushing the final output to the client, and for draining its input.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(700);

/// Time limit for a session to record its end after its client is gone.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves one connection.
pub async fn serve<S>(context: &Context, session: Session, stream: S, connection: ConnectionInfo)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    session.set_state(SessionProtocol::Terminal, SessionState::Handshake);
    session.set_client(TERMINAL.to_owned());
    session.set_editor(Editor::Terminal);
    let (ending, _busy) = Box::pin(connected(context, &session, stream, &connection)).await;
    let outcome = match ending {
        ClientEnding::Over(outcome) => outcome,
        ClientEnding::Parked(parked) => Box::pin(parked.wait()).await,
    };
    session.ended(outcome);
}

/// Serves the connection until it closes.
async fn connected<'a, S>(
    context: &'a Context,
    session: &'a Session,
    stream: S,
    connection: &ConnectionInfo,
) -> (ClientEnding<'a>, Option<TaskTrackerToken>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (reader, writer) = tokio::io::split(stream);
    let (out, pieces) = Out::new();
    let mut input = ClientInput::new(reader);
    let mut pumping = pin!(pump(pieces, writer, out.counts()));
    let counts = out.counts();
    let mut busy = None;
    let (ending, reads) = {
        let conversation = converse(context, session, connection, &mut input, out, &mut busy);
        let mut conversation = pin!(conversation);
        tokio::select! {
            ending = &mut conversation => (ending, true),
            // The client reads no more, which `Out::closed` reports. If this times out, dropping the conversation
            // resumes the task.
            () = &mut pumping => {
                let ending = timeout(END_TIMEOUT, conversation).await;
                (ending.unwrap_or(ClientEnding::Over(Outcome::Client)), false)
            }
        }
    };
    // Unread input makes the kernel reset a socket that is closed, and the client would lose the final output.
    if reads {
        let _ = timeout(FLUSH_TIMEOUT, pumping).await;
    }
    let _ = timeout(FLUSH_TIMEOUT, input.drain()).await;
    session.set_bytes(input.bytes(), counts.written());
    (ending, busy)
}

async fn converse<'a, R: AsyncRead + Unpin>(
    context: &'a Context,
    session: &'a Session,
    connection: &ConnectionInfo,
    input: &mut ClientInput<R>,
    out: Out,
    busy: &mut Option<TaskTrackerToken>,
) -> ClientEnding<'a> {
    let result = tokio::select! {
        result = authenticate::authenticate(context, session, connection, input, &out) => result,
        () = context.shutdown.drain.cancelled() => {
            out.notice(DRAINING).await;
            return ClientEnding::Over(Outcome::Drained);
        }
    };
    let (authenticated, first_command) = match result {
        Ok(result) => result,
        Err(outcome) => return ClientEnding::Over(outcome),
    };
    *busy = Some(context.shutdown.busy.token());
    session.set_principal(authenticated.principal.clone());
    out.count(context.account(&authenticated.principal));
    TerminalSession::new(context, session, authenticated, connection, input, out)
        .serve(first_command)
        .await
}

#[cfg(test)]
mod tests;
