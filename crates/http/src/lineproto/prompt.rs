//! The pdb prompt on a debugpy breakpoint: [`ray_relay_debugger::pdb`], with a client's lines and the worker's connection.
//!
//! What is typed while the task runs is done when it has stopped, in its order; only a line that leaves does not wait for
//! a stop that may never come. A client that is lost while the task stands leaves the prompt as it is.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::lineproto::input::{ClientInput, TOO_LONG, Typed};
use crate::lineproto::output::{Out, WorkerOutput};
use crate::lineproto::session::Log;
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::kept::Kept;
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_debugger::debugger::Worker;
use ray_relay_debugger::debugger::unattended::TerminalPrompt;
use ray_relay_debugger::pdb::{After, Options, Piece, Prompt, PromptEnd, PromptError, resumes};
use ray_relay_ray::ray::task_end::TaskEnd;

/// What a session of the relay's own for a person at a terminal is called.
pub(super) const CLIENT: &str = "ray-relay terminal";

/// Lines that are taken while the task runs.
pub(super) const AHEAD: usize = 64;
/// How long the last command of a client that has closed its half may run.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long an expression may take to end that is interrupted because its client is gone.
pub(super) const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a command may run before a line that leaves cuts it short: what `n` prints is still seen where `q` comes
/// right behind it.
const MOMENT: Duration = Duration::from_secs(1);
/// After this long it is said, once, how to get away from a task that runs.
pub(super) const HINT: Duration = Duration::from_secs(2);

/// How the conversation at a prompt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptOutcome {
    By(PromptEnd),
    /// The client is gone without a word about the task, which stands at the prompt.
    Lost,
}

/// What a prompt is opened on.
pub(super) enum Opening {
    /// A debugger that no client is attached to.
    New(Box<Prefixed<Worker>>),
    /// One that was parked as an editor had left it, and what it has said since.
    Kept(Box<Worker>, Kept),
    /// The same as a prompt had.
    Prompt(Box<TerminalPrompt>, Kept),
}

impl Opening {
    /// Where the task stands, where that is known already.
    pub(super) fn standing(&self) -> Option<String> {
        match self {
            Self::Prompt(prompt, _) => prompt.standing(),
            Self::Kept(..) | Self::New(_) => None,
        }
    }

    /// Writes to `out`, which has to be read meanwhile. Dropped, it lets the task run on.
    async fn open(
        self,
        options: &Options,
        out: mpsc::Sender<Piece>,
    ) -> Result<(TerminalPrompt, After), PromptError> {
        match self {
            Self::New(stream) => Prompt::open(*stream, options, out).await,
            Self::Prompt(prompt, kept) => prompt.go_on(options, out, kept).await,
            Self::Kept(worker, kept) => {
                let stream = Prefixed::new(Default::default(), *worker);
                Prompt::take_up(stream, options, out, kept).await
            }
        }
    }
}

/// A prompt that stands, and what it has to say.
pub(super) struct OpenedPrompt<S> {
    pub(super) prompt: Prompt<S>,
    pieces: mpsc::Receiver<Piece>,
}

/// Attaches, and shows where the task stands. Dropping it drops the connection, which lets the task run on.
///
/// # Errors
/// [`PromptError`].
pub(super) async fn attach(
    opening: Opening,
    shown: &mut WorkerOutput,
    (may_kill, account): (bool, Account),
) -> Result<(Box<OpenedPrompt<Prefixed<Worker>>>, Option<PromptEnd>), PromptError> {
    let (sender, pieces) = mpsc::channel(16);
    let options = options(may_kill, account);
    let opening = Box::pin(opening.open(&options, sender));
    opened(opening, pieces, shown).await
}

pub(super) fn options(may_kill: bool, account: Account) -> Options {
    Options {
        client: CLIENT.to_owned(),
        may_kill,
        account,
        ..Options::default()
    }
}

pub(super) async fn opened<S>(
    mut opening: impl Future<Output = Result<(Prompt<S>, After), PromptError>> + Unpin,
    mut pieces: mpsc::Receiver<Piece>,
    shown: &mut WorkerOutput,
) -> Result<(Box<OpenedPrompt<S>>, Option<PromptEnd>), PromptError> {
    let (prompt, after) = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => shown.text(piece.text()).await,
            opened = &mut opening => break opened?,
        }
    };
    show_all(&mut pieces, shown).await;
    let over = match after {
        After::Prompt => None,
        After::Ended(end) => Some(end),
    };
    Ok((Box::new(OpenedPrompt { prompt, pieces }), over))
}

async fn show_all(pieces: &mut mpsc::Receiver<Piece>, shown: &mut WorkerOutput) {
    while let Ok(piece) = pieces.try_recv() {
        shown.text(piece.text()).await;
    }
}

