//! `ray-relay exec`: pdb commands for scripts.

mod screen;
pub(super) mod several;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use self::screen::Screen;
use super::ExecArgs;
use super::failure::{Exit, Failure};
use super::relay_client::RelayClient;
use super::relay_dial::dial;
use super::release::only_called;
use super::worker_session::{
    OPENS_DEBUGGER, RequestedTask, WorkerSessionError as SessionError, authorized_block, unexpected,
};
use ray_relay_base::config::units::format_duration;
use ray_relay_base::dial::Stream;
use ray_relay_base::memory::Account;
use ray_relay_base::wire::json::put;
use ray_relay_debugger::pdb::{After, Options, Piece, Prompt, PromptEnd};
use ray_relay_view::group::kept::pieces_of;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay exec 3kfz0q8m -- where args 'pp locals()'
  ray-relay exec train_step -- 'p loss' 'learning_rate = 0.01' 'p learning_rate'
  ray-relay exec --next 'train*' -- 'b 41, loss > 10' c 'p batch'
  ray-relay exec --running train_step --reason 'loss is nan' -- where 'p loss'
      stops a task that runs, by a debugger that is opened in it
  ray-relay exec --all -- 'p loss' 'p batch.shape'
      in every paused task at once, the odd answer first
  ray-relay exec --all 'Trainer*' --ranks 0-7,9 --timeout 30s --json -- 'p loss'
  ray-relay exec --continue 3kfz0q8m < commands.txt
      the task resumes when the commands are done

Each argument after -- is one line, as it would be typed at the prompt of `ray-relay debug`; without any, lines are read from standard input. Only what the commands print is printed. --next leaves those alone that wait already; standard error has `ray-relay: ID has stopped: NAME` of the task that it met.

The task stays where it is when the commands are done, parked for you: the next `ray-relay exec` or `ray-relay debug` goes on there, with the breakpoints that you have set. `ray-relay release` resumes the task. So does --continue; with it, `c` as the last command does not wait for another stop. The first command that fails (***) ends the rest, unless --keep-going is given, and the task stays, also with --continue. Where the relay has no room to park the task, the command is refused before it attaches.

A name that several tasks have is refused, with their ids. --all, --job and --ranks run the commands at once in many tasks that are paused, or parked for you. ID|NAME is a pattern then. Tasks of one function or actor class are a group. Their numbers are ranks, by RANK of the runtime environment, by names, or as their processes say. A task whose rank is not known is named by its pid.

The same answers are one line, with who gave them (0-2,4-7: 0.6931). An answer other than that of most is odd, and so is a number far from the others. Numbers have their least, median and greatest below. A task that gives no answer (gone, held by another user, silent, not permitted) is named with the reason, and the others are shown.

Each task has its own --timeout, and its own session on record, which names the line about the command (`group`). Output is kept up to 64 MiB, in equal parts for each task; what is cut is said.

JSON of --all: {\"members\": [{\"group\", \"number\", \"breakpoint\": {...}, \"error\"}], \"commands\": [{\"command\", \"answers\": [{\"who\": \"0-2,4-7\", \"members\": [PLACE, ...], \"text\", \"odd\"}], \"figures\": {\"min\", \"median\", \"max\", ...}}]}

Exit codes: 0 done, 1 a command failed, --timeout was over, or the task ended in between, of several tasks not all have done all, 2 no command was given, 69 the relay or the task's debugger cannot be reached, or the connection broke, 77 refused (by the relay, or because another user debugs the task), 66 there is no such task or job. If a filter matches nothing, the exit code is 0.";

/// Client name for the relay, which shows it as the holder.
const CLIENT: &str = "ray-relay exec";

/// Time limit for disconnecting after a command that does not end.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn run(mut args: ExecArgs) -> Result<(), Failure> {
    if args.json {
        let why = "--json is for what several answer: with --all, --job or --ranks";
        return Err(SessionError::Usage(why).into());
    }
    let deadline = Instant::now() + args.timeout;
    let mut lines = Lines::new(std::mem::take(&mut args.commands))?;
    // Read before a task is held.
    let first = lines.next().await?.ok_or_else(no_command)?;
    let which = match (args.target.take(), args.next) {
        (Some(name), false) if args.running => {
            io::stderr().write_all(OPENS_DEBUGGER.as_bytes())?;
            RequestedTask::Running(name, args.reason.take())
        }
        (Some(name), false) => {
            let list = RelayClient::new(args.relay.clone())?;
            RequestedTask::Named(only_called(&list.breakpoints(false).await?, name)?)
        }
        (name, _) => RequestedTask::Next(name),
    };
    let mut screen = Screen::Now;
    let shared = Shared {
        account: Account::default(),
        opening: Arc::new(Semaphore::new(1)),
    };
    let lines = (first, lines);
    Box::pin(run_in_one(
        &args,
        which,
        lines,
        deadline,
        &mut screen,
        shared,
    ))
    .await
}

fn no_command() -> Failure {
    SessionError::Usage("no command was given: `ray-relay exec ID -- where`, or lines on standard input; `ray-relay debug ID` is for people").into()
}

/// Shared by concurrent runs.
#[derive(Clone)]
struct Shared {
    /// Memory account for debuggers' messages.
    account: Account,
    /// Limits the number of sessions opened at a time.
    opening: Arc<Semaphore>,
}

