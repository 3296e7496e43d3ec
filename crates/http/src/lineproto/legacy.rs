//! The prompt of Ray's legacy debugger: relays its socket unchanged.
//!
//! Connecting enters that breakpoint for good, and closing the connection makes the task fail. So the relay dials only
//! once a client picks the breakpoint, and [`LegacySession`] always sends `c` before it closes.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep, sleep_until};

use crate::lineproto::input::{ClientInput, TOO_LONG, Typed};
use crate::lineproto::output::{Out, WorkerOutput};
use crate::lineproto::session::Log;
use ray_relay_debugger::debugger::legacy::LegacySession;
use ray_relay_debugger::pdb::resumes;

/// Maximum number of typed bytes that wait for the prompt to read them.
const MAX_PENDING_BYTES: usize = 64 << 10;
/// Without output, how often to check whether the task is paused and whether more input fits.
const STATE_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a half-closed client still receives output.
const HALF_CLOSED_PERIOD: Duration = Duration::from_secs(10);

/// Answer to the first `q`.
const QUIT_WARNING: &str =
    "leaving with q makes the task fail (BdbQuit); c lets it run on. Say it again to have it fail";

/// How the relaying ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegacyOutcome {
    /// The prompt closed: the task resumed, or failed by `q`.
    Closed,
    /// The connection to the prompt failed.
    Broken,
    /// The prompt closed after `remote` or `get`: another one may follow.
    Continues,
    /// The client quit.
    Left,
    /// The client is gone, with the task paused at the prompt.
    Lost,
}

/// Shows the output that arrived while no client was connected, and the prompt's question.
pub(super) async fn show_missed(
    entered: &mut LegacySession,
    out: &Out,
    worker_output: &mut WorkerOutput,
) {
    let (cut, missed) = entered.take_missed();
    if cut > 0 {
        out.notice(&format!("{cut} bytes of output were dropped meanwhile"))
            .await;
    }
    worker_output.raw(&missed).await;
    if !missed.ends_with(entered.question()) {
        worker_output.raw(entered.question()).await;
    }
}

/// State of relaying a prompt.
#[derive(Default)]
struct LegacyRelay {
    last_command: String,
    /// Whether the client was warned that `q` makes the task fail.
    warned: bool,
    /// When to detach. Set once the client's input has ended.
    detach_at: Option<Instant>,
    /// Whether the task was resumed because the client's input has ended.
    resumed: bool,
}

/// Relays until one side closes. Cancel safe: the task resumes when `entered` is dropped.
pub(super) async fn relay<R: AsyncRead + Unpin>(
    entered: &mut LegacySession,
    input: &mut ClientInput<R>,
    out: &Out,
    worker_output: &mut WorkerOutput,
    log: &Log<'_>,
) -> LegacyOutcome {
    let mut bytes = BytesMut::with_capacity(4096);
    let mut state = LegacyRelay::default();
    loop {
        let detaching = state.detach_at.is_some();
        // Input already typed is answered first.
        if detaching && !state.resumed && entered.is_paused() {
            return LegacyOutcome::Lost;
        }
        let until = state.detach_at.unwrap_or_else(Instant::now);
        let listening = !detaching && entered.pending() < MAX_PENDING_BYTES;
        bytes.clear();
        let typed = tokio::select! {
            read = entered.receive(&mut bytes) => match read {
                Ok(1..) => {
                    worker_output.raw(&bytes).await;
                    continue;
                }
                end => {
                    return match (detaching, &*state.last_command) {
                        (false, "remote" | "get") => LegacyOutcome::Continues,
                        (false, _) if end.is_err() => LegacyOutcome::Broken,
                        (false, _) => LegacyOutcome::Closed,
                        (true, _) => LegacyOutcome::Left,
                    };
                }
            },
            typed = input.next(), if listening => typed,
            () = out.closed(), if !detaching => Typed::End,
            () = sleep(STATE_CHECK_INTERVAL) => continue,
            () = sleep_until(until), if detaching => return LegacyOutcome::Left,
        };
        state.typed(typed, entered, out, worker_output, log).await;
    }
}

impl LegacyRelay {
    /// Handles input of the client.
    async fn typed(
        &mut self,
        typed: Typed,
        entered: &mut LegacySession,
        out: &Out,
        worker_output: &mut WorkerOutput,
        log: &Log<'_>,
    ) {
        match typed {
            // The connection broke in the middle of a line: ignore the fragment.
            Typed::Line(line) if !line.ends_with(b"\n") => {}
            Typed::Line(line) => {
                let text = Typed::text(&line);
                let command = text.trim();
                let quits = matches!(command, "q" | "quit" | "exit" | "EOF");
                if quits && !std::mem::replace(&mut self.warned, true) {
                    out.notice(QUIT_WARNING).await;
                    worker_output.raw(entered.question()).await;
                    return;
                }
                self.warned = quits;
                if let Err(why) = log.command(&text).await {
                    out.notice(&why.to_string()).await;
                    worker_output.raw(entered.question()).await;
                    return;
                }
                if !command.is_empty() {
                    command.clone_into(&mut self.last_command);
                }
                entered.say(&line);
            }
            Typed::TooLong => {
                out.notice(TOO_LONG).await;
                worker_output.raw(entered.question()).await;
            }
            Typed::Interrupt => {
                out.notice("the legacy debugger cannot interrupt a task")
                    .await;
                worker_output.raw(entered.question()).await;
            }
            Typed::End => {
                // The last command resumed the task, and the input has ended: resume it at its next stop too.
                if !entered.asks() && resumes(&self.last_command) {
                    entered.say(b"c\n");
                    self.resumed = true;
                }
                self.detach_at = Some(Instant::now() + HALF_CLOSED_PERIOD);
            }
        }
    }
}
