//! The pdb prompt on a debugpy breakpoint: connects [`ray_relay_debugger::pdb`] to a client's lines and a worker's
//! connection.
//!
//! Lines typed while the task runs are executed in order once it stops. Only a line that quits does not wait, since the
//! stop may never come. If the client is lost while the task is paused, the prompt stays as it is.

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

/// Client name of the relay's own terminal sessions.
pub(super) const CLIENT: &str = "ray-relay terminal";

/// How the conversation at a prompt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptOutcome {
    Ended(PromptEnd),
    /// The client is gone, with the task paused at the prompt.
    Lost,
}

/// The state from which a prompt starts.
pub(super) enum Opening {
    /// A debugger without a client.
    New(Box<Prefixed<Worker>>),
    /// A debugger parked by an editor, with the messages stored since.
    Kept(Box<Worker>, StoredMessages),
    /// A debugger parked by a prompt, with the messages stored since.
    Prompt(Box<TerminalPrompt>, StoredMessages),
}

impl Opening {
    /// The location at which the task is paused, if known.
    pub(super) fn standing(&self) -> Option<String> {
        match self {
            Self::Prompt(prompt, _) => prompt.standing(),
            Self::Kept(..) | Self::New(_) => None,
        }
    }

    /// Opens the prompt. `out` must be read concurrently. Dropping the future resumes the task.
    async fn open(
        self,
        options: &Options,
        out: mpsc::Sender<Piece>,
    ) -> Result<(TerminalPrompt, After), PromptError> {
        match self {
            Self::New(stream) => Prompt::open(*stream, options, out).await,
            Self::Prompt(prompt, state) => prompt.resume_park(options, out, state).await,
            Self::Kept(worker, state) => {
                let stream = Prefixed::new(Default::default(), *worker);
                Prompt::take_up(stream, options, out, state).await
            }
        }
    }
}

/// An open prompt, and its pending output.
pub(super) struct OpenedPrompt<S> {
    pub(super) prompt: Prompt<S>,
    pieces: mpsc::Receiver<Piece>,
}

/// Attaches, and shows where the task is paused. Dropping it drops the connection, which resumes the task.
///
/// # Errors
/// [`PromptError`].
pub(super) async fn attach(
    opening: Opening,
    options: &Options,
    worker_output: &mut WorkerOutput,
) -> Result<(Box<OpenedPrompt<Prefixed<Worker>>>, Option<PromptEnd>), PromptError> {
    let (sender, pieces) = mpsc::channel(16);
    let opening = Box::pin(opening.open(options, sender));
    opened(opening, pieces, worker_output).await
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
    worker_output: &mut WorkerOutput,
) -> Result<(Box<OpenedPrompt<S>>, Option<PromptEnd>), PromptError> {
    let (prompt, after) = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => worker_output.text(piece.text()).await,
            opened = &mut opening => break opened?,
        }
    };
    show_all(&mut pieces, worker_output).await;
    let over = match after {
        After::Prompt => None,
        After::Ended(end) => Some(end),
    };
    Ok((Box::new(OpenedPrompt { prompt, pieces }), over))
}

async fn show_all(pieces: &mut mpsc::Receiver<Piece>, worker_output: &mut WorkerOutput) {
    while let Ok(piece) = pieces.try_recv() {
        worker_output.text(piece.text()).await;
    }
}

/// Runs the prompt until it ends or its client is lost. If dropped, the prompt can only be ended.
pub(super) async fn converse<S, R>(
    attached: &mut OpenedPrompt<S>,
    mut task: TaskEnd,
    input: &mut ClientInput<R>,
    out: &Out,
    worker_output: &mut WorkerOutput,
    log: &Log<'_>,
) -> PromptOutcome
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let mut client = Client {
        input,
        out,
        worker_output,
        log,
        ahead: VecDeque::new(),
        is_hinted: false,
    };
    loop {
        client.worker_output.text(attached.prompt.text()).await;
        let typed = match client.ahead.pop_front() {
            Some(typed) => typed,
            None => match client.typed(attached).await {
                Ok(typed) => typed,
                Err(end) => return PromptOutcome::Ended(end),
            },
        };
        let line = match typed {
            Typed::Line(line) => Typed::text(&line),
            Typed::TooLong => {
                out.notice(TOO_LONG).await;
                continue;
            }
            Typed::Interrupt => {
                if attached.prompt.abort_definition() {
                    out.text("*** command definition aborted\n").await;
                }
                continue;
            }
            Typed::End => {
                attached.prompt.abort_definition();
                return PromptOutcome::Lost;
            }
        };
        if let Err(why) = log.command(&line).await {
            out.notice(&why.to_string()).await;
            continue;
        }
        task.resumed();
        let done = client.run(attached, &line, &mut task).await;
        task.stopped();
        show_all(&mut attached.pieces, client.worker_output).await;
        match done {
            // The last command resumed the task, and the client closed its input: detach.
            Some(After::Prompt) if lets_run(&line) && client.ahead.front() == Some(&Typed::End) => {
            }
            Some(After::Prompt) => continue,
            Some(After::Ended(end)) => return PromptOutcome::Ended(end),
            None => {}
        }
        attached.prompt.leave().await;
        return PromptOutcome::Ended(PromptEnd::Left);
    }
}

/// The client at a prompt.
struct Client<'a, 'l, R> {
    input: &'a mut ClientInput<R>,
    out: &'a Out,
    worker_output: &'a mut WorkerOutput,
    log: &'a Log<'l>,
    /// Input typed while the task ran.
    ahead: VecDeque<Typed>,
    /// Whether the client was told how to detach from a running task.
    is_hinted: bool,
}

impl<R: AsyncRead + Unpin> Client<'_, '_, R> {
    /// Executes `line`, shows its output, and collects the input typed meanwhile. `None`: detach before the line is
    /// finished.
    async fn run<S>(
        &mut self,
        attached: &mut OpenedPrompt<S>,
        line: &str,
        task: &mut TaskEnd,
    ) -> Option<After>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let OpenedPrompt { prompt, pieces } = attached;
        let Self {
            input,
            out,
            worker_output,
            log,
            ahead,
            is_hinted,
        } = self;
        let interrupt = prompt.interrupter();
        let mut command = RunningCommand::new(line);
        let mut running = Box::pin(prompt.line(line));
        loop {
            let deadline = command.deadline(ahead.front());
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => worker_output.text(piece.text()).await,
                after = &mut running => return Some(after),
                () = task.ended() => interrupt.task_ended(),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    // A line that quits is audited like any other.
                    let recorded = match ahead.front() {
                        Some(Typed::Line(line)) => log.command(&Typed::text(line)).await,
                        _ => match command.due() {
                            Due::Leave => Ok(()),
                            Due::Interrupt => {
                                interrupt.now();
                                continue;
                            }
                        },
                    };
                    let Err(why) = recorded else {
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
                        // Earlier input was meant for a prompt that will not come.
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

    /// Returns the next input, or how the session ended while waiting for it.
    async fn typed<S>(&mut self, attached: &mut OpenedPrompt<S>) -> Result<Typed, PromptEnd>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let OpenedPrompt { prompt, pieces } = attached;
        loop {
            tokio::select! {
                typed = self.input.next() => return Ok(typed),
                () = self.out.closed() => return Ok(Typed::End),
                Some(piece) = pieces.recv() => self.worker_output.text(piece.text()).await,
                end = prompt.idle() => return Err(end),
            }
        }
    }
}
