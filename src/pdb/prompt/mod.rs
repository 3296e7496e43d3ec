//! The prompt: its state, the queue of commands, and requests to the debugger.

mod breaks;
mod inspect;
mod open;
mod run;

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub use self::open::{OpenError, Options};

use super::breakpoints::{Breakpoint, Table};
use super::grammar::{self, Command};
use super::output::{Piece, clean, cut, cut_hint};
use super::wire::{Incoming, Lost, Wire};
use super::{help, probe};

/// How long the debugger may take for what needs no code of the program to run.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Commands that one line or stop may lead to, with `;;`, aliases and breakpoints' own commands.
const LONGEST_QUEUE: usize = 1000;
/// Events kept while the debugger is asked something.
const MOST_EVENTS: usize = 1000;
/// Aliases within aliases.
const DEEPEST_ALIAS: usize = 20;
/// Most of the program's output in one piece, in characters.
const LONGEST_OUTPUT: usize = 20_000;

/// As the relay refuses it to debuggers.
const NO_KILL: &str =
    "ending a worker process takes the permission `terminate`; `q` leaves, and the task runs on";

/// What comes after a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// The next line; [`Prompt::text`] says what is asked for.
    Prompt,
    /// Nothing: the session is over.
    Ended(End),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// `quit`, `detach`, or a task that ran on after an interrupt: it runs on.
    Left,
    /// `q!`: the worker was killed.
    Killed,
    /// The worker process ended, or the relay ended the session.
    Terminated,
    /// The connection is gone.
    Lost(Lost),
}

/// Interrupts a [`Prompt`] that is busy, from elsewhere.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Sender<u64>);

impl Interrupt {
    /// Pauses a task that runs (twice: leaves it running), gives up on an expression that does not end. Nothing
    /// happens where the prompt waits for a line.
    pub fn now(&self) {
        self.0.send_modify(|times| *times = times.wrapping_add(1));
    }
}

/// One frame of the stack.
#[derive(Debug, Clone, PartialEq)]
struct Frame {
    id: i64,
    name: String,
    file: String,
    line: u32,
}

/// Why a request has no answer.
#[derive(Debug)]
enum Failure {
    /// The debugger's, or the relay's, sentence.
    Refused(String),
    /// An interrupt came first.
    Interrupted,
    Lost(Lost),
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// What the next line is for.
#[derive(Debug)]
enum Mode {
    Command,
    /// `commands NUMBER`: lines so far.
    Commands {
        number: usize,
        lines: Vec<String>,
    },
    /// `clear` without an argument.
    ClearAll,
}

/// One step of what a line asks for.
#[derive(Debug)]
enum Task {
    Line(String),
    /// After a breakpoint's own commands.
    Show,
}

/// A pdb prompt over a connection to a debug adapter.
#[derive(Debug)]
pub struct Prompt<S> {
    wire: Wire<S>,
    out: mpsc::Sender<Piece>,
    interrupts: watch::Receiver<u64>,
    interrupter: Interrupt,
    limit: usize,
    may_kill: bool,
    local_sources: bool,
    /// Events that came while an answer was waited for.
    events: VecDeque<(String, Value)>,
    thread: i64,
    /// Newest first, as the debugger gives it.
    stack: Vec<Frame>,
    /// Frames at the top that are Ray's own helpers around `breakpoint()`.
    hidden: usize,
    /// The selected one.
    current: usize,
    mode: Mode,
    queue: VecDeque<Task>,
    /// Steps since a line was typed or the program stopped.
    worked: usize,
    last: String,
    /// Line after the last listing.
    listed: Option<u32>,
    sources: HashMap<String, Vec<String>>,
    table: Table,
    /// By the debugger's id of the frame: expressions and what they were.
    displays: HashMap<i64, Vec<(String, String)>>,
    aliases: BTreeMap<String, String>,
    /// What the last function returned, as the debugger shows it.
    returned: Option<String>,
    /// The program stopped because of an exception.
    raised: bool,
    failed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// What to show in front of the next line.
    pub fn text(&self) -> &'static str {
        match self.mode {
            Mode::Command => "(Pdb) ",
            Mode::Commands { .. } => "(com) ",
            Mode::ClearAll => "Clear all breaks? ",
        }
    }

    /// A handle that interrupts [`Prompt::line`].
    pub fn interrupter(&self) -> Interrupt {
        self.interrupter.clone()
    }

