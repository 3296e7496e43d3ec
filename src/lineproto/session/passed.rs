//! Passing a person on to the process from which this one has taken over, where the session with what they pick is parked.
//!
//! Who they are and what they may do is decided there, by what they have said here, which is said again. From then on lines
//! pass, and what is shown.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::timeout;
use tracing::info;

use super::{NextPrompt, TerminalSession};
use crate::lineproto::authenticate::Enter;
use crate::lineproto::input::{TOO_LONG, Typed};
use crate::lineproto::{TOKEN_NEEDED, TOKEN_QUESTION};
use crate::session::state::SessionState;
use crate::takeover::OwningProcess;
use crate::telemetry::metrics::{Outcome, SessionProtocol};

/// How long the other process may take a line.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interrupt key as a client sends it that sends each key.
const INTERRUPT: &[u8] = b"\x03";

impl<R: AsyncRead + Unpin> TerminalSession<'_, '_, R> {
    /// Passes the client, which enters a breakpoint as `enter` says, on to `home`, to the end of either.
    pub(super) async fn pass_on(&mut self, enter: &Enter, home: &OwningProcess) -> NextPrompt {
        self.session
            .set_state(SessionProtocol::Terminal, SessionState::PassedOn);
        let pid = home.pid();
        info!(pid, "forwarded to the predecessor, which owns the session");
        let Some(far) = home.pass(self.connection) else {
            return NextPrompt::Ended(Outcome::Failed);
        };
        let (mut from, to) = far.into_split();
        let mut to = Some(to);
        let token = self.token.as_ref();
        let token = token.map_or(String::new(), |token| format!("{}\n", token.expose()));
        let said = format!("{enter}\n{token}");
        write(&mut to, said.as_bytes()).await;
        // It asks for the token before it has read that line, and after it.
        let mut asked = match token.is_empty() {
            true => String::new(),
            false => [TOKEN_NEEDED, TOKEN_QUESTION, TOKEN_QUESTION].concat(),
        };
        let mut bytes = BytesMut::with_capacity(4096);
        loop {
            bytes.clear();
            tokio::select! {
                read = from.read_buf(&mut bytes) => {
                    if !matches!(read, Ok(1..)) {
                        return NextPrompt::Ended(Outcome::Client);
                    }
                    let most = asked.len().min(bytes.len());
                    if asked.as_bytes()[..most] == bytes[..most] {
                        asked.drain(..most);
                        self.out.raw(&bytes[most..]).await;
                    } else {
                        asked.clear();
                        self.out.raw(&bytes).await;
                    }
                }
                typed = self.input.next(), if to.is_some() => match typed {
                    Typed::Line(line) => write(&mut to, &line).await,
                    Typed::Interrupt => write(&mut to, INTERRUPT).await,
                    Typed::TooLong => self.out.notice(TOO_LONG).await,
                    Typed::End => to = None,
                },
                () = self.out.closed() => return NextPrompt::Ended(Outcome::Client),
                () = self.context.shutdown.abort.cancelled() => return NextPrompt::Ended(Outcome::Drained),
            }
        }
    }
}

/// Says `bytes` there, whose end is said where they are not taken.
async fn write(to: &mut Option<OwnedWriteHalf>, bytes: &[u8]) {
    if let Some(half) = to
        && !matches!(timeout(PATIENCE, half.write_all(bytes)).await, Ok(Ok(())))
    {
        *to = None;
    }
}
