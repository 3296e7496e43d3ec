//! `ray-relay debug --all`: one prompt whose commands go to many paused tasks at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::pin;

use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::input::{Completion, Typed};
use super::{HINT, PATIENCE, Session, Terminal};
use crate::cli::DebugArgs;
use crate::cli::exec::printing;
use crate::cli::exec::screen::{Kept, Screen};
use crate::cli::exec::several::{Answered, KEPT, MESSAGES, OPENING};
use crate::cli::failure::Failure;
use crate::cli::members::{Members, ready};
use crate::cli::relay_client::RelayClient;
use crate::cli::relay_dial::dial;
use crate::cli::worker_session::{
    Which, WorkerSessionError as SessionError, authorized_block, unexpected,
};
use crate::listing::fold::ranks::Ranks;
use crate::listing::fold::told;
use crate::memory::{Account, Memory};
use crate::pdb::{After, Options, Piece, Prompt, PromptEnd};
use crate::wire::text::replaced;

/// What the relay is told, and shows as the holder.
const CLIENT: &str = "ray-relay debug";

/// One of those at the prompt.
struct Live {
    /// Its place among all members.
    at: usize,
    prompt: Session,
    pieces: mpsc::Receiver<Piece>,
}

/// Those at the prompt, and to whom of them commands go.
struct PromptGroup<'a> {
    members: &'a Members,
    live: Vec<Live>,
    /// Of all members; `None`: everybody.
    focus: Option<BTreeSet<usize>>,
    /// Bytes of one command's output that are kept of each.
    room: usize,
}

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
    let list = client.breakpoints(false).await?;
    let mut members = Members::of(&list, args.target.as_deref(), &args.members)?;
    terminal.input.say(&members.legend())?;
    let group = &members.announced(&client, CLIENT).await?;
    let account = Memory::new(MESSAGES).account(None);
    let room = KEPT / members.len();
    let opening = members.rows.iter().enumerate().map(|(at, row)| {
        let account = account.clone();
        let asks = members.lacks_rank(at);
        Box::pin(async move { (at, open(args, group, at, row, (room, asks), account).await) })
    });
    let opening = stream::iter(opening).buffered(OPENING).collect::<Vec<_>>();
    let opened = tokio::select! {
        opened = opening => opened,
        // Before the first stop, a client that leaves lets the task wait on.
        _ = terminal.interrupted.recv() => return Ok(()),
    };
    let (mut live, mut arrived, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    let mut ranks = BTreeMap::new();
    for (at, opened) in opened {
        match opened {
            Ok((one, mut kept)) => {
                ranks.extend(kept.rank.map(|rank| (at, rank)));
                live.push(one);
                arrived.push((at, Answered::of(&mut kept)));
            }
            Err(why) => silent.push((at, why)),
        }
    }
    if members.learn(&ranks) {
        terminal.input.say(&members.legend())?;
    }
    let mut group = PromptGroup {
        members: &members,
        live,
        focus: None,
        room,
    };
    group.show(terminal, &arrived, &silent)?;
    if group.live.is_empty() {
        let why = "none of them can be debugged now";
        return Err(SessionError::Failed(why.to_owned()).into());
    }
    Ok(group.converse(terminal).await??)
}

/// A session with what `row` of the list is about, and where it stands.
///
/// # Errors
/// Why there is none.
async fn open(
    args: &DebugArgs,
    group: &str,
    at: usize,
    row: &Value,
    (room, asks_rank): (usize, bool),
    account: Account,
) -> Result<(Live, Kept), String> {
    ready(row, CLIENT).map_err(|why| why.to_string())?;
    let which = Which::Member(
        row["id"].as_str().unwrap_or_default().to_owned(),
        group.to_owned(),
    );
    let stream = dial(&args.relay).await.map_err(|why| why.to_string())?;
    let (sender, mut pieces) = mpsc::channel(64);
    let relay = authorized_block(&args.relay, &which).await;
    let options = Options {
        client: CLIENT.to_owned(),
        relay: relay.map_err(|why| why.to_string())?,
        limit: args.limit as usize,
        patience: Some(PATIENCE),
        local_sources: true,
        account,
        ..Options::default()
    };
    let mut screen = Screen::Kept(Kept::new(room));
    screen.begin();
    let opening = Prompt::open(stream, &options, sender);
    let opened = printing(opening, &mut pieces, &mut screen).await;
    let opened = opened.map_err(|why| why.to_string())?;
    let (mut prompt, after) =
        opened.map_err(|why| replaced(&SessionError::from(why).to_string()).into_owned())?;
    if asks_rank && after == After::Prompt {
        let rank = prompt.rank().await;
        screen.has_rank(rank.map_err(|lost| format!("the session broke off: {lost}"))?);
    }
    match (after, screen) {
        (After::Prompt, Screen::Kept(kept)) => Ok((Live { at, prompt, pieces }, kept)),
        (After::Ended(end), _) => Err(ended(&end)),
        (After::Prompt, Screen::None | Screen::Notices | Screen::Now) => {
            Err("nothing is kept of it".to_owned())
        }
    }
}

