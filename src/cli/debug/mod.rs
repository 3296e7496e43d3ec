//! `ray-relay debug`: the list of paused tasks, and the prompt.

pub(super) mod all;
mod event_stream;
mod history;
mod input;
mod legacy;
mod python;
mod screen;

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::event_stream::EventStream;
use self::input::{Input, Typed};
use self::screen::Screen;
use super::relay_client::RelayClient;
use super::relay_dial::dial;
use super::release::only_called;
use super::worker_session::{
    OPENS_DEBUGGER, RequestedTask, WorkerSessionError as SessionError, authorized_block, unexpected,
};
use super::{DebugArgs, Failure, terminal};
use ray_relay_base::dial::Stream;
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::pdb::{After, Options, Piece, Prompt, PromptEnd};
use ray_relay_ray::ray::registry::BreakpointIdPrefix;
use ray_relay_view::listing::browse::{Browse, BrowseStep};
use ray_relay_view::listing::menu::Menu;
use ray_relay_view::listing::select::ListSelection;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay debug
  ray-relay debug 3kfz0q8m
  ray-relay debug --next 'train*'
      waits for the next task of that name that stops
  ray-relay debug --running train_step --reason 'no progress since noon'
      stops one that runs and never called breakpoint()
  ray-relay debug --all 'Trainer*'
      one prompt, (Pdb ×8), whose commands go to all that are paused and fit

Without an argument: the list of paused tasks, kept up to date, what you have left parked first; pick one by its index, id or name, debug it, and come back to the list. The prompt is pdb's: `help` there lists its commands.

  At the list, /PATTERN shows only what matches (as --filter does; / shows all). `sort KEY` and `sort KEY,desc` sort it by waiting, name, job, node, where, kind, state, holder, cluster or pid. In a long list n and p turn the page.

  Ctrl-C   interrupts a task that runs; at the prompt it clears the line
  c        runs on; when the task has ended, the list is back
  Ctrl-D   leaves the prompt, as `q` does: the task runs on. `q!` kills its worker process instead
  Tab      completes names as the worker knows them

--all, --job and --ranks make one prompt for many, numbered by rank as in `ray-relay exec --all`: what they answer alike is there once with who it is of, the odd ones beside it.

  focus 3    from now on commands go to that one alone; also focus 0-3,7
  focus all  to all again
  c          lets all in the focus go on, until each stops again or its task ends; q leaves all in the focus, Ctrl-D all

--running takes a name, a task id or a worker id as `ray-relay tasks` shows them, and has to mean one process. A debugger is opened in its worker, by the hook (`ray-relay hook`) or else from outside, through the agent of its node, and the task stops at its next line of Python. While it is inside a call that runs none (time.sleep, ray.get, a collective) you are shown where it is; it stops when that returns, and Ctrl-C leaves it running. It takes the permissions `debug` and `attach`, is on record with --reason before anything is opened, and a job forbids it by RAY_RELAY_HOOK=look in its environment. `q` lets the task run on; the debugger stays in the worker, on its node's loopback address, until the worker ends.

A breakpoint of Ray's legacy debugger (RAY_DEBUG=legacy) has that debugger's own prompt, through the relay. Entering it is for good, `remote` and `get` are followed into the next task, and Ctrl-D lets the task run on. Only `q` said twice makes it fail.

A connection that is lost at a prompt keeps the task there for a while (`[park]` of the relay): the same command resumes it.

Source is shown as the worker has it. Output of the program is shown with control characters written out. Lines are kept in ray-relay/history in the state directory (XDG_STATE_HOME).

Exit codes: 0 done, 1 the worker process ended at the prompt, 69 the relay or the task's debugger cannot be reached, or the connection broke, 77 refused (by the relay, or because another user debugs the task), 66 there is no such task or job. If a filter matches nothing, the exit code is 0.";

/// Lines around the rows of a page: titles, troubles, page number, and the prompt.
const PAGE_MARGIN_LINES: usize = 6;
/// Minimum number of rows per page, even on a small terminal.
const MIN_ROWS: usize = 5;
/// A hint explains a command that takes longer.
const HINT_AFTER: Duration = Duration::from_secs(4);
/// Time limit for a session requested by id to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

type Session = Prompt<Stream>;

/// Shared by all parts of the command.
struct Terminal {
    input: Input,
    screen: Screen,
    interrupted: Signal,
}

impl Terminal {
    fn open() -> io::Result<Self> {
        Ok(Self {
            input: Input::open()?,
            screen: Screen::open(),
            interrupted: signal(SignalKind::interrupt())?,
        })
    }

    fn refuse(&mut self, sentence: &str) -> io::Result<()> {
        self.input.print(&format!("*** {}\n", replaced(sentence)))
    }

    /// Reports the end of the session to a user who is still typing a line for it.
    async fn over(&mut self) -> io::Result<()> {
        if self.input.is_edited() && self.input.is_awaiting() {
            self.input.print("\n*** the session is over: the worker process ended, or the connection broke; press Enter\n")?;
            self.input.next().await;
        }
        Ok(())
    }
}