async fn run_in_one(
    args: &ExecArgs,
    which: RequestedTask,
    (first, mut lines): (String, Lines),
    deadline: Instant,
    screen: &mut Screen,
    shared: Shared,
) -> Result<(), Failure> {
    let mut next = Some(first);
    let (mut prompt, mut pieces) = open(args, &which, deadline, shared).await?;
    prompt.set_digests(matches!(screen, Screen::Kept(_)));
    if screen.asks_rank() {
        let rank = timeout_at(deadline, prompt.rank()).await;
        screen.has_rank(rank.map_or(Ok(None), |rank| rank.map_err(SessionError::Lost))?);
    }
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
        let last = next.is_none() && args.resume;
        let lets_go = last && matches!(line.trim(), "c" | "cont" | "continue");
        // As the last command, it does not wait for another stop.
        let line = if lets_go { "q" } else { line.as_str() };
        screen.begin();
        let done = timeout_at(deadline, printing(prompt.line(line), &mut pieces, screen)).await;
        let after = match done {
            Ok(after) => after?,
            Err(_) => {
                // With --continue, a running task must not stop at its next breakpoint and stay there.
                let stays = !args.resume || prompt.standing().is_some();
                let detached = timeout(
                    DISCONNECT_TIMEOUT,
                    resume_or_park(&mut prompt, stays, screen),
                )
                .await;
                detached.unwrap_or(Ok(()))?;
                return Err(timed_out(args, &format!("`{line}` did not end")).into());
            }
        };
        failed |= prompt.failed();
        match after {
            After::Prompt if prompt.failed() && !args.keep_going => {
                resume_or_park(&mut prompt, true, screen).await?;
                return result(failed);
            }
            After::Prompt => screen.ends(line, prompt.calls()),
            After::Ended(PromptEnd::Left | PromptEnd::Killed) => return result(failed),
            After::Ended(PromptEnd::TaskEnded) => {
                return match next {
                    Some(_) => Err(SessionError::TaskEnded.into()),
                    None => result(failed),
                };
            }
            After::Ended(end) => return Ok(unexpected(end)?),
        }
    }
    resume_or_park(&mut prompt, !args.resume, screen).await?;
    result(failed)
}

/// Opens a session of `which` task, and waits until that is paused.
async fn open(
    args: &ExecArgs,
    which: &RequestedTask,
    deadline: Instant,
    shared: Shared,
) -> Result<(Prompt<Stream>, mpsc::Receiver<Piece>), Failure> {
    let turn = timeout_at(deadline, shared.opening.acquire()).await;
    let turn = turn.map_err(|_| timed_out(args, "no session came about"))?;
    let stream = dial(&args.relay).await?;
    let (sender, mut pieces) = mpsc::channel(64);
    let mut relay = authorized_block(&args.relay, which).await?;
    // The relay refuses to attach if the task could not be parked later.
    put(&mut relay, "stay", !args.resume);
    let options = Options {
        client: CLIENT.to_owned(),
        relay,
        may_kill: true,
        limit: args.limit as usize,
        patience: matches!(which, RequestedTask::Named(_) | RequestedTask::Member(..))
            .then_some(Duration::from_secs(30)),
        local_sources: true,
        account: shared.account,
    };
    let opening = timeout_at(deadline, Prompt::open(stream, &options, sender));
    // Output on arrival is for users. Scripts only need which task was met, and the progress of a debugger.
    let mut arrival = match args.next || args.running {
        true => Screen::Notices,
        false => Screen::None,
    };
    let (prompt, _) = printing(opening, &mut pieces, &mut arrival)
        .await?
        .map_err(|_| timed_out(args, "no task stopped"))?
        .map_err(SessionError::from)?;
    drop(turn);
    Ok((prompt, pieces))
}

fn timed_out(args: &ExecArgs, what: &str) -> SessionError {
    SessionError::Failed(format!("{what} within {}", format_duration(args.timeout)))
}

/// Resumes the task, or parks it if it `stays`, and reports that.
async fn resume_or_park<S: AsyncRead + AsyncWrite + Unpin>(
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
            screen.stays("the task stays where it is, parked for you: `ray-relay exec` or `ray-relay debug` resumes it, `ray-relay release` lets it run")?;
            Ok(())
        }
        Err(why) => {
            prompt.leave().await;
            let why = format!(
                "the task resumes, because it cannot be parked: {why}; with --continue it always does"
            );
            Err(SessionError::Failed(why).into())
        }
    }
}

fn result(failed: bool) -> Result<(), Failure> {
    match failed {
        true => Err(Failure::reported(Exit::Failed as u8)),
        false => Ok(()),
    }
}

/// Awaits `doing`, and prints its output.
async fn printing<T>(
    doing: impl Future<Output = T>,
    pieces: &mut mpsc::Receiver<Piece>,
    screen: &mut Screen,
) -> io::Result<T> {
    let done = pieces_of(doing, pieces, |piece| screen.put(piece)).await?;
    screen.flush()?;
    Ok(done)
}

/// Command lines, from arguments or from standard input.
enum Lines {
    Given(std::vec::IntoIter<String>),
    Typed(tokio::io::Lines<BufReader<tokio::io::Stdin>>),
}

impl Lines {
    /// # Errors
    /// No command is given, and standard input is a terminal.
    fn new(commands: Vec<String>) -> Result<Self, Failure> {
        match commands.is_empty() {
            false => Ok(Self::Given(commands.into_iter())),
            true if io::stdin().is_terminal() => Err(no_command()),
            true => Ok(Self::Typed(BufReader::new(tokio::io::stdin()).lines())),
        }
    }

    async fn next(&mut self) -> io::Result<Option<String>> {
        match self {
            Self::Given(lines) => Ok(lines.next()),
            Self::Typed(lines) => lines.next_line().await,
        }
    }
}
