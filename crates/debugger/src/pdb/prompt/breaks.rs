//! Commands about breakpoints.

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Prompt;
use super::line::Mode;
use super::request::if_any;
use crate::pdb::breakpoints::PromptBreakpoint;
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::grammar::{self, parse, resumes};
use crate::pdb::location::{self, Location};
use crate::pdb::probe::ProbeAnswer;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::text::escaped;

/// Lines of one `commands` list.
const MAX_COMMANDS: usize = 200;

/// The target of a breakpoint.
#[derive(Deserialize)]
struct BreakTarget {
    file: String,
    line: u32,
    stop: u32,
}

/// The location of a function, if there is one.
#[derive(Deserialize)]
struct FunctionAnswer {
    function: Option<BreakTarget>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// Sends a file's breakpoints to the debugger, with the lines `more` for one run only.
    pub(super) async fn send_breakpoints(&mut self, file: &str, more: &[u32]) -> Result<(), Lost> {
        let request = self.table.request(file, more);
        match self.ask_soon(Command::SetBreakpoints, request).await {
            Ok(_) => Ok(()),
            Err(failure) => self.report(failure).await,
        }
    }

    pub(super) async fn set_break(&mut self, text: &str, temporary: bool) -> Result<(), PdbError> {
        if text.is_empty() {
            let listing = escaped(&self.table.listing());
            self.print(listing).await;
            return Ok(());
        }
        let (location, condition) = location::read(text);
        let place = self.place(location).await?;
        let lines = self.lines_at(&[(place.file.clone(), place.line)]).await?;
        let source = lines.first().map_or("", |line| line.as_str());
        if source.is_empty() {
            self.print("End of file\n").await;
            return Ok(());
        }
        let source = source.trim();
        if source.is_empty()
            || ["#", "\"\"\"", "'''"]
                .iter()
                .any(|mark| source.starts_with(mark))
        {
            return Err(PdbError::refused("Blank or comment"));
        }
        let breakpoint = PromptBreakpoint {
            file: place.file.clone(),
            line: place.line,
            stop: place.stop,
            temporary,
            condition: condition.map(str::to_owned),
            ..PromptBreakpoint::default()
        };
        let full = || PdbError::refused("too many breakpoints; delete some with `clear`");
        let added = self.table.add(breakpoint).ok_or_else(full)?;
        let line = format!(
            "Breakpoint {} at {}:{}\n",
            added.number, added.file, added.line
        );
        self.send_breakpoints(&place.file, &[]).await?;
        self.print(escaped(&line)).await;
        Ok(())
    }

    /// Resolves `location`.
    async fn place(&mut self, location: Location<'_>) -> Result<BreakTarget, PdbError> {
        let (file, line) = match location {
            Location::File { name, line } => (self.file(name).await?, line),
            Location::Line(line) => (self.here(), Ok(line)),
            Location::Function(name) => return self.function(name).await,
        };
        let line = line.map_err(|line| PdbError::refused(format!("Bad lineno: {line}")))?;
        Ok(BreakTarget {
            file,
            line,
            stop: line,
        })
    }

    /// The file of the selected frame.
    fn here(&self) -> String {
        self.frame()
            .map(|frame| frame.file.clone())
            .unwrap_or_default()
    }

    /// The file or module called `name`.
    async fn file(&mut self, name: &str) -> Result<String, PdbError> {
        let answer = self.probe(&json!({"op": "module", "text": name})).await?;
        if let ProbeAnswer {
            file: Some(found), ..
        } = answer
        {
            return Ok(found);
        }
        // A file on the stack needs no search, such as `train.py` of a job's working_dir.
        let ending = format!("/{name}");
        let mut on_stack = self.stack.iter().map(|frame| &frame.file);
        let found = on_stack.find(|file| file.ends_with(&ending)).cloned();
        found.ok_or_else(|| PdbError::refused(format!("'{name}' not found from sys.path")))
    }

    async fn function(&mut self, text: &str) -> Result<BreakTarget, PdbError> {
        let ask = json!({"op": "function", "text": text, "file": self.here()});
        let found: FunctionAnswer = self.probe(&ask).await?;
        found.function.ok_or_else(|| {
            PdbError::refused(format!(
                "The specified object '{text}' is not a function or was not found along sys.path."
            ))
        })
    }

    /// Deletes the breakpoints that `which` picks, and reports that.
    pub(super) async fn clear(
        &mut self,
        which: impl Fn(&PromptBreakpoint) -> bool,
    ) -> Result<(), Lost> {
        let files = self.table.files();
        let gone = self.table.remove(which);
        for file in files {
            if gone.iter().any(|one| one.file == file) {
                self.send_breakpoints(&file, &[]).await?;
            }
        }
        for one in gone {
            self.print(escaped(&format!("Deleted {one}\n"))).await;
        }
        Ok(())
    }

