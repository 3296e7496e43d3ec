//! `ray-relay debug --all`: one prompt whose commands go to many paused tasks at once.

use std::io;
use std::pin::pin;

use tokio::time::sleep;

use super::input::{Completion, Typed};
use super::{HINT, STOP_TIMEOUT, Terminal};
use crate::cli::DebugArgs;
use crate::cli::exec::several::MESSAGES;
use crate::cli::failure::Failure;
use crate::cli::members::{announced, complete};
use crate::cli::relay_client::RelayClient;
use crate::cli::relay_dial::dial;
use crate::cli::worker_session::{
    Which, WorkerSessionError as SessionError, authorized_block, unexpected,
};
use ray_relay_base::dial::Stream;
use ray_relay_base::memory::Memory;
use ray_relay_debugger::pdb::{Options, PromptEnd};
use ray_relay_view::group::MAX_OUTPUT_BYTES;
use ray_relay_view::group::live::open_all;
use ray_relay_view::group::prompt::PromptGroup;

/// What the relay is told, and shows as the holder.
const CLIENT: &str = "ray-relay debug";

type Group<'a> = PromptGroup<'a, Stream>;

/// What ended the wait for a line.
enum Heard {
    Typed(Typed),
    Tab(Completion),
    /// One at the prompt is no longer there.
    Ended(usize, PromptEnd),
}

pub(in crate::cli) async fn run(args: DebugArgs) -> Result<(), Failure> {
    let (args, terminal) = (&args, &mut Terminal::open()?);
    let client = RelayClient::new(args.relay.clone())?;
    let target = args.target.as_deref();
    let mut members = args.members.of(&client, target).await?;
    terminal.input.say(&members.legend())?;
    let unnamed = members.unnamed;
    let group = announced(&members, &client, CLIENT).await?;
    let account = Memory::new(MESSAGES).account(None);
    let room = MAX_OUTPUT_BYTES / members.len();
    let dialled = |_, id: String| {
        let (account, which) = (account.clone(), Which::Member(id, group.clone()));
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
        // Before the first stop, a client that leaves lets the task wait on.
        _ = terminal.interrupted.recv() => return Ok(()),
    };
    let (mut group, arrived) = Group::gathered(&mut members, opened, room);
    say(terminal, &arrived)?;
    if group.is_over() {
        let why = "none of them can be debugged now";
        return Err(SessionError::Failed(why.to_owned()).into());
    }
    let done = converse(&mut group, terminal).await?;
    complete(unnamed, done.map_err(Failure::from))
}

fn say(terminal: &mut Terminal, text: &str) -> io::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => terminal.input.say(text),
    }
}

/// Reads lines and writes what all answer, until none is left.
async fn converse(
    group: &mut Group<'_>,
    terminal: &mut Terminal,
) -> io::Result<Result<(), SessionError>> {
    loop {
        terminal.input.ask(&group.prompt(), true);
        let line = match heard(group, terminal).await {
            Heard::Typed(Typed::Line(line)) => line,
            Heard::Typed(Typed::Interrupt) => {
                group.abort_definitions();
                continue;
            }
            Heard::Typed(Typed::End) => {
                terminal.input.say("\n")?;
                // All of them are left, whatever the focus is on.
                group.focus_all();
                "q".to_owned()
            }
            Heard::Tab(tab) => {
                // No task waits for it any more where Tab took too long.
                let _ = tab.answer.send(group.complete(&tab.line, tab.at).await);
                continue;
            }
            Heard::Ended(at, end) => {
                let lost = group.lost(at, &end);
                say(terminal, &lost)?;
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
        let ends = ask(group, terminal, &line).await?;
        if group.is_over() {
            let broken = ends.into_iter().map(unexpected).find(Result::is_err);
            return Ok(broken.unwrap_or(Ok(())));
        }
    }
}

/// Waits for a line, or for what happens while none is typed.
async fn heard(group: &mut Group<'_>, terminal: &mut Terminal) -> Heard {
    tokio::select! {
        typed = terminal.input.next_or_completion() => match typed {
            Ok(typed) => Heard::Typed(typed),
            Err(tab) => Heard::Tab(tab),
        },
        (at, end) = group.idle() => Heard::Ended(at, end),
        // In a pipe; on a terminal it is a key.
        _ = terminal.interrupted.recv() => Heard::Typed(Typed::Interrupt),
    }
}

/// Writes what those in the focus answer to `line`, and gives how sessions ended with it.
async fn ask(
    group: &mut Group<'_>,
    terminal: &mut Terminal,
    line: &str,
) -> io::Result<Vec<PromptEnd>> {
    let mut hint = pin!(sleep(HINT));
    let mut hinted = !terminal.input.is_edited();
    let mut asking = group.ask(line);
    loop {
        tokio::select! {
            biased;
            _ = terminal.interrupted.recv() => asking.interrupt(),
            () = &mut hint, if !hinted => {
                hinted = true;
                terminal.input.say(&asking.hint("Ctrl-C"))?;
            }
            goes_on = asking.next() => if !goes_on {
                break;
            },
        }
    }
    let (said, _) = asking.over();
    let (text, ends) = group.conclude(said);
    say(terminal, &text)?;
    Ok(ends)
}
