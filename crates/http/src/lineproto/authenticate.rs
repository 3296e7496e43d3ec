//! Authenticates a client, before it learns anything.

use std::fmt;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};

use crate::lineproto::input::{ClientInput, Typed};
use crate::lineproto::output::Out;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::{AuthError, Secret};
use ray_relay_session::context::Context;

use ray_relay_access::telemetry::metrics::{Outcome, RefusalKind};
use ray_relay_ray::ray::registry::names_worker;
use ray_relay_session::session::Session;
use ray_relay_session::session::authenticate::{
    Authenticated, Authentication, NotAuthenticated, PresentedCredential, Purpose,
};

/// First line to a client that needs a token. By it, `ray-relay debug` recognizes a relay, and not a worker that waits
/// for one.
pub const TOKEN_NEEDED: &str = "ray-relay: a token is needed here.\n";
/// Question for a token, on each try.
pub const TOKEN_QUESTION: &str = "token: ";
/// Wrong tokens before the connection is closed.
const MAX_ATTEMPTS: usize = 3;
/// Maximum number of lines, including those without a token such as an initial Enter.
const MAX_LINES: usize = 10;
/// Time limit for entering a token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(60);

/// The request `enter ID`, by which a program goes straight to a breakpoint. `enter ID take-over` is for a session that
/// another user has parked.
pub struct Enter {
    pub id: String,
    pub take_over: bool,
}

impl Enter {
    /// Returns `None` for any other line.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("enter ")?.split_whitespace();
        let id = words.next()?.to_owned();
        let take_over = match words.next() {
            None => false,
            Some("take-over") => true,
            Some(_) => return None,
        };
        words.next().is_none().then_some(Self { id, take_over })
    }
}

/// Formats the request as its line, without the line ending.
impl fmt::Display for Enter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let takes_over = if self.take_over { " take-over" } else { "" };
        write!(f, "enter {}{takes_over}", self.id)
    }
}

/// The request `running WORKER REASON`: the worker whose task is to be stopped, and the reason for the audit log.
pub(super) struct StopRunning {
    pub(super) worker: String,
    pub(super) reason: Option<String>,
}

impl StopRunning {
    /// Returns `None` for any other line.
    fn read(line: &str) -> Option<Self> {
        let arguments = line.strip_prefix("running ")?.trim();
        let (worker, reason) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
        names_worker(worker).then(|| Self {
            worker: worker.to_owned(),
            reason: reason.map(str::to_owned),
        })
    }
}

/// Parses `all WORDS`: returns the words that select tasks for one prompt. No words select all that wait.
pub(super) fn words_of_all(line: &str) -> Option<&str> {
    let words = line.trim().strip_prefix("all")?;
    let is_word = words.is_empty() || words.starts_with(char::is_whitespace);
    is_word.then(|| words.trim())
}

/// A request that a program sends first, in place of picking from the list.
pub(super) enum FirstCommand {
    Enter(Enter),
    Stop(StopRunning),
    All(String),
}

impl FirstCommand {
    /// Returns `None` for any other line.
    pub(super) fn read(line: &str) -> Option<Self> {
        let enter = Enter::read(line).map(Self::Enter);
        let stop = || StopRunning::read(line).map(Self::Stop);
        let all = || words_of_all(line).map(|words| Self::All(words.to_owned()));
        enter.or_else(stop).or_else(all)
    }
}

/// Identifies the client, and returns its first command if it sent one. Asks for a token where one is needed. On an
/// error the client has been notified.
pub(super) async fn authenticate<R: AsyncRead + Unpin>(
    context: &Context,
    session: &Session,
    connection: &ConnectionInfo,
    input: &mut ClientInput<R>,
    out: &Out,
) -> Result<(Authenticated, Option<FirstCommand>), Outcome> {
    let deadline = Instant::now() + TOKEN_TIMEOUT;
    let authentication = context.authentication(connection, Purpose::Session(session), deadline);
    if authentication.needs_credential() {
        let authenticated = timeout_at(deadline, ask_for_token(&authentication, input, out)).await;
        return authenticated.unwrap_or_else(|_| {
            context.metrics.refused(RefusalKind::Client);
            out.final_notice("this connection is closed, because no token came in time");
            Err(Outcome::Refused)
        });
    }
    match authentication
        .authenticate(PresentedCredential::Nothing)
        .await
    {
        Ok(authenticated) => {
            let first_command = input.take_if(FirstCommand::read).await;
            Ok((authenticated, first_command))
        }
        Err(why) => {
            out.notice(&connection.summary.refusal(&why.to_string()))
                .await;
            Err(Outcome::Refused)
        }
    }
}

async fn ask_for_token<R: AsyncRead + Unpin>(
    authentication: &Authentication<'_>,
    input: &mut ClientInput<R>,
    out: &Out,
) -> Result<(Authenticated, Option<FirstCommand>), Outcome> {
    input.read_arrived().await;
    out.text(TOKEN_NEEDED).await;
    let mut first_command = None;
    let (mut tries, mut lines) = (0, 0);
    while tries < MAX_ATTEMPTS && lines < MAX_LINES {
        lines += 1;
        out.text(TOKEN_QUESTION).await;
        let line = match input.next().await {
            Typed::Line(line) => Typed::text(&line).trim().to_owned(),
            Typed::TooLong => "x".to_owned(),
            Typed::Interrupt | Typed::End => return Err(Outcome::Client),
        };
        if line.is_empty() {
            continue;
        }
        if let Some(parsed) = FirstCommand::read(&line) {
            first_command = Some(parsed);
            continue;
        }
        tries += 1;
        let token = PresentedCredential::Token(Secret::new(line));
        let why = match authentication.authenticate(token).await {
            Ok(authenticated) => return Ok((authenticated, first_command)),
            Err(why) => why,
        };
        let summary = &authentication.connection.summary;
        out.notice(&summary.refusal(&why.to_string())).await;
        match why {
            NotAuthenticated::Credential(AuthError::Throttled { .. }, _)
            | NotAuthenticated::Crowded(_) => break,
            NotAuthenticated::Credential(..) | NotAuthenticated::Ended(_) => {}
        }
    }
    Err(Outcome::Refused)
}