    pub(super) async fn clear_some(&mut self, text: &str) -> Result<(), PdbError> {
        if text.is_empty() {
            self.mode = Mode::ClearAll;
            return Ok(());
        }
        if let Some((name, line)) = text.rsplit_once(':') {
            let invalid = |_| PdbError::refused(format!("Invalid line number ({line})"));
            let line = line.trim().parse::<u32>().map_err(invalid)?;
            let ending = format!("/{name}");
            let is_file = |file: &str| file == name || file.ends_with(&ending);
            let files: Vec<String> = self
                .table
                .files()
                .into_iter()
                .filter(|file| is_file(file))
                .collect();
            if files
                .iter()
                .any(|file| self.table.lines(file).contains(&line))
            {
                let there = |one: &PromptBreakpoint| is_file(&one.file) && one.line == line;
                return Ok(self.clear(there).await?);
            }
            let name = match files.into_iter().next() {
                Some(known) => known,
                None => self.absolute(name).await?,
            };
            let sentence = if self.table.files().contains(&name) {
                format!("There is no breakpoint at {name}:{line}")
            } else {
                format!("There are no breakpoints in {name}")
            };
            return Err(PdbError::Refused(sentence));
        }
        for word in text.split_whitespace() {
            match self.table.named(word).map(|one| one.number) {
                Ok(number) => self.clear(|one| one.number == number).await?,
                Err(sentence) => self.error(&sentence).await,
            }
        }
        Ok(())
    }

    /// The path of a file, relative to the worker's working directory.
    async fn absolute(&mut self, name: &str) -> Result<String, Lost> {
        let answer = if_any(self.probe(&json!({"op": "absolute", "text": name})).await)?;
        let file = answer.and_then(|answer: ProbeAnswer| answer.file);
        Ok(file.unwrap_or_else(|| name.to_owned()))
    }

    pub(super) async fn enable(&mut self, numbers: &str, enable: bool) -> Result<(), Lost> {
        for word in numbers.split_whitespace() {
            let one = match self.table.named(word) {
                Ok(one) => one,
                Err(sentence) => {
                    self.error(&sentence).await;
                    continue;
                }
            };
            one.disabled = !enable;
            let (line, file) = (one.to_string(), one.file.clone());
            self.send_breakpoints(&file, &[]).await?;
            let word = if enable { "Enabled" } else { "Disabled" };
            self.print(escaped(&format!("{word} {line}\n"))).await;
        }
        Ok(())
    }

    pub(super) async fn condition(&mut self, text: &str) -> Result<(), PdbError> {
        let (number, condition) = text.split_once(' ').unwrap_or((text, ""));
        let one = self.table.named(number).map_err(PdbError::Refused)?;
        one.condition = Some(condition.to_owned()).filter(|text| !text.is_empty());
        let line = match &one.condition {
            None => format!("Breakpoint {} is now unconditional.\n", one.number),
            Some(_) => format!("New condition set for breakpoint {}.\n", one.number),
        };
        let file = one.file.clone();
        self.send_breakpoints(&file, &[]).await?;
        self.print(line).await;
        Ok(())
    }

    pub(super) async fn ignore(&mut self, text: &str) -> Result<(), PdbError> {
        let mut words = text.split_whitespace();
        let number = words.next().unwrap_or_default();
        let count = words
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or_default();
        let one = self.table.named(number).map_err(PdbError::Refused)?;
        one.ignore = count;
        let number = one.number;
        let line = match count {
            0 => format!("Will stop next time breakpoint {number} is reached.\n"),
            1 => format!("Will ignore next 1 crossing of breakpoint {number}.\n"),
            count => format!("Will ignore next {count} crossings of breakpoint {number}.\n"),
        };
        self.print(line).await;
        Ok(())
    }

    /// Begins a list of commands; the following lines go to [`Prompt::define`].
    pub(super) async fn commands(&mut self, text: &str) {
        let number = if text.is_empty() {
            self.table.last().to_string()
        } else {
            text.trim().to_owned()
        };
        if number.parse::<i64>().is_err() {
            self.error("Usage: commands [bnum]\n        ...\n        end")
                .await;
            return;
        }
        match self.table.named(&number).map(|one| one.number) {
            Ok(number) => {
                self.mode = Mode::Commands {
                    number,
                    lines: Vec::new(),
                }
            }
            Err(sentence) => {
                self.error(&format!("cannot set commands: {sentence}"))
                    .await
            }
        }
    }

    /// Adds one line to a list of commands.
    pub(super) fn define(&mut self, line: &str) {
        let Mode::Commands { number, lines } = &mut self.mode else {
            return;
        };
        let mut remaining = Some(line);
        while let Some(line) = remaining {
            let (first, rest) = grammar::first(line);
            remaining = rest;
            let first = first.trim();
            let ends = first == "end" || (!first.is_empty() && resumes(&parse(first)));
            if !first.is_empty() && first != "end" && lines.len() < MAX_COMMANDS {
                lines.push(first.to_owned());
            }
            if ends {
                let (number, lines) = (*number, std::mem::take(lines));
                self.mode = Mode::Command;
                if let Ok(one) = self.table.named(&number.to_string()) {
                    one.commands = Some(lines).filter(|lines| !lines.is_empty());
                }
                return;
            }
        }
    }

    /// Discards an unfinished list of commands.
    pub fn abort_definition(&mut self) -> bool {
        let defining = !matches!(self.mode, Mode::Command);
        self.mode = Mode::Command;
        defining
    }
}
