//! The prompts of many tasks as one: each line goes to all of them, or to those in focus.
//!
//! The owner handles the user: it reads lines, prints the returned text, and polls [`PromptGroup::idle`] between
//! lines and [`AskedLine::next`] during one. Dropping the group drops all connections, and their other ends decide
//! how the tasks continue. A task that dies, is taken over, resumes or does not answer is named, and the others
//! continue.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::answered::Answered;
use super::live::{LineDone, LivePrompt, Opened, ended};
use super::members::MeantTasks;
use crate::listing::fold::answer_text;
use crate::listing::fold::ranks::Ranks;
use ray_relay_base::wire::json::typed_at;
use ray_relay_debugger::pdb::{self, After, Interrupt, PromptEnd};

/// The tasks at the prompt, and which of them receive commands.
pub struct PromptGroup<'a, S> {
    members: &'a MeantTasks,
    live: Vec<LivePrompt<S>>,
    /// Member indexes. `None`: all.
    focus: Option<BTreeSet<usize>>,
    /// Bytes of one command's output that are stored for each.
    room: usize,
    /// Number of pauses seen so far.
    stops: usize,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin + Send> PromptGroup<'a, S> {
    /// Collects the `opened` prompts of `members`, and describes the result. Ranks that the list does not know come
    /// from the processes.
    pub fn gathered(
        members: &'a mut MeantTasks,
        opened: Vec<Opened<S>>,
        room: usize,
    ) -> (Self, String) {
        let (mut live, mut arrived, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        let mut ranks = BTreeMap::new();
        for (at, opened) in opened {
            match opened {
                Ok((one, mut output)) => {
                    ranks.extend(output.rank.map(|rank| (at, rank)));
                    live.push(one);
                    arrived.push((at, Answered::of(&mut output)));
                }
                Err(why) => silent.push((at, why)),
            }
        }
        let mut text = match members.learn(&ranks) {
            true => members.legend(),
            false => String::new(),
        };
        let stopped = |at: usize| typed_at::<f64>(&members.rows[at], "first_seen");
        live.sort_by(|one, other| stopped(one.at).total_cmp(&stopped(other.at)));
        for (since, one) in live.iter_mut().enumerate() {
            one.since = since;
        }
        let group = Self {
            members,
            stops: live.len(),
            live,
            focus: None,
            room,
        };
        text += &group.describe(&arrived, &silent);
        (group, text)
    }

    /// Whether no task is left.
    pub fn is_over(&self) -> bool {
        self.live.is_empty()
    }

    /// The prompt's text.
    pub fn prompt(&self) -> String {
        let focused = self.focused();
        let text = self.live.iter().find(|one| focused.contains(&one.at));
        let text = text.map_or(pdb::PROMPT, |one| one.prompt.text());
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

    /// Returns the members that receive commands.
    fn focused(&self) -> BTreeSet<usize> {
        let live = self.live.iter().map(|one| one.at);
        let is_meant = |at: &usize| self.focus.as_ref().is_none_or(|focus| focus.contains(at));
        live.filter(is_meant).collect()
    }

    /// Sends further commands to all.
    pub fn focus_all(&mut self) {
        self.focus = None;
    }

    /// Handles a line that sets the focus. `None`: it is a command.
    ///
    /// # Errors
    /// Why the focus cannot be set, in a sentence.
    pub fn take_focus(&mut self, line: &str) -> Option<Result<(), String>> {
        let text = line.trim().strip_prefix("focus")?;
        let is_word = text.is_empty() || text.starts_with(char::is_whitespace);
        is_word.then(|| self.set_focus(text.trim()))
    }

    fn set_focus(&mut self, text: &str) -> Result<(), String> {
        if text.is_empty() || text == "all" {
            self.focus_all();
            return Ok(());
        }
        let ranks: Ranks = text
            .parse()
            .map_err(|why| format!("{why}: focus 3, focus 0-3,7 or focus all"))?;
        let live = self.live.iter().map(|one| one.at);
        let focus: BTreeSet<usize> = live.filter(|at| self.members.is_of(*at, &ranks)).collect();
        if focus.is_empty() {
            let all: BTreeSet<usize> = self.live.iter().map(|one| one.at).collect();
            let all = self.members.names().of(&all);
            return Err(format!("none of these is at the prompt; {all} are"));
        }
        self.focus = Some(focus);
        Ok(())
    }

    /// Aborts the definition of breakpoint commands.
    pub fn abort_definitions(&mut self) {
        for one in &mut self.live {
            one.prompt.abort_definition();
        }
    }

    /// Completes the line with the first task in focus.
    pub async fn complete(&mut self, line: &str, at: usize) -> (usize, Vec<String>) {
        let first = self.focused().first().copied();
        match self.live.iter_mut().find(|one| Some(one.at) == first) {
            Some(one) => one.prompt.complete(line, at).await,
            None => (at, Vec::new()),
        }
    }

    /// Waits until a task leaves the prompt without a command. Cancel safe.
    pub async fn idle(&mut self) -> (usize, PromptEnd) {
        let idle = self.live.iter_mut();
        let idle = idle.map(|one| async move { (one.at, one.prompt.idle().await) });
        let mut idle: FuturesUnordered<_> = idle.collect();
        match idle.next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Removes the member `at` this index, and describes that.
    pub fn lost(&mut self, at: usize, end: &PromptEnd) -> String {
        self.without(&[], &[(at, ended(end, false))])
    }

    /// Runs `line` in the tasks in focus. They resume one after the other, in the order in which they paused.
    pub fn ask(&mut self, line: &str) -> AskedLine<'_> {
        let focused = self.focused();
        let digests = focused.len() > 1;
        let (room, is_ordered) = (self.room, pdb::resumes(line));
        let mut selected: Vec<&mut LivePrompt<S>> = self.live.iter_mut().collect();
        selected.retain(|one| focused.contains(&one.at));
        selected.sort_by_key(|one| one.since);
        let interrupts = selected
            .iter()
            .map(|one| one.prompt.interrupter())
            .collect();
        let mut turn = None;
        let running: FuturesUnordered<Doing<'_>> = FuturesUnordered::new();
        for one in selected {
            let (goes_on, its_turn) = oneshot::channel();
            let order = is_ordered.then(|| (turn.replace(its_turn), goes_on));
            one.prompt.set_digests(digests);
            running.push(Box::pin(one.does(line.to_owned(), room, order)));
        }
        AskedLine {
            members: self.members,
            pending: focused,
            interrupts,
            running,
            done: Vec::new(),
        }
    }

    /// Describes the results of a line, and returns how sessions ended with it.
    pub fn conclude(&mut self, results: Vec<LineDone>) -> (String, Vec<PromptEnd>) {
        let (mut answers, mut silent, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for LineDone {
            at,
            after,
            mut output,
            has_run,
            evaluates,
        } in results
        {
            match after {
                After::Prompt => {
                    if has_run && let Some(one) = self.live.iter_mut().find(|one| one.at == at) {
                        one.since = self.stops;
                        self.stops += 1;
                    }
                    answers.push((at, Answered::of(&mut output)));
                }
                // The relay knows better why a session is over.
                After::Ended(end) => {
                    silent.push((
                        at,
                        output.reason().unwrap_or_else(|| ended(&end, evaluates)),
                    ));
                    ends.push(end);
                }
            }
        }
        (self.without(&answers, &silent), ends)
    }

    /// Detaches from the tasks `some`, which resume, and describes that.
    pub async fn leave(&mut self, some: &BTreeSet<usize>) -> String {
        let detached = self.live.iter_mut().filter(|one| some.contains(&one.at));
        let detached = detached.map(|one| async move { (one.at, one.leave().await) });
        let detached = join_all(detached).await;
        self.without(&[], &detached)
    }

    /// Detaches from all tasks.
    pub async fn detach_all(&mut self) -> String {
        let all: BTreeSet<usize> = self.live.iter().map(|one| one.at).collect();
        self.leave(&all).await
    }

    /// Removes the tasks in `gone`. Describes that, and the answers of the others.
    fn without(&mut self, answers: &[(usize, Answered)], gone: &[(usize, String)]) -> String {
        self.live
            .retain(|one| gone.iter().all(|(at, _)| *at != one.at));
        let text = self.describe(answers, gone);
        if self.focused().is_empty() {
            self.focus = None;
        }
        text
    }

    /// Describes answers, and tasks that left the prompt.
    fn describe(&self, answers: &[(usize, Answered)], silent: &[(usize, String)]) -> String {
        let names = self.members.names();
        // A single task is shown as at a prompt of its own.
        let text = match answers {
            [(_, one)] if self.live.len() == 1 || self.focus.is_some() => one.alone(),
            answers => Answered::text(&names, answers),
        };
        text + &answer_text::silent(&names, silent.iter().map(|(at, why)| (*at, &**why)))
    }
}

/// The pending line of one task.
type Doing<'g> = Pin<Box<dyn Future<Output = LineDone> + Send + 'g>>;

/// A line in progress. If it is dropped, tasks that have not finished it can only be passed to
/// [`PromptGroup::leave`].
pub struct AskedLine<'g> {
    members: &'g MeantTasks,
    pending: BTreeSet<usize>,
    interrupts: Vec<Interrupt>,
    running: FuturesUnordered<Doing<'g>>,
    done: Vec<LineDone>,
}

impl AskedLine<'_> {
    /// Waits until the next task has finished the line. Returns whether there was one. Cancel safe.
    pub async fn next(&mut self) -> bool {
        let Some(done) = self.running.next().await else {
            return false;
        };
        self.pending.remove(&done.at);
        self.done.push(done);
        true
    }

    /// Interrupts the tasks that have not finished.
    pub fn interrupt(&self) {
        self.interrupts.iter().for_each(Interrupt::now);
    }

    /// Names the tasks that have not finished, and says that the key `by` interrupts them.
    pub fn hint(&self, by: &str) -> String {
        let who = self.members.names().of(&self.pending);
        format!("[waiting for {who}; {by} interrupts, and once more leaves running what runs]\n")
    }

    /// Returns the results, and the tasks that have not finished.
    pub fn over(self) -> (Vec<LineDone>, BTreeSet<usize>) {
        (self.done, self.pending)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