pub(super) async fn run(args: DebugArgs) -> Result<(), Failure> {
    let mut terminal = Terminal::open()?;
    let which = match (&args.target, args.next) {
        (target, true) => {
            let what = target
                .as_deref()
                .map(|name| format!(" called {}", replaced(name)));
            let what = what.unwrap_or_default();
            let text = format!("Waiting for the next task{what} that stops (Ctrl-C ends).\n");
            terminal.input.print(&text)?;
            RequestedTask::Next(target.clone())
        }
        (Some(target), false) if args.running => {
            terminal.input.print(OPENS_DEBUGGER)?;
            RequestedTask::Running(target.clone(), args.reason.clone())
        }
        (Some(target), false) => {
            let list = RelayClient::new(args.relay.clone())?;
            let list = list.breakpoints(false).await?;
            let menu = Menu::read(&list);
            let is_index = target.parse::<usize>().is_ok();
            match menu.pick(target) {
                Ok(id) if !menu.speaks_dap(&id) => {
                    return legacy::enter(&args, &mut terminal, &id).await;
                }
                Ok(id) if is_index || is_begun(&id, target) => RequestedTask::Named(id),
                Err(_) if is_index => return Err(SessionError::Unknown(target.clone()).into()),
                Ok(_) | Err(_) => RequestedTask::Named(only_called(&list, target.clone())?),
            }
        }
        (None, false) => return list(&args, &mut terminal).await,
    };
    Ok(one(&args, &mut terminal, &which).await??)
}

/// Whether `text` is a proper prefix of `id`.
fn is_begun(id: &str, text: &str) -> bool {
    let begun = text.parse::<BreakpointIdPrefix>();
    text.len() < id.len() && begun.is_ok_and(|begun| begun.begins(id))
}

/// Whether to show the list before the next question.
#[derive(Debug, Default, PartialEq, Eq)]
enum Show {
    #[default]
    Nothing,
    /// Print it if its choices have changed.
    Changes,
    List,
}

/// Shows the list repeatedly.
async fn list(args: &DebugArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let mut events = EventStream::default();
    let mut show = Show::List;
    let mut menu = Menu::default();
    let choice = ListSelection {
        order: args.sort,
        filters: args.filter.clone(),
        job: None,
    };
    let mut browse = Browse::new(choice, page_rows(terminal));
    if let Some(own) = client.subject().await? {
        browse = browse.owned_by(own);
    }
    loop {
        match std::mem::take(&mut show) {
            Show::Nothing => {}
            why => {
                let before = menu;
                browse.resize(page_rows(terminal));
                menu = browse.read(client.breakpoints(false).await?);
                if why == Show::List || !browse.sees_same(&menu, &before) {
                    let text = browse.show(&menu, args.verbose, terminal::columns());
                    terminal.input.print(&text)?;
                }
            }
        }
        terminal
            .input
            .ask("Index, id or name (Enter refreshes, q quits): ", false);
        let typed = tokio::select! {
            typed = terminal.input.next() => typed,
            () = events.wait(&client), if terminal.input.is_edited() => {
                show = Show::Changes;
                continue;
            }
            _ = terminal.interrupted.recv() => Typed::Interrupt,
        };
        let Typed::Line(line) = typed else {
            terminal.input.print("\n")?;
            return Ok(());
        };
        match line.trim() {
            "" => show = Show::List,
            "q" | "quit" | "exit" => return Ok(()),
            text => match browse.handle_line(text, &menu) {
                BrowseStep::Changed => show = Show::List,
                BrowseStep::Refused(sentence) => terminal.refuse(&sentence)?,
                BrowseStep::Other => match menu.pick(text) {
                    Ok(id) => {
                        // After any end of a session, the list is shown again.
                        let ended = match menu.speaks_dap(&id) {
                            true => one(args, terminal, &RequestedTask::Named(id)).await?,
                            false => Ok(legacy::enter(args, terminal, &id).await?),
                        };
                        if let Err(why) = ended {
                            terminal.input.print(&format!("*** {why}\n"))?;
                        }
                        show = Show::List;
                        // The new list includes all earlier events.
                        events = EventStream::default();
                    }
                    Err(sentence) => terminal.refuse(&sentence)?,
                },
            },
        }
    }
}

/// Number of list rows that fit on the terminal with the surrounding lines; all if no user pages through them.
fn page_rows(terminal: &Terminal) -> Option<usize> {
    let (_, lines) = terminal::size().filter(|_| terminal.input.is_edited())?;
    Some(lines.saturating_sub(PAGE_MARGIN_LINES).max(MIN_ROWS))
}

