//! `ray-relay debug --all`: one prompt whose commands go to many paused tasks at once.

use std::io;
use std::pin::pin;

use tokio::time::sleep;

use super::input::{Completion, Typed};
use super::{HINT_AFTER, STOP_TIMEOUT, Terminal};
use crate::cli::DebugArgs;
use crate::cli::exec::several::MESSAGES;
use crate::cli::failure::Failure;
use crate::cli::members::{Purpose, announced, complete};
use crate::cli::relay_client::RelayClient;
use crate::cli::relay_dial::dial;
use crate::cli::worker_session::{
    RequestedTask, WorkerSessionError as SessionError, authorized_block, unexpected,
};
use ray_relay_base::dial::Stream;
use ray_relay_base::memory::Memory;
use ray_relay_debugger::pdb::{Options, PromptEnd};
use ray_relay_view::group::MAX_OUTPUT_BYTES;
use ray_relay_view::group::live::open_all;
use ray_relay_view::group::prompt::PromptGroup;

/// Client name for the relay, which shows it as the holder.
const CLIENT: &str = "ray-relay debug";

type Group<'a> = PromptGroup<'a, Stream>;

/// The event that ended the wait for a line.
enum PromptEvent {
    Typed(Typed),
    Tab(Completion),
    /// A session at the prompt ended.
    Ended(usize, PromptEnd),
}

pub(in crate::cli) async fn run(args: DebugArgs) -> Result<(), Failure> {
    let (args, terminal) = (&args, &mut Terminal::open()?);
    let client = RelayClient::new(args.relay.clone())?;
    let target = args.target.as_deref();
    let Some(mut members) = args.members.of(&client, target, Purpose::Act).await? else {
        return Ok(());
    };
    terminal.input.print(&members.legend())?;
    let unnamed = members.unnamed;
    let group = announced(&members, &client, CLIENT).await?;
    let account = Memory::new(MESSAGES).account(None);
    let room = MAX_OUTPUT_BYTES / members.len();
    let dialled = |_, id: String| {
        let (account, which) = (account.clone(), RequestedTask::Member(id, group.clone()));
        async move {
            let stream = dial(&args.relay).await.map_err(|why| why.to_string())?;
            let relay = authorized_block(&args.relay, &which).await;
            let options = Options {
                client: CLIENT.to_owned(),
                relay: relay.map_err(|why| why.to_string())?,
                limit: args.limit as usize,
                patience: Some(STOP_TIMEOUT),
                local_sources: true,
                account,
                ..Options::default()
            };
            Ok((stream, options))
        }
    };
    let opened = tokio::select! {
        opened = open_all(&members, room, dialled) => opened,
        // Before the first stop, a client that disconnects leaves the task waiting.
        _ = terminal.interrupted.recv() => return Ok(()),
    };
    let (mut group, arrived) = Group::gathered(&mut members, opened, room);
    print(terminal, &arrived)?;
    if group.is_over() {
        let why = "none of them can be debugged now";
        return Err(SessionError::Failed(why.to_owned()).into());
    }
    let done = converse(&mut group, terminal).await?;
    complete(unnamed, done.map_err(Failure::from))
}

fn print(terminal: &mut Terminal, text: &str) -> io::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => terminal.input.print(text),
    }
}

/// Reads lines and writes all answers, until no task remains.
async fn converse(
    group: &mut Group<'_>,
    terminal: &mut Terminal,
) -> io::Result<Result<(), SessionError>> {
    loop {
        terminal.input.ask(&group.prompt(), true);
        let line = match next_event(group, terminal).await {
            PromptEvent::Typed(Typed::Line(line)) => line,
            PromptEvent::Typed(Typed::Interrupt) => {
                group.abort_definitions();
                continue;
            }
            PromptEvent::Typed(Typed::End) => {
                terminal.input.print("\n")?;
                // Detaches from all, regardless of the focus.
                group.focus_all();
                "q".to_owned()
            }
            PromptEvent::Tab(tab) => {
                // If Tab timed out, nothing waits for the answer any more.
                let _ = tab.answer.send(group.complete(&tab.line, tab.at).await);
                continue;
            }
            PromptEvent::Ended(at, end) => {
                let lost = group.lost(at, &end);
                print(terminal, &lost)?;
                if group.is_over() {
                    terminal.over().await?;
                    return Ok(unexpected(end));
                }
                continue;
            }
        };
        if let Some(focused) = group.take_focus(&line) {
            if let Err(sentence) = focused {
                terminal.refuse(&sentence)?;
            }
            continue;
        }
        let ends = execute(group, terminal, &line).await?;
        if group.is_over() {
            let broken = ends.into_iter().map(unexpected).find(Result::is_err);
            return Ok(broken.unwrap_or(Ok(())));
        }
    }
}

/// Waits for a line, or for an event before one is typed.
async fn next_event(group: &mut Group<'_>, terminal: &mut Terminal) -> PromptEvent {
    tokio::select! {
        typed = terminal.input.next_or_completion() => match typed {
            Ok(typed) => PromptEvent::Typed(typed),
            Err(tab) => PromptEvent::Tab(tab),
        },
        (at, end) = group.idle() => PromptEvent::Ended(at, end),
        // From a pipe; on a terminal it is a key.
        _ = terminal.interrupted.recv() => PromptEvent::Typed(Typed::Interrupt),
    }
}

/// Runs `line` on the focused tasks and writes their answers. Returns how sessions ended by it.
async fn execute(
    group: &mut Group<'_>,
    terminal: &mut Terminal,
    line: &str,
) -> io::Result<Vec<PromptEnd>> {
    let mut hint = pin!(sleep(HINT_AFTER));
    let mut hinted = !terminal.input.is_edited();
    let mut asking = group.ask(line);
    loop {
        tokio::select! {
            biased;
            _ = terminal.interrupted.recv() => asking.interrupt(),
            () = &mut hint, if !hinted => {
                hinted = true;
                terminal.input.print(&asking.hint("Ctrl-C"))?;
            }
            goes_on = asking.next() => if !goes_on {
                break;
            },
        }
    }
    let (answers, _) = asking.over();
    let (text, ends) = group.conclude(answers);
    print(terminal, &text)?;
    Ok(ends)
}