    /// Whether a command of the last line said `***`.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Does what `line` asks for, and returns when the program has stopped again. Not cancel safe: a session of which
    /// a line was dropped is good for [`Prompt::leave`] alone.
    pub async fn line(&mut self, line: &str) -> After {
        self.interrupts.mark_unchanged();
        self.failed = false;
        let line = line.trim_end_matches(['\r', '\n']);
        match self.take_line(line).await {
            Ok(after) => after,
            Err(lost) => After::Ended(End::Lost(lost)),
        }
    }

    async fn take_line(&mut self, line: &str) -> Result<After, Lost> {
        self.worked = 0;
        match &mut self.mode {
            Mode::Command => {
                let line = if line.trim().is_empty() {
                    self.last.clone()
                } else {
                    line.to_owned()
                };
                self.queue.push_back(Task::Line(line));
            }
            Mode::Commands { .. } => {
                self.define(line);
                return Ok(After::Prompt);
            }
            Mode::ClearAll => {
                self.mode = Mode::Command;
                if matches!(line.trim().to_lowercase().as_str(), "y" | "yes") {
                    self.clear(|_| true).await?;
                }
            }
        }
        self.work().await
    }

    /// Works off the queue.
    async fn work(&mut self) -> Result<After, Lost> {
        while !matches!(self.mode, Mode::ClearAll) {
            let Some(task) = self.queue.pop_front() else {
                break;
            };
            // An alias that ends with itself has no end, and may ask the debugger for nothing.
            self.worked += 1;
            if self.worked > LONGEST_QUEUE {
                self.queue.clear();
                self.error("too many commands at once").await;
                break;
            }
            tokio::task::yield_now().await;
            match task {
                Task::Line(line) if matches!(self.mode, Mode::Commands { .. }) => {
                    self.define(&line);
                }
                Task::Show => self.show().await?,
                Task::Line(line) => {
                    if let Some(end) = self.one(&line).await? {
                        self.queue.clear();
                        return Ok(After::Ended(end));
                    }
                }
            }
        }
        Ok(After::Prompt)
    }

