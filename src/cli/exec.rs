//! `ray-relay exec`: pdb commands for scripts.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::ExecArgs;
use super::failure::{Exit, Failure};
use super::relay_client::RelayClient;
use super::relay_dial::dial;
use super::terminal::say;
use super::worker_session::{Error as SessionError, Which, authorized_block, unexpected};
use crate::config::units::format_duration;
use crate::listing::row::{Row, kind};
use crate::memory::Account;
use crate::pdb::{After, End, Options, Piece, Prompt};
use crate::wire::debugger::Kind;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay exec 3kfz0q8m -- where args 'pp locals()'
  ray-relay exec train_step -- 'p loss' 'learning_rate = 0.01' 'p learning_rate'
  ray-relay exec --next 'train*' -- 'b 41, loss > 10' c 'p batch'
  ray-relay exec --all --stay -- 'p step, loss'
  ray-relay exec --running train_step --reason 'loss is nan' -- where 'p loss'
      stops a task that runs, by a debugger that is opened in it
  ray-relay exec 3kfz0q8m < commands.txt

Each argument after -- is one line, as it would be typed at the prompt of `ray-relay debug`; without any, lines are read from standard input. Only what the commands print is printed.

The task runs on when the commands are done. With --stay it stays where it is, parked for you:
`ray-relay exec` or `ray-relay debug` resumes it, `ray-relay release` lets it run. The first command that fails (***) ends the rest, unless --keep-going is given, and the task stays as well. Where the relay cannot park it, it runs on, and that is said.

--all runs the commands at once in every paused task, and in those that an `exec` has left. What they print comes task by task.

Exit codes: 0 done, 1 a command failed or the task ended in between, 2 no command was given, 69 the relay or the task's debugger cannot be reached, or the connection broke, 77 refused (by the relay, or because another user debugs the task), 66 no such task waits (any more).";

/// What the relay is told, and shows as the holder.
const CLIENT: &str = "ray-relay exec";

/// Tasks in which commands run at once: what stops together may wait for each other when it runs.
const AT_ONCE: usize = 256;

/// How long a goodbye behind a command that does not end may take.
const GOODBYE: Duration = Duration::from_secs(2);

pub(super) async fn run(mut args: ExecArgs) -> Result<(), Failure> {
    if args.commands.is_empty() && io::stdin().is_terminal() {
        return Err(no_command());
    }
    let deadline = Instant::now() + args.timeout;
    let mut lines = Lines::new(std::mem::take(&mut args.commands));
    // Asked before a task is held.
    let first = lines.next().await?.ok_or_else(no_command)?;
    if args.all {
        let mut all = vec![first];
        while let Some(line) = lines.next().await? {
            all.push(line);
        }
        return in_all(&args, all, deadline).await;
    }
    let which = match (args.target.take(), args.next) {
        (Some(name), false) if args.running => Which::Running(name, args.reason.take()),
        (Some(name), false) => Which::Named(name),
        (name, _) => Which::Next(name),
    };
    let mut screen = Screen::Now;
    Box::pin(in_one(&args, which, (first, lines), deadline, &mut screen)).await
}

fn no_command() -> Failure {
    SessionError::Usage("no command was given: `ray-relay exec ID -- where`, or lines on standard input; `ray-relay debug ID` is for people").into()
}

/// Runs the commands in every task that waits, and in those that an `exec` has left.
async fn in_all(args: &ExecArgs, lines: Vec<String>, deadline: Instant) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let list = client.breakpoints(false).await?;
    let rows = list["breakpoints"].as_array().map(Vec::as_slice);
    let rows = rows.unwrap_or_default().iter().filter(|row| is_meant(row));
    let rows: Vec<Row> = rows.map(Row::read).collect();
    if rows.is_empty() {
        say("Nothing waits at a breakpoint.\n")?;
        return Ok(());
    }
    let runs = rows.iter().map(|row| {
        let which = Which::Named(row.id.clone());
        let mut lines = Lines::Given(lines.clone().into_iter());
        Box::pin(async move {
            let mut screen = Screen::Later(String::new());
            let done = match lines.next().await? {
                Some(first) => in_one(args, which, (first, lines), deadline, &mut screen).await,
                None => Ok(()),
            };
            Ok::<_, Failure>((screen, done))
        })
    });
    let mut done = futures_util::stream::iter(rows.iter().zip(runs))
        .map(async |(row, run)| (row, run.await))
        .buffered(AT_ONCE);
    let mut failed = false;
    while let Some((row, ran)) = done.next().await {
        let (screen, ran) = ran?;
        let Screen::Later(mut text) = screen else {
            continue;
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        say(&format!("== {}  {}\n{text}", row.id, row.task))?;
        if let Err(why) = ran {
            failed = true;
            if let Some(why) = why.sentence {
                say(&format!("*** {why}\n"))?;
            }
        }
    }
    result(failed)
}