/// Runs one session from attach to its end, and returns how it ended.
async fn one(
    args: &DebugArgs,
    terminal: &mut Terminal,
    which: &RequestedTask,
) -> Result<Result<(), SessionError>, Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let stream = dial(&args.relay).await?;
    let (sender, mut pieces) = mpsc::channel(64);
    let mut relay = authorized_block(&args.relay, which).await?;
    if args.take_over {
        put(&mut relay, "takeOver", true);
    }
    let options = Options {
        relay,
        limit: args.limit as usize,
        patience: matches!(which, RequestedTask::Named(_)).then_some(STOP_TIMEOUT),
        local_sources: true,
        ..Options::default()
    };
    let mut opening = Box::pin(Prompt::open(stream, &options, sender));
    // The relay does not offer a task without DAP as the next one.
    let mut legacy = Box::pin(async {
        match which {
            RequestedTask::Next(name) => {
                let mut events = EventStream::default();
                events.legacy(&client, name.as_deref()).await
            }
            RequestedTask::Named(_) | RequestedTask::Member(..) | RequestedTask::Running(..) => {
                std::future::pending().await
            }
        }
    });
    let opened = loop {
        tokio::select! {
            biased;
            Some(piece) = pieces.recv() => terminal.screen.print(&piece)?,
            // Before the first stop, a client that disconnects leaves the task waiting.
            _ = terminal.interrupted.recv() => return Ok(Ok(())),
            opened = &mut opening => break opened,
            id = &mut legacy => {
                drop(opening);
                return Ok(Ok(legacy::enter(args, terminal, &id).await?));
            }
        }
    };
    drop((opening, legacy));
    let (mut prompt, after) = match opened {
        Ok(opened) => opened,
        Err(why) => return Ok(Err(why.into())),
    };
    while let Ok(piece) = pieces.try_recv() {
        terminal.screen.print(&piece)?;
    }
    let end = match after {
        After::Prompt => converse(&mut prompt, &mut pieces, terminal).await?,
        After::Ended(end) => end,
    };
    let sentence = match &end {
        PromptEnd::TaskEnded => "The task has ended.",
        PromptEnd::Left => "The task runs on without a debugger.",
        PromptEnd::Killed => "The worker process is killed.",
        PromptEnd::Terminated | PromptEnd::Lost(_) => "",
    };
    if !sentence.is_empty() && terminal.input.is_edited() {
        terminal.input.print(&format!("{sentence}\n"))?;
    }
    Ok(unexpected(end))
}

/// Reads lines and writes their answers, until the session ends.
async fn converse(
    prompt: &mut Session,
    pieces: &mut mpsc::Receiver<Piece>,
    terminal: &mut Terminal,
) -> io::Result<PromptEnd> {
    loop {
        let line = match typed(prompt, pieces, terminal).await? {
            Ok(Typed::Line(line)) => line,
            Ok(Typed::Interrupt) => {
                if prompt.abort_definition() {
                    terminal.input.print("*** command definition aborted\n")?;
                }
                continue;
            }
            Ok(Typed::End) => {
                terminal.input.print("\n")?;
                prompt.abort_definition();
                "q".to_owned()
            }
            Err(end) => return Ok(end),
        };
        let interrupt = prompt.interrupter();
        let mut running = Box::pin(prompt.line(&line));
        let mut hint = Box::pin(sleep(HINT_AFTER));
        let mut hinted = !terminal.input.is_edited();
        let after = loop {
            tokio::select! {
                biased;
                _ = terminal.interrupted.recv() => interrupt.now(),
                // If Ray reports no end (a Serve replica), a finished task looks the same.
                () = &mut hint, if !hinted => {
                    hinted = true;
                    terminal.input.print("[running, if it has not ended; Ctrl-C interrupts, and once more leaves it running]\n")?;
                }
                Some(piece) = pieces.recv() => terminal.screen.print(&piece)?,
                after = &mut running => break after,
            }
        };
        drop(running);
        while let Ok(piece) = pieces.try_recv() {
            terminal.screen.print(&piece)?;
        }
        if let After::Ended(end) = after {
            return Ok(end);
        }
    }
}

/// Returns the next line, or how the session ended while waiting for it.
async fn typed(
    prompt: &mut Session,
    pieces: &mut mpsc::Receiver<Piece>,
    terminal: &mut Terminal,
) -> io::Result<Result<Typed, PromptEnd>> {
    terminal.input.ask(prompt.text(), true);
    loop {
        tokio::select! {
            typed = terminal.input.next_or_completion() => match typed {
                Ok(typed) => return Ok(Ok(typed)),
                Err(tab) => {
                    // If Tab timed out, nothing waits for the answer any more.
                    let _ = tab.answer.send(prompt.complete(&tab.line, tab.at).await);
                }
            },
            Some(piece) = pieces.recv() => {
                let text = terminal.screen.render(&piece);
                terminal.input.print(&text)?;
            }
            end = prompt.idle() => {
                terminal.over().await?;
                return Ok(Err(end));
            }
            // From a pipe; on a terminal it is a key.
            _ = terminal.interrupted.recv() => return Ok(Ok(Typed::Interrupt)),
        }
    }
}