/// How a session ended, as a clause about its task.
fn ended(end: &PromptEnd) -> String {
    match end {
        PromptEnd::TaskEnded => "the task has ended".to_owned(),
        PromptEnd::Left => "the task runs on without a debugger".to_owned(),
        PromptEnd::Killed => "the worker process is killed".to_owned(),
        PromptEnd::Terminated => {
            "the worker process ended, or the relay closed the session".to_owned()
        }
        PromptEnd::Lost(lost) => format!("the session broke off: {lost}"),
    }
}

impl PromptGroup<'_> {
    /// Reads lines and writes what all answer, until none is left.
    async fn converse(&mut self, terminal: &mut Terminal) -> io::Result<Result<(), SessionError>> {
        loop {
            terminal.input.ask(&self.prompt(), true);
            let line = match self.heard(terminal).await {
                Heard::Typed(Typed::Line(line)) => line,
                Heard::Typed(Typed::Interrupt) => {
                    for one in &mut self.live {
                        one.prompt.abort_definition();
                    }
                    continue;
                }
                Heard::Typed(Typed::End) => {
                    terminal.input.say("\n")?;
                    // All of them are left, whatever the focus is on.
                    self.focus = None;
                    "q".to_owned()
                }
                Heard::Tab(tab) => {
                    if let Some(at) = self.focused().first()
                        && let Some(one) = self.live.iter_mut().find(|one| one.at == *at)
                    {
                        // No task waits for it any more where Tab took too long.
                        let _ = tab
                            .answer
                            .send(one.prompt.complete(&tab.line, tab.at).await);
                    }
                    continue;
                }
                Heard::Ended(at, end) => {
                    self.live.retain(|one| one.at != at);
                    self.show(terminal, &[], &[(at, ended(&end))])?;
                    if self.live.is_empty() {
                        terminal.over().await?;
                        return Ok(unexpected(end));
                    }
                    continue;
                }
            };
            if let Some(focus) = line.trim().strip_prefix("focus") {
                if let Err(sentence) = self.set_focus(focus.trim()) {
                    terminal.refuse(&sentence)?;
                }
                continue;
            }
            let (answers, ends) = self.ask(terminal, &line).await?;
            self.live
                .retain(|one| ends.iter().all(|(at, ..)| *at != one.at));
            let silent: Vec<_> = ends.iter().map(|(at, _, why)| (*at, why.clone())).collect();
            self.show(terminal, &answers, &silent)?;
            if self.focused().is_empty() {
                self.focus = None;
            }
            if self.live.is_empty() {
                let broken = ends
                    .into_iter()
                    .map(|(_, end, _)| unexpected(end))
                    .find(Result::is_err);
                return Ok(broken.unwrap_or(Ok(())));
            }
        }
    }

    /// What is asked with.
    fn prompt(&self) -> String {
        let focused = self.focused();
        let text = self.live.iter().find(|one| focused.contains(&one.at));
        let text = text.map_or(crate::pdb::PROMPT, |one| one.prompt.text());
        let who = match (&self.focus, focused.len()) {
            (None, count) => format!("×{count}"),
            (Some(_), 1) => self.members.names().of(&focused),
            (Some(_), count) => format!("×{count} of {}", self.live.len()),
        };
        match text.strip_suffix(") ") {
            Some(text) => format!("{text} {who}) "),
            None => text.to_owned(),
        }
    }

    /// Those to whom commands go.
    fn focused(&self) -> BTreeSet<usize> {
        let live = self.live.iter().map(|one| one.at);
        let is_meant = |at: &usize| self.focus.as_ref().is_none_or(|focus| focus.contains(at));
        live.filter(is_meant).collect()
    }

    fn set_focus(&mut self, text: &str) -> Result<(), String> {
        if text.is_empty() || text == "all" {
            self.focus = None;
            return Ok(());
        }
        let ranks: Ranks = text
            .parse()
            .map_err(|why| format!("{why}: focus 3, focus 0-3,7 or focus all"))?;
        let live = self.live.iter().map(|one| one.at);
        let focus: BTreeSet<usize> = live.filter(|at| self.members.is_of(*at, &ranks)).collect();
        if focus.is_empty() {
            let all = self
                .members
                .names()
                .of(&self.live.iter().map(|one| one.at).collect());
            return Err(format!("none of these is at the prompt; {all} are"));
        }
        self.focus = Some(focus);
        Ok(())
    }

    /// Waits for a line, or for what happens while none is typed.
    async fn heard(&mut self, terminal: &mut Terminal) -> Heard {
        let idle = self
            .live
            .iter_mut()
            .map(|one| async move { (one.at, one.prompt.idle().await) });
        let mut idle: FuturesUnordered<_> = idle.collect();
        tokio::select! {
            typed = terminal.input.next_or_completion() => match typed {
                Ok(typed) => Heard::Typed(typed),
                Err(tab) => Heard::Tab(tab),
            },
            Some((at, end)) = idle.next() => Heard::Ended(at, end),
            // In a pipe; on a terminal it is a key.
            _ = terminal.interrupted.recv() => Heard::Typed(Typed::Interrupt),
        }
    }

    /// What those in the focus answer to `line`, and whose session ended with it.
    async fn ask(
        &mut self,
        terminal: &mut Terminal,
        line: &str,
    ) -> io::Result<(Vec<(usize, Answered)>, Vec<(usize, PromptEnd, String)>)> {
        let focused = self.focused();
        let room = self.room;
        let digests = focused.len() > 1;
        let mut waited = focused.clone();
        let interrupts: Vec<_> = self
            .live
            .iter()
            .filter(|one| focused.contains(&one.at))
            .map(|one| one.prompt.interrupter())
            .collect();
        let running = self.live.iter_mut().filter(|one| focused.contains(&one.at));
        let running = running.map(|one| async move {
            let mut screen = Screen::Kept(Kept::new(room));
            screen.begin();
            one.prompt.set_digests(digests);
            let after = printing(one.prompt.line(line), &mut one.pieces, &mut screen).await;
            screen.ends(line, one.prompt.calls());
            (one.at, after, screen)
        });
        let mut running: FuturesUnordered<_> = running.collect();
        let mut hint = pin!(sleep(HINT));
        let mut hinted = !terminal.input.is_edited();
        let (mut answers, mut ends) = (Vec::new(), Vec::new());
        loop {
            tokio::select! {
                biased;
                _ = terminal.interrupted.recv() => interrupts.iter().for_each(crate::pdb::Interrupt::now),
                () = &mut hint, if !hinted => {
                    hinted = true;
                    let who = self.members.names().of(&waited);
                    terminal.input.say(&format!("[waiting for {who}; Ctrl-C interrupts, and once more leaves running what runs]\n"))?;
                }
                done = running.next() => {
                    let Some((at, after, screen)) = done else {
                        break;
                    };
                    waited.remove(&at);
                    let Screen::Kept(mut kept) = screen else {
                        continue;
                    };
                    match after? {
                        After::Prompt => answers.push((at, Answered::of(&mut kept))),
                        // The relay knows more of why a session is over.
                        After::Ended(end) => {
                            let why = kept.reason().unwrap_or_else(|| ended(&end));
                            ends.push((at, end, why));
                        }
                    }
                }
            }
        }
        Ok((answers, ends))
    }

    /// Writes what was answered, and who is no longer there.
    fn show(
        &self,
        terminal: &mut Terminal,
        answers: &[(usize, Answered)],
        silent: &[(usize, String)],
    ) -> io::Result<()> {
        let names = self.members.names();
        // Who is alone is shown as at a prompt of its own.
        let mut text = match answers {
            [(_, one)] if self.live.len() == 1 || self.focus.is_some() => one.alone(),
            answers => Answered::text(&names, answers),
        };
        text += &told::silent(&names, silent.iter().map(|(at, why)| (*at, &**why)));
        match text.is_empty() {
            true => Ok(()),
            false => terminal.input.say(&text),
        }
    }
}