/// Whether `--all` means this row of the list.
fn is_meant(row: &Value) -> bool {
    let holder = &row["holder"];
    let left = !holder["parked_until"].is_null() && holder["client"] == CLIENT;
    kind(row).is_some_and(Kind::speaks_dap) && (row["state"] == "paused" || left)
}

async fn in_one(
    args: &ExecArgs,
    which: Which,
    (first, mut lines): (String, Lines),
    deadline: Instant,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let mut next = Some(first);
    let stream = dial(&args.relay).await?;
    let (sender, mut pieces) = mpsc::channel(64);
    let options = Options {
        client: CLIENT.to_owned(),
        relay: authorized_block(&args.relay, &which).await?,
        may_kill: true,
        limit: args.limit as usize,
        patience: matches!(which, Which::Named(_)).then_some(Duration::from_secs(30)),
        local_sources: true,
        account: Account::default(),
    };
    let late = |what: &str| {
        SessionError::Failed(format!("{what} within {}", format_duration(args.timeout)))
    };
    let opening = timeout_at(deadline, Prompt::open(stream, &options, sender));
    // What is printed on arrival is for people.
    let (mut prompt, _) = printing(opening, &mut pieces, &mut Screen::None)
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
        let last = next.is_none() && !args.stay;
        let lets_go = last && matches!(line.trim(), "c" | "cont" | "continue");
        // The last word of a script: nobody waits for what comes after it.
        let line = if lets_go { "q" } else { line.as_str() };
        let done = timeout_at(deadline, printing(prompt.line(line), &mut pieces, screen)).await;
        let after = match done {
            Ok(after) => after?,
            Err(_) => {
                // One that runs is not left standing wherever it comes to.
                let stays = args.stay || prompt.standing().is_some();
                let left = timeout(GOODBYE, leave(&mut prompt, stays, screen)).await;
                left.unwrap_or(Ok(()))?;
                return Err(late(&format!("`{line}` did not end")).into());
            }
        };
        failed |= prompt.failed();
        match after {
            After::Prompt if prompt.failed() && !args.keep_going => {
                leave(&mut prompt, true, screen).await?;
                return result(failed);
            }
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
    leave(&mut prompt, args.stay, screen).await?;
    result(failed)
}

/// Lets the task run on, or, where it `stays`, leaves it where it is, and says so.
async fn leave<S: AsyncRead + AsyncWrite + Unpin>(
    prompt: &mut Prompt<S>,
    stays: bool,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if !stays {
        prompt.leave().await;
        return Ok(());
    }
    match prompt.stay().await {
        Ok(()) => {
            screen.note("the task stays where it is, parked for you: `ray-relay exec` or `ray-relay debug` resumes it, `ray-relay release` lets it run")?;
            Ok(())
        }
        Err(why) => {
            prompt.leave().await;
            let why = format!("the task runs on, because it cannot be parked: {why}");
            Err(SessionError::Failed(why).into())
        }
    }
}

fn result(failed: bool) -> Result<(), Failure> {
    match failed {
        true => Err(Failure::told(Exit::Failed as u8)),
        false => Ok(()),
    }
}

/// Where the output of commands goes.
enum Screen {
    /// Nowhere.
    None,
    /// To standard output, as it comes.
    Now,
    /// To this text.
    Later(String),
}

impl Screen {
    fn put(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::None => {}
            Self::Now => io::stdout().lock().write_all(text.as_bytes())?,
            Self::Later(kept) => kept.push_str(text),
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        match self {
            Self::Now => io::stdout().lock().flush(),
            Self::None | Self::Later(_) => Ok(()),
        }
    }

    /// A line that is no output of a command.
    fn note(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Now => writeln!(io::stderr(), "ray-relay: {text}"),
            Self::None => Ok(()),
            Self::Later(_) => self.put(&format!("({text})\n")),
        }
    }
}

/// Awaits `doing`, and prints what it writes.
async fn printing<T>(
    doing: impl Future<Output = T>,
    pieces: &mut mpsc::Receiver<Piece>,
    screen: &mut Screen,
) -> io::Result<T> {
    let mut doing = std::pin::pin!(doing);
    let done = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => screen.put(piece.text())?,
            done = &mut doing => break done,
        }
    };
    while let Ok(piece) = pieces.try_recv() {
        screen.put(piece.text())?;
    }
    screen.flush()?;
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
