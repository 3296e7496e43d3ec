//! Splits a line into its commands, and runs them one by one.

use tokio::io::{AsyncRead, AsyncWrite};

use super::{After, Prompt, PromptEnd};
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::grammar::{self, PdbCommand};
use crate::pdb::help;

/// Commands that one line or stop may cause, with `;;`, aliases and breakpoints' own commands.
const MAX_QUEUED_COMMANDS: usize = 1000;
/// The largest number of aliases within aliases.
const MAX_ALIAS_DEPTH: usize = 20;

/// The purpose of the next line.
#[derive(Debug)]
pub(super) enum Mode {
    Command,
    /// `commands NUMBER`, with the lines so far.
    Commands {
        number: usize,
        lines: Vec<String>,
    },
    /// `clear` without an argument.
    ClearAll,
}

/// One step of a line.
#[derive(Debug)]
pub(super) enum Task {
    Line(String),
    /// Shows the location, after a breakpoint's own commands.
    Show,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// Runs `line`, and returns when the program has stopped again. Not cancel safe: after a cancelled line, only
    /// [`Prompt::leave`] is valid.
    pub async fn line(&mut self, line: &str) -> After {
        self.interrupts.mark_unchanged();
        self.failed = false;
        let line = line.trim_end_matches(['\r', '\n']);
        let outcome = match self.take_line(line).await {
            Ok(After::Prompt) => self.keep_breakpoints().await.map(|()| After::Prompt),
            outcome => outcome,
        };
        match outcome {
            Ok(after) => after,
            Err(Lost::Terminated) => After::Ended(PromptEnd::Terminated),
            Err(lost) => After::Ended(PromptEnd::Lost(lost)),
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

    /// Processes the queue.
    pub(super) async fn work(&mut self) -> Result<After, Lost> {
        while !matches!(self.mode, Mode::ClearAll) {
            let Some(task) = self.queue.pop_front() else {
                break;
            };
            // An alias that ends with itself never ends, and may send nothing to the debugger.
            self.worked += 1;
            if self.worked > MAX_QUEUED_COMMANDS {
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

    /// Runs the first command of a line, and queues the rest.
    async fn one(&mut self, line: &str) -> Result<Option<PromptEnd>, Lost> {
        let mut line = line.trim().to_owned();
        for _ in 0..MAX_ALIAS_DEPTH {
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
            if self.queue.len() >= MAX_QUEUED_COMMANDS {
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
        match self.obey(command).await {
            Ok(end) => Ok(end),
            Err(failure) => self.report(failure).await.map(|()| None),
        }
    }

    async fn obey(&mut self, command: PdbCommand) -> Result<Option<PromptEnd>, PdbError> {
        match command {
            PdbCommand::Help(topic) => match help::about(&topic) {
                Ok(text) => self.print(text).await,
                Err(sentence) => self.error(&sentence).await,
            },
            PdbCommand::Where => self.where_().await?,
            PdbCommand::Up(count) => self.up(&count).await?,
            PdbCommand::Down(count) => self.down(&count).await?,
            PdbCommand::List(span) => self.list(&span).await?,
            PdbCommand::Longlist => self.longlist().await?,
            PdbCommand::Source(text) => self.source(&text).await?,
            PdbCommand::Args => self.value("args", "").await?,
            PdbCommand::Print(text) => self.value("p", &text).await?,
            PdbCommand::Pretty(text) => self.value("pp", &text).await?,
            PdbCommand::Whatis(text) => self.value("whatis", &text).await?,
            PdbCommand::Statement(text) => self.value("statement", &text).await?,
            PdbCommand::Display(text) => self.display(&text).await?,
            PdbCommand::Undisplay(text) => self.undisplay(&text).await,
            PdbCommand::Retval => self.retval().await,
            PdbCommand::Exceptions => self.exceptions().await?,
            PdbCommand::Threads => self.threads().await?,
            PdbCommand::Thread(number) => self.select_thread(&number).await?,
            PdbCommand::Break { at, temporary } => self.set_break(&at, temporary).await?,
            PdbCommand::Clear(at) => self.clear_some(&at).await?,
            PdbCommand::Enable(numbers) => self.enable(&numbers, true).await?,
            PdbCommand::Disable(numbers) => self.enable(&numbers, false).await?,
            PdbCommand::Condition(text) => self.condition(&text).await?,
            PdbCommand::Ignore(text) => self.ignore(&text).await?,
            PdbCommand::Commands(number) => self.commands(&number).await,
            PdbCommand::Alias(text) => self.alias(&text).await,
            PdbCommand::Unalias(name) => _ = self.aliases.remove(name.trim()),
            PdbCommand::Next => return Ok(self.next().await?),
            PdbCommand::Step => return Ok(self.step().await?),
            PdbCommand::Return => return Ok(self.return_().await?),
            PdbCommand::Until(line) => return self.until(&line).await,
            PdbCommand::Continue => return Ok(self.continue_().await?),
            PdbCommand::Jump(line) => self.jump(&line).await?,
            PdbCommand::Detach | PdbCommand::Quit => {
                self.leave().await;
                return Ok(Some(PromptEnd::Left));
            }
            PdbCommand::Kill => return Ok(self.kill().await?),
            PdbCommand::Unsupported(why) => self.error(why).await,
        }
        Ok(None)
    }

    async fn alias(&mut self, text: &str) {
        let (name, command) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let listed = |(name, command): (&String, &String)| format!("{name} = {command}\n");
        match (name, command.trim()) {
            ("", _) => {
                let all: String = self.aliases.iter().map(listed).collect();
                self.print(all).await;
            }
            (name, "") => match self.aliases.get_key_value(name).map(listed) {
                Some(line) => self.print(line).await,
                None => self.error(&format!("Unknown alias '{name}'")).await,
            },
            (name, command) if self.aliases.len() < MAX_QUEUED_COMMANDS => {
                _ = self.aliases.insert(name.to_owned(), command.to_owned());
            }
            _ => self.error("too many aliases").await,
        }
    }
}