/// Runs the prompt until its end, or until its client is lost. Dropped, it leaves a prompt that is good for its end alone.
pub(super) async fn converse<S, R>(
    attached: &mut OpenedPrompt<S>,
    mut task: TaskEnd,
    input: &mut ClientInput<R>,
    out: &Out,
    shown: &mut WorkerOutput,
    log: &Log<'_>,
) -> PromptOutcome
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let OpenedPrompt { prompt, pieces } = attached;
    let mut ahead = VecDeque::new();
    let mut hinted = false;
    loop {
        shown.text(prompt.text()).await;
        let typed = match ahead.pop_front() {
            Some(typed) => typed,
            None => match typed(prompt, pieces, input, out, shown).await {
                Ok(typed) => typed,
                Err(end) => return PromptOutcome::By(end),
            },
        };
        let line = match typed {
            Typed::Line(line) => Typed::text(&line),
            Typed::TooLong => {
                out.notice(TOO_LONG).await;
                continue;
            }
            Typed::Interrupt => {
                if prompt.abort_definition() {
                    out.text("*** command definition aborted\n").await;
                }
                continue;
            }
            Typed::End => {
                prompt.abort_definition();
                return PromptOutcome::Lost;
            }
        };
        if let Err(why) = log.command(&line).await {
            out.notice(&why.to_string()).await;
            continue;
        }
        let interrupt = prompt.interrupter();
        task.resumed();
        let mut running = Box::pin(prompt.line(&line));
        let began = Instant::now();
        let may_leave = lets_run(&line);
        let (mut last_words, mut interrupted, mut gone) = (None, false, false);
        let after = loop {
            let leave_at = leave_at(ahead.front(), (began, may_leave), &mut last_words);
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => shown.text(piece.text()).await,
                after = &mut running => break Some(after),
                () = task.ended() => interrupt.task_ended(),
                () = sleep_until(leave_at.unwrap_or(began)), if leave_at.is_some() => {
                    let Some(Typed::Line(leave)) = ahead.front() else {
                        if may_leave || std::mem::replace(&mut interrupted, true) {
                            break None;
                        }
                        // Without its expression the task can be parked.
                        interrupt.now();
                        last_words = Some(Instant::now() + INTERRUPT_TIMEOUT);
                        continue;
                    };
                    match log.command(&Typed::text(leave)).await {
                        Ok(()) => break None,
                        Err(why) => {
                            ahead.pop_front();
                            out.notice(&why.to_string()).await;
                        }
                    }
                }
                () = sleep_until(began + HINT), if may_leave && !hinted => {
                    hinted = true;
                    out.text("[still running; quit leaves, and the task runs on]\n").await;
                }
                typed = input.next(), if ahead.len() < AHEAD && ahead.back() != Some(&Typed::End) => match typed {
                    Typed::Interrupt => {
                        // What was typed before is for a prompt that will be another one.
                        ahead.clear();
                        interrupt.now();
                    }
                    typed => ahead.push_back(typed),
                },
                () = out.closed(), if !gone => {
                    gone = true;
                    if may_leave {
                        break None;
                    }
                    ahead.clear();
                    ahead.push_back(Typed::End);
                    last_words = Some(Instant::now());
                }
            }
        };
        drop(running);
        task.stopped();
        show_all(pieces, shown).await;
        match after {
            // Who had the task run, and had nothing to say about what comes then, is done with it.
            Some(After::Prompt) if may_leave && ahead.front() == Some(&Typed::End) => {}
            Some(After::Prompt) => continue,
            Some(After::Ended(end)) => return PromptOutcome::By(end),
            None => {}
        }
        prompt.leave().await;
        return PromptOutcome::By(PromptEnd::Left);
    }
}

/// Whether `line` has a task run, and nothing else: what ends by itself, or has more to do after the stop, is not cut short.
pub(super) fn lets_run(line: &str) -> bool {
    resumes(line) && !line.contains(";;")
}

/// When a line that was begun then is left, where what comes `next` of the client wants that: it may leave one that
/// [lets the task run](lets_run). `last_words`: until when it may run for a client that has said all, once that is so.
pub(super) fn leave_at(
    next: Option<&Typed>,
    (began, may_leave): (Instant, bool),
    last_words: &mut Option<Instant>,
) -> Option<Instant> {
    match next {
        // No client is left that could stop it; one that only said all that there is to say sees what comes at once.
        Some(Typed::End) => Some(*last_words.get_or_insert_with(|| Instant::now() + LAST_WORDS)),
        Some(Typed::Line(next)) if may_leave && leaves(next) => Some(began + MOMENT),
        _ => None,
    }
}

/// A line that does nothing but leave. `q!`, which ends the worker, is none: it waits for its turn.
pub(super) fn leaves(line: &[u8]) -> bool {
    let line = Typed::text(line);
    matches!(line.trim(), "q" | "quit" | "exit" | "detach" | "EOF")
}

/// What is typed next, or how the session ended while that was awaited.
async fn typed<S, R>(
    prompt: &mut Prompt<S>,
    pieces: &mut mpsc::Receiver<Piece>,
    input: &mut ClientInput<R>,
    out: &Out,
    shown: &mut WorkerOutput,
) -> Result<Typed, PromptEnd>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    loop {
        tokio::select! {
            typed = input.next() => return Ok(typed),
            () = out.closed() => return Ok(Typed::End),
            Some(piece) = pieces.recv() => shown.text(piece.text()).await,
            end = prompt.idle() => return Err(end),
        }
    }
}
