//! The pdb prompt on a debugpy breakpoint: [`crate::pdb`], with a client's lines and the worker's connection.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::input::{Input, Typed};
use super::output::{Out, Shown};
use super::visit::Log;
use crate::pdb::{After, End, OpenError, Options, Piece, Prompt};

/// Lines that are taken while the task runs.
const AHEAD: usize = 64;
/// After this long without output, what has come is shown.
const QUIET: Duration = Duration::from_millis(200);

/// How long the last command of a client that has closed its half may run.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Attaches and runs the prompt until its end. Dropping it drops the connection, which lets the task run on.
pub(super) async fn run<S, R>(
    stream: S,
    input: &mut Input<R>,
    out: &Out,
    shown: &mut Shown,
    log: &Log<'_>,
    may_kill: bool,
) -> Result<End, OpenError>
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
        After::Prompt => Ok(converse(&mut prompt, &mut pieces, input, out, shown, log).await),
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
        let mut running = Box::pin(prompt.line(&line));
        let mut leaving = None;
        let after = loop {
            // Nobody is left who could stop it; whoever only said all that there is to say sees what comes at once.
            if ahead.front() == Some(&Typed::End) && leaving.is_none() {
                leaving = Some(Instant::now() + LAST_WORDS);
            }
            let leave_at = leaving.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => shown.text(piece.text()).await,
                after = &mut running => break Some(after),
                () = sleep_until(leave_at), if leaving.is_some() => break None,
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
