//! Who a client is: before it is told anything.

use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use super::input::{Input, Typed};
use super::output::Out;
use super::telnet::{ECHO_OFF, ECHO_ON};
use crate::connection::ConnectionInfo;
use crate::context::Context;
use crate::identity::{AuthError, Principal, Secret};
use crate::session::{Session, audit};
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};

/// What somebody is told first who has to show a token. `ray-relay debug` knows by it that it talks to a relay, and to
/// no worker that wants to hear one.
pub(crate) const TOKEN_NEEDED: &str = "ray-relay: a token is needed here.\n";
/// What a token is asked for with, each time.
pub(crate) const TOKEN_QUESTION: &str = "token: ";
/// Wrong tokens, and then the connection is closed.
const TRIES: usize = 3;
/// Lines that are none, such as the Enter by which a person shows up.
const LINES: usize = 10;
/// How long somebody may take to find a token.
const PATIENCE: Duration = Duration::from_secs(60);

/// Somebody who was recognised.
pub(super) struct Guest {
    pub(super) principal: Principal,
    /// `enter ID` was said first.
    pub(super) enter: Option<String>,
}

/// What `enter ID` names: how a program says at once what it is here for.
pub(super) fn enters(line: &str) -> Option<&str> {
    let id = line.strip_prefix("enter ")?.trim();
    (!id.is_empty() && !id.contains(char::is_whitespace)).then_some(id)
}

/// Asks for a token where one is needed. An error has been told to the client.
pub(super) async fn recognise<R: AsyncRead + Unpin>(
    context: &Context,
    session: &Session,
    connection: &ConnectionInfo,
    input: &mut Input<R>,
    out: &Out,
) -> Result<Guest, Outcome> {
    let known = connection.certificate.clone();
    if let Some(principal) = known.or_else(|| context.auth.anonymous()) {
        // A certificate was looked at when the connection began.
        if let Some(ended) = principal.is_over() {
            out.notice(&ended.to_string()).await;
            return Err(Outcome::Refused);
        }
        let enter = input.take_if(|line| enters(line).map(str::to_owned)).await;
        return Ok(Guest { principal, enter });
    }
    let deadline = Instant::now() + PATIENCE;
    let asked = timeout_at(deadline, ask(context, session, input, out)).await;
    asked.unwrap_or_else(|_| {
        context.metrics.refused(RefusalKind::Client);
        out.farewell("this connection is closed, because no token came in time");
        Err(Outcome::Refused)
    })
}

async fn ask<R: AsyncRead + Unpin>(
    context: &Context,
    session: &Session,
    input: &mut Input<R>,
    out: &Out,
) -> Result<Guest, Outcome> {
    input.glance().await;
    out.text(TOKEN_NEEDED).await;
    let mut enter = None;
    let (mut tries, mut lines) = (0, 0);
    while tries < TRIES && lines < LINES {
        lines += 1;
        let hidden = input.is_telnet();
        if hidden {
            out.command(&ECHO_OFF).await;
        }
        out.text(TOKEN_QUESTION).await;
        let typed = input.next().await;
        if hidden {
            out.command(&ECHO_ON).await;
            out.text("\n").await;
        }
        let line = match typed {
            Typed::Line(line) => Typed::text(&line).trim().to_owned(),
            Typed::TooLong => "x".to_owned(),
            Typed::Interrupt | Typed::End => return Err(Outcome::Client),
        };
        if line.is_empty() {
            continue;
        }
        if let Some(id) = enters(&line) {
            enter = Some(id.to_owned());
            continue;
        }
        tries += 1;
        let token = Secret::new(line);
        let why = match context.auth.token(&token, session.peer().ip()).await {
            Ok(principal) => return Ok(Guest { principal, enter }),
            Err(why) => why,
        };
        info!(%why, "client not recognised");
        audit::unrecognised(
            &context.audit,
            session.peer(),
            SessionProtocol::Terminal,
            &why,
        )
        .await;
        context.metrics.refused(match why {
            AuthError::Throttled { .. } => RefusalKind::Limited,
            _ => RefusalKind::Forbidden,
        });
        out.notice(&why.to_string()).await;
        if matches!(why, AuthError::Throttled { .. }) {
            break;
        }
    }
    Err(Outcome::Refused)
}