    /// One command of a line; the rest is queued.
    async fn one(&mut self, line: &str) -> Result<Option<End>, Lost> {
        let mut line = line.trim().to_owned();
        for _ in 0..DEEPEST_ALIAS {
            let word = line.split_whitespace().next().unwrap_or_default();
            match self.aliases.get(word) {
                Some(alias) => match grammar::expand(alias, &line) {
                    Some(expanded) => line = expanded,
                    None => {
                        self.error("an alias makes this line too long").await;
                        return Ok(None);
                    }
                },
                None => break,
            }
        }
        let (first, rest) = grammar::first(&line);
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            if self.queue.len() >= LONGEST_QUEUE {
                self.error("too many commands at once").await;
                return Ok(None);
            }
            self.queue.push_front(Task::Line(rest.to_owned()));
        }
        if first.trim().is_empty() {
            return Ok(None);
        }
        first.clone_into(&mut self.last);
        let command = grammar::parse(first);
        // A command that has resumed drops its position, so `list` begins anew.
        self.obey(command).await
    }

    async fn obey(&mut self, command: Command) -> Result<Option<End>, Lost> {
        match command {
            Command::Help(topic) => match help::about(&topic) {
                Ok(text) => self.say(text).await,
                Err(sentence) => self.error(&sentence).await,
            },
            Command::Where => self.where_().await?,
            Command::Up(count) => self.up(&count).await?,
            Command::Down(count) => self.down(&count).await?,
            Command::List(span) => self.list(&span).await?,
            Command::Longlist => self.longlist().await?,
            Command::Source(text) => self.source(&text).await?,
            Command::Args => self.value("args", "").await?,
            Command::Print(text) => self.value("p", &text).await?,
            Command::Pretty(text) => self.value("pp", &text).await?,
            Command::Whatis(text) => self.value("whatis", &text).await?,
            Command::Statement(text) => self.value("statement", &text).await?,
            Command::Display(text) => self.display(&text).await?,
            Command::Undisplay(text) => self.undisplay(&text).await,
            Command::Retval => self.retval().await,
            Command::Exceptions => self.exceptions().await?,
            Command::Threads => self.threads().await?,
            Command::Thread(number) => self.select_thread(&number).await?,
            Command::Break { at, temporary } => self.set_break(&at, temporary).await?,
            Command::Clear(at) => self.clear_some(&at).await?,
            Command::Enable(numbers) => self.enable(&numbers, true).await?,
            Command::Disable(numbers) => self.enable(&numbers, false).await?,
            Command::Condition(text) => self.condition(&text).await?,
            Command::Ignore(text) => self.ignore(&text).await,
            Command::Commands(number) => self.commands(&number).await,
            Command::Alias(text) => self.alias(&text).await,
            Command::Unalias(name) => _ = self.aliases.remove(name.trim()),
            Command::Next => return self.next().await,
            Command::Step => return self.step().await,
            Command::Return => return self.return_().await,
            Command::Until(line) => return self.until(&line).await,
            Command::Continue => return self.continue_().await,
            Command::Jump(line) => self.jump(&line).await?,
            Command::Detach | Command::Quit => {
                self.leave().await;
                return Ok(Some(End::Left));
            }
            Command::Kill => return self.kill().await,
            Command::Unsupported(why) => self.error(why).await,
        }
        Ok(None)
    }

    async fn alias(&mut self, text: &str) {
        let (name, command) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let listed = |(name, command): (&String, &String)| format!("{name} = {command}\n");
        match (name, command.trim()) {
            ("", _) => {
                let all: String = self.aliases.iter().map(listed).collect();
                self.say(all).await;
            }
            (name, "") => match self.aliases.get_key_value(name).map(listed) {
                Some(line) => self.say(line).await,
                None => self.error(&format!("Unknown alias '{name}'")).await,
            },
            (name, command) if self.aliases.len() < LONGEST_QUEUE => {
                _ = self.aliases.insert(name.to_owned(), command.to_owned());
            }
            _ => self.error("too many aliases").await,
        }
    }

    /// Lets go of the task, which runs on.
    pub async fn leave(&mut self) {
        self.goodbye(false).await;
    }

    async fn kill(&mut self) -> Result<Option<End>, Lost> {
        if !self.may_kill {
            self.error(NO_KILL).await;
            return Ok(None);
        }
        match self.goodbye(true).await {
            Some(sentence) => {
                self.error(&sentence).await;
                Ok(None)
            }
            None => Ok(Some(End::Killed)),
        }
    }

    /// Disconnects; the sentence of a refusal.
    async fn goodbye(&mut self, kill: bool) -> Option<String> {
        let arguments = json!({"restart": false, "terminateDebuggee": kill});
        let refusal = match timeout(PATIENCE / 6, self.ask("disconnect", arguments)).await {
            Ok(Err(Failure::Refused(sentence))) if kill => Some(sentence),
            _ => None,
        };
        if refusal.is_none() {
            self.wire.close().await;
        }
        refusal
    }

    /// Waits for something that happens while nobody types, writes it, and returns where the session is over. Cancel
    /// safe.
    pub async fn idle(&mut self) -> End {
        loop {
            let incoming = match self.wire.read().await {
                Ok(incoming) => incoming,
                Err(lost) => return End::Lost(lost),
            };
            if let Incoming::Event { name, body } = incoming {
                match name.as_str() {
                    "terminated" | "exited" => return End::Terminated,
                    // Nobody waits here, so a full channel loses output rather than blocking a cancel.
                    "output" => {
                        if let Some(piece) = program_output(&body) {
                            let _ = self.out.try_send(piece);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Completions for `line` up to the byte `at`: where they begin, and what fits there.
    pub async fn complete(&mut self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = line.get(..at).unwrap_or(line);
        let begins = before
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .map_or(0, |found| {
                found + before[found..].chars().next().map_or(1, char::len_utf8)
            });
        let text = &before[begins..];
        let mut found: Vec<String> = Vec::new();
        if begins == 0 {
            let names = grammar::NAMES.iter().map(|names| names[0]);
            found.extend(
                names
                    .filter(|name| name.starts_with(text))
                    .map(str::to_owned),
            );
        }
        let part = text.rfind('.').map_or(0, |dot| dot + 1);
        if let Some(frame) = self.stack.get(self.current)
            && !text.is_empty()
        {
            let ask =
                json!({"frameId": frame.id, "text": text, "column": text.chars().count() + 1});
            if let Ok(Ok(body)) = timeout(PATIENCE / 15, self.ask("completions", ask)).await {
                let labels = body["targets"].as_array().into_iter().flatten();
                let labels = labels.filter_map(|one| one["label"].as_str()).take(500);
                let fits = labels.filter(|label| label.starts_with(&text[part..]));
                found.extend(fits.map(|label| clean(&format!("{}{label}", &text[..part]))));
            }
        }
        found.sort();
        found.dedup();
        (begins, found)
    }

    async fn put(&mut self, piece: Piece) {
        // Ray's own words on the way to its breakpoint.
        if self.stack.is_empty() && matches!(piece, Piece::Program(_)) {
            return;
        }
        // Whoever reads the output may be gone; the session is ended by its owner then.
        let _ = self.out.send(piece).await;
    }

    async fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.put(Piece::Text(text)).await;
        }
    }

    async fn error(&mut self, sentence: &str) {
        self.failed = true;
        self.say(format!("*** {}\n", clean(sentence))).await;
    }

    /// One request and its answer. Events that come meanwhile are kept.
    async fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, Failure> {
        let number = self.wire.send(command, arguments).await?;
        loop {
            let incoming = tokio::select! {
                incoming = self.wire.read() => incoming?,
                _ = self.interrupts.changed() => return Err(Failure::Interrupted),
            };
            match incoming {
                Incoming::Answer { to, body } if to == number => {
                    return body.map_err(Failure::Refused);
                }
                Incoming::Event { name, body } if name == "output" => {
                    if let Some(piece) = program_output(&body) {
                        self.put(piece).await;
                    }
                }
                Incoming::Event { name, body } => {
                    if self.events.len() >= MOST_EVENTS {
                        self.events.pop_front();
                    }
                    self.events.push_back((name, body));
                }
                // Answers to requests that were given up.
                Incoming::Answer { .. } | Incoming::Other => {}
            }
        }
    }

    /// A request that runs no code of the program, so an answer comes soon.
    async fn ask_soon(&mut self, command: &str, arguments: Value) -> Result<Value, Failure> {
        match timeout(PATIENCE, self.ask(command, arguments)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Refused(format!(
                "the debugger does not answer `{command}`; it may still be busy with an expression"
            ))),
        }
    }

    /// Runs [`probe`] in the selected frame.
    async fn probe(&mut self, ask: &Value) -> Result<Value, Failure> {
        let frame = self.stack.get(self.current).map(|frame| frame.id);
        let arguments =
            json!({"expression": probe::expression(ask), "frameId": frame, "context": "clipboard"});
        let body = self.ask("evaluate", arguments).await?;
        let result = body["result"].as_str().unwrap_or_default();
        match probe::answer(result) {
            Some(answer) => Ok(answer),
            // The debugger answers with the exception where an evaluation fails.
            None => Err(Failure::Refused(last_line(result).to_owned())),
        }
    }

    /// Says why there is no answer; only a lost connection is passed on.
    async fn tell(&mut self, failure: Failure) -> Result<(), Lost> {
        match failure {
            Failure::Refused(sentence) => {
                let sentence = last_line(&sentence).to_owned();
                self.error(&sentence).await;
            }
            Failure::Interrupted => {
                self.failed = true;
                self.say("--KeyboardInterrupt--\n").await;
            }
            Failure::Lost(lost) => return Err(lost),
        }
        Ok(())
    }

    /// Prints the outcome of an expression or a statement.
    async fn value(&mut self, op: &str, text: &str) -> Result<(), Lost> {
        match self
            .probe(&json!({"op": op, "text": text, "limit": self.limit}))
            .await
        {
            Ok(answer) => {
                let total = answer["total"].as_u64().unwrap_or_default();
                let mut text = clean(answer["text"].as_str().unwrap_or_default());
                self.failed |= answer["failed"] == true;
                if total > self.limit as u64 {
                    text.truncate(text.trim_end().len());
                    text += &format!("\n{}", cut_hint(self.limit, total));
                }
                self.say(text).await;
                Ok(())
            }
            Err(failure) => self.tell(failure).await,
        }
    }
}

/// The last line with anything in it: of a traceback, the exception.
fn last_line(text: &str) -> &str {
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or(text)
}

/// An `output` event for the screen; `None` where it is not meant for people.
fn program_output(body: &Value) -> Option<Piece> {
    let text = body["output"].as_str()?;
    match body["category"].as_str() {
        Some("telemetry") => None,
        Some("stdout" | "stderr") => Some(Piece::Program(cut(&clean(text), LONGEST_OUTPUT))),
        _ => Some(Piece::Text(cut(&clean(text), LONGEST_OUTPUT))),
    }
}

#[cfg(test)]
mod tests;
