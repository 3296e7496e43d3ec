//! `ray-relay exec`: pdb commands for scripts.

use std::io::{self, Write};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::relay_dial::dial;
use super::worker_session::{Error as SessionError, Which, authorized_block, unexpected};
use super::{Error, ExecArgs};
use crate::config::units::format_duration;
use crate::pdb::{After, End, Options, Piece, Prompt};

pub(super) const AFTER_HELP: &str = "\
Each argument after -- is one line, as it would be typed at the prompt of `ray-relay debug`; without any,
lines are read from standard input. Only what the commands print is printed.

Examples:
  ray-relay exec 3kfz0q8m -- where args 'pp locals()'
  ray-relay exec train_step -- 'p loss' 'learning_rate = 0.01' 'p learning_rate'
  ray-relay exec --next 'train*' -- 'b 41, loss > 10' c 'p batch'
  ray-relay exec 3kfz0q8m < commands.txt

The task runs on when the commands are done: a debugger that leaves releases it, and there is no way to leave it
paused (`ray-relay snapshot` looks without releasing). The first command that fails (***) ends the rest, unless
--keep-going is given; the task runs on then too.

Exit codes: 0 done, 1 a command failed or the task ended in between, 69 the relay or the
task's debugger cannot be reached, or the connection broke, 77 refused (by the relay, or because somebody else debugs the task).";

pub(super) async fn run(args: ExecArgs) -> Result<(), Error> {
    let which = match (args.target, args.next) {
        (Some(name), false) => Which::Named(name),
        (name, _) => Which::Next(name),
    };
    let deadline = Instant::now() + args.timeout;
    let mut lines = Lines::new(args.commands);
    // Asked before a task is held.
    let mut next = lines.next().await?;
    let stream = dial(&args.relay).await?;
    let (sender, mut pieces) = mpsc::channel(64);
    let options = Options {
        client: "ray-relay exec".to_owned(),
        relay: authorized_block(&args.relay, &which)?,
        may_kill: true,
        limit: args.limit as usize,
        patience: matches!(which, Which::Named(_)).then_some(Duration::from_secs(30)),
        local_sources: true,
    };
    let late = |what: &str| {
        SessionError::Failed(format!("{what} within {}", format_duration(args.timeout)))
    };
    let opening = timeout_at(deadline, Prompt::open(stream, &options, sender));
    // What is printed on arrival is for people.
    let (mut prompt, _) = printing(opening, &mut pieces, false)
        .await?
        .map_err(|_| late("no task stopped"))?
        .map_err(SessionError::from)?;
    let interrupt = prompt.interrupter();
    #[expect(clippy::disallowed_methods, reason = "owned by this function")]
    let _interrupting = AbortOnDropHandle::new(tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            interrupt.now();
        }
    }));
    let mut failed = false;
    while let Some(line) = next {
        next = lines.next().await?;
        let lets_go = next.is_none() && matches!(line.trim(), "c" | "cont" | "continue");
        // The last word of a script: nobody waits for what comes after it.
        let line = if lets_go { "q" } else { line.as_str() };
        let done = timeout_at(deadline, printing(prompt.line(line), &mut pieces, true)).await;
        let after = match done {
            Ok(after) => after?,
            Err(_) => {
                let _ = tokio::time::timeout(Duration::from_secs(2), prompt.leave()).await;
                return Err(late(&format!("`{line}` did not end")).into());
            }
        };
        failed |= prompt.failed();
        match after {
            After::Prompt if prompt.failed() && !args.keep_going => break,
            After::Prompt => {}
            After::Ended(End::Left | End::Killed) => return result(failed),
            After::Ended(End::TaskEnded) => {
                return match next {
                    Some(_) => Err(SessionError::TaskEnded.into()),
                    None => result(failed),
                };
            }
            After::Ended(end) => return Ok(unexpected(end)?),
        }
    }
    prompt.leave().await;
    result(failed)
}

fn result(failed: bool) -> Result<(), Error> {
    match failed {
        true => Err(SessionError::CommandFailed.into()),
        false => Ok(()),
    }
}

/// Awaits `doing`, and prints what it writes.
async fn printing<T>(
    doing: impl Future<Output = T>,
    pieces: &mut mpsc::Receiver<Piece>,
    print: bool,
) -> io::Result<T> {
    let mut doing = std::pin::pin!(doing);
    let put = |piece: Piece| match print {
        true => io::stdout().lock().write_all(piece.text().as_bytes()),
        false => Ok(()),
    };
    let done = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => put(piece)?,
            done = &mut doing => break done,
        }
    };
    while let Ok(piece) = pieces.try_recv() {
        put(piece)?;
    }
    io::stdout().lock().flush()?;
    Ok(done)
}

/// Lines of commands, from arguments or from standard input.
enum Lines {
    Given(std::vec::IntoIter<String>),
    Typed(tokio::io::Lines<BufReader<tokio::io::Stdin>>),
}

impl Lines {
    fn new(given: Vec<String>) -> Self {
        if given.is_empty() {
            Self::Typed(BufReader::new(tokio::io::stdin()).lines())
        } else {
            Self::Given(given.into_iter())
        }
    }

    async fn next(&mut self) -> io::Result<Option<String>> {
        match self {
            Self::Given(lines) => Ok(lines.next()),
            Self::Typed(lines) => lines.next_line().await,
        }
    }
}
