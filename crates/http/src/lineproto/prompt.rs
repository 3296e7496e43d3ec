//! The pdb prompt on a debugpy breakpoint: [`ray_relay_debugger::pdb`], with a client's lines and the worker's connection.
//!
//! What is typed while the task runs is done when it has stopped, in its order; only a line that leaves does not wait for
//! a stop that may never come. A client that is lost while the task stands leaves the prompt as it is.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::lineproto::input::{ClientInput, TOO_LONG, Typed};
use crate::lineproto::output::{Out, WorkerOutput};
use crate::lineproto::running_command::{Due, RunningCommand, lets_run, takes_more};
use crate::lineproto::session::Log;
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_debugger::debugger::Worker;
use ray_relay_debugger::debugger::unattended::TerminalPrompt;
use ray_relay_debugger::pdb::{After, Options, Piece, Prompt, PromptEnd, PromptError};
use ray_relay_ray::ray::task_end::TaskEnd;

/// What a session of the relay's own for a person at a terminal is called.
pub(super) const CLIENT: &str = "ray-relay terminal";

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
    Kept(Box<Worker>, StoredMessages),
    /// The same as a prompt had.
    Prompt(Box<TerminalPrompt>, StoredMessages),
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
            Self::Prompt(prompt, kept) => prompt.resume_park(options, out, kept).await,
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
    let mut ahead = VecDeque::new();
    let mut is_hinted = false;
    loop {
        let prompt = &mut attached.prompt;
        shown.text(prompt.text()).await;
        let typed = match ahead.pop_front() {
            Some(typed) => typed,
            None => match typed(prompt, &mut attached.pieces, input, out, shown).await {
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
        task.resumed();
        let client = Client { input, out, log };
        let told = (&mut *shown, &mut is_hinted);
        let done = run(attached, &line, &mut task, client, &mut ahead, told).await;
        task.stopped();
        show_all(&mut attached.pieces, shown).await;
        match done {
            // Who had the task run, and had nothing to say about what comes then, is done with it.
            Some(After::Prompt) if lets_run(&line) && ahead.front() == Some(&Typed::End) => {}
            Some(After::Prompt) => continue,
            Some(After::Ended(end)) => return PromptOutcome::By(end),
            None => {}
        }
        attached.prompt.leave().await;
        return PromptOutcome::By(PromptEnd::Left);
    }
}

/// Who is at the prompt.
struct Client<'a, 'l, R> {
    input: &'a mut ClientInput<R>,
    out: &'a Out,
    log: &'a Log<'l>,
}

/// Has `line` done, shows what it prints, and takes what is typed `ahead` meanwhile. `None`: the prompt is to be left before it is
/// done.
async fn run<S, R>(
    attached: &mut OpenedPrompt<S>,
    line: &str,
    task: &mut TaskEnd,
    client: Client<'_, '_, R>,
    ahead: &mut VecDeque<Typed>,
    (shown, is_hinted): (&mut WorkerOutput, &mut bool),
) -> Option<After>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let OpenedPrompt { prompt, pieces } = attached;
    let Client { input, out, log } = client;
    let interrupt = prompt.interrupter();
    let mut command = RunningCommand::new(line);
    let mut running = Box::pin(prompt.line(line));
    loop {
        let deadline = command.deadline(ahead.front());
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => shown.text(piece.text()).await,
            after = &mut running => return Some(after),
            () = task.ended() => interrupt.task_ended(),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                // A line that leaves is on record as every other one.
                let leave = match ahead.front() {
                    Some(Typed::Line(leave)) => log.command(&Typed::text(leave)).await,
                    _ => match command.due() {
                        Due::Leave => Ok(()),
                        Due::Interrupt => {
                            interrupt.now();
                            continue;
                        }
                    },
                };
                let Err(why) = leave else {
                    return None;
                };
                ahead.pop_front();
                out.notice(&why.to_string()).await;
            }
            () = sleep_until(command.hint_at()), if command.may_leave && !*is_hinted => {
                *is_hinted = true;
                out.text("[still running; quit leaves, and the task runs on]\n").await;
            }
            typed = input.next(), if takes_more(ahead) => match typed {
                Typed::Interrupt => {
                    // What was typed before is for a prompt that will be another one.
                    ahead.clear();
                    interrupt.now();
                }
                typed => ahead.push_back(typed),
            },
            () = out.closed(), if command.has_client() => if command.client_gone(ahead) {
                return None;
            },
        }
    }
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
