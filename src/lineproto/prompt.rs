//! The pdb prompt on a debugpy breakpoint: [`crate::pdb`], with a client's lines and the worker's connection.
//!
//! What is typed while the task runs is done when it has stopped, in its order; only a line that leaves does not wait for
//! a stop that may never come.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::lineproto::input::{Input, Typed};
use crate::lineproto::output::{Out, Shown};
use crate::lineproto::session::Log;
use crate::pdb::{After, End, Options, Piece, Prompt, PromptError, resumes};
use crate::session::TaskEnd;

/// Lines that are taken while the task runs.
const AHEAD: usize = 64;
/// After this long without output, what has come is shown.
const QUIET: Duration = Duration::from_millis(200);
/// How long the last command of a client that has closed its half may run.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long a command may run before a line that leaves cuts it short: what `n` prints is still seen where `q` comes
/// right behind it.
const MOMENT: Duration = Duration::from_secs(1);
/// After this long it is said, once, how to get away from a task that runs.
const HINT: Duration = Duration::from_secs(2);

/// Attaches and runs the prompt until its end. Dropping it drops the connection, which lets the task run on.
pub(super) async fn run<S, R>(
    stream: S,
    input: &mut Input<R>,
    out: &Out,
    shown: &mut Shown,
    log: &Log<'_>,
    task: TaskEnd,
    may_kill: bool,
) -> Result<End, PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let (sender, mut pieces) = mpsc::channel(16);
    let options = Options {
        client: "ray-relay terminal".to_owned(),
        may_kill,
        ..Options::default()
    };
    let mut opening = Box::pin(Prompt::open(stream, &options, sender));
    let (mut prompt, after) = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => shown.text(piece.text()).await,
            opened = &mut opening => break opened?,
        }
    };
    drop(opening);
    show_all(&mut pieces, shown).await;
    match after {
        After::Prompt => Ok(converse(&mut prompt, &mut pieces, task, input, out, shown, log).await),
        After::Ended(end) => Ok(end),
    }
}

async fn show_all(pieces: &mut mpsc::Receiver<Piece>, shown: &mut Shown) {
    while let Ok(piece) = pieces.try_recv() {
        shown.text(piece.text()).await;
    }
}

async fn converse<S, R>(
    prompt: &mut Prompt<S>,
    pieces: &mut mpsc::Receiver<Piece>,
    mut task: TaskEnd,
    input: &mut Input<R>,
    out: &Out,
    shown: &mut Shown,
    log: &Log<'_>,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let mut ahead = VecDeque::new();
    let mut hinted = false;
    loop {
        shown.text(prompt.text()).await;
        shown.quiet().await;
        let typed = match ahead.pop_front() {
            Some(typed) => typed,
            None => match typed(prompt, pieces, input, shown).await {
                Ok(typed) => typed,
                Err(end) => return end,
            },
        };
        let line = match typed {
            Typed::Line(line) => Typed::text(&line),
            Typed::TooLong => {
                out.notice("a line may have 4096 bytes; this one is dropped")
                    .await;
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
                prompt.leave().await;
                return End::Left;
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
        // What ends by itself, or has more to do after the stop, is not cut short.
        let may_leave = resumes(&line) && !line.contains(";;");
        let mut last_words = None;
        let after = loop {
            let leave_at = match ahead.front() {
                // Nobody is left who could stop it; whoever only said all that there is to say sees what comes at once.
                Some(Typed::End) => {
                    Some(*last_words.get_or_insert_with(|| Instant::now() + LAST_WORDS))
                }
                Some(Typed::Line(next)) if may_leave && leaves(next) => Some(began + MOMENT),
                _ => None,
            };
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => shown.text(piece.text()).await,
                after = &mut running => break Some(after),
                () = task.ended() => interrupt.task_ended(),
                () = sleep_until(leave_at.unwrap_or(began)), if leave_at.is_some() => {
                    let Some(Typed::Line(leave)) = ahead.front() else {
                        break None;
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
                    shown.quiet().await;
                    let interrupts = if input.is_telnet() { "Ctrl-C interrupts, " } else { "" };
                    out.text(&format!("[still running; {interrupts}quit leaves, and the task runs on]\n")).await;
                }
                typed = input.next(), if ahead.len() < AHEAD && ahead.back() != Some(&Typed::End) => match typed {
                    Typed::Interrupt => {
                        // What was typed before is for a prompt that will be another one.
                        ahead.clear();
                        interrupt.now();
                    }
                    typed => ahead.push_back(typed),
                },
                () = sleep(QUIET) => shown.quiet().await,
            }
        };
        drop(running);
        task.stopped();
        show_all(pieces, shown).await;
        match after {
            Some(After::Prompt) => {}
            Some(After::Ended(end)) => return end,
            None => {
                prompt.leave().await;
                return End::Left;
            }
        }
    }
}

/// A line that does nothing but leave. `q!`, which ends the worker, is none: it waits for its turn.
fn leaves(line: &[u8]) -> bool {
    let line = Typed::text(line);
    matches!(line.trim(), "q" | "quit" | "exit" | "detach" | "EOF")
}

/// What is typed next, or how the session ended while that was awaited.
async fn typed<S, R>(
    prompt: &mut Prompt<S>,
    pieces: &mut mpsc::Receiver<Piece>,
    input: &mut Input<R>,
    shown: &mut Shown,
) -> Result<Typed, End>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    loop {
        tokio::select! {
            typed = input.next() => return Ok(typed),
            Some(piece) = pieces.recv() => {
                shown.text(piece.text()).await;
                shown.quiet().await;
            }
            end = prompt.idle() => return Err(end),
        }
    }
}
