//! Commands that inspect: the stack, source, values of expressions, threads.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::Prompt;
use super::answers::{RaisedAnswer, ThreadsAnswer};
use super::request::{REQUEST_TIMEOUT, if_any};
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::grammar::{Span, span};
use crate::pdb::output::{Piece, cut};
use crate::pdb::probe::ProbeAnswer;
use ray_relay_base::memory::MemoryUse;
use ray_relay_base::wire::dap::message::ThreadEvent;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::json::into_typed;
use ray_relay_base::wire::notebook::{NO_SOURCE, is_cell};
use ray_relay_base::wire::text::escaped;

/// Longest source that is fetched, in lines, and the lines of one request.
const MAX_SOURCE_LINES: usize = 60_000;
const REQUEST_LINES: usize = 4000;
/// The largest number of cached sources.
const MAX_SOURCES: usize = 50;
/// Longest line of source that is shown, in characters.
const MAX_LINE_CHARS: usize = 2000;
/// Longest local file that replaces one that the worker does not show, in bytes.
const MAX_LOCAL_FILE_BYTES: u64 = 4 << 20;
/// Expressions displayed in one frame.
const MAX_DISPLAYS: usize = 100;

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// The calls that `where` shows, the innermost first: file, line and function of each, escaped for a terminal.
    pub fn calls(&self) -> impl Iterator<Item = (String, u32, String)> + '_ {
        let visible = self.stack.iter().skip(self.hidden);
        visible.map(|frame| (escaped(&frame.file), frame.line, escaped(&frame.name)))
    }

    /// The rank of the process, from its loaded modules or its environment. Only numbers are read.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn rank(&mut self) -> Result<Option<u32>, Lost> {
        let answer = timeout(REQUEST_TIMEOUT, self.probe(&json!({"op": "ranks"}))).await;
        let answer: Option<ProbeAnswer> = answer.map_or(Ok(None), if_any)?;
        Ok(answer.and_then(|answer| answer.rank))
    }

    pub(super) async fn where_(&mut self) -> Result<(), Lost> {
        let visible: Vec<usize> = (self.hidden..self.stack.len()).rev().collect();
        self.print_entries(&visible, true).await
    }

    /// Prints one frame in pdb's format.
    pub(super) async fn print_entry(&mut self, index: usize) -> Result<(), Lost> {
        self.print_entries(&[index], false).await
    }

    async fn print_entries(&mut self, which: &[usize], marks: bool) -> Result<(), Lost> {
        let at: Vec<(String, u32)> = which
            .iter()
            .filter_map(|index| self.stack.get(*index))
            .map(|frame| (frame.file.clone(), frame.line))
            .collect();
        if at.is_empty() {
            self.error("the debugger shows no Python frame here").await;
            return Ok(());
        }
        let sources = self.lines_at(&at).await?;
        for (index, source) in which.iter().zip(sources) {
            let Some(frame) = self.stack.get(*index) else {
                continue;
            };
            let mark = if *index == self.current || !marks {
                "> "
            } else {
                "  "
            };
            let entry = format!(
                "{mark}{}({}){}()\n",
                escaped(&frame.file),
                frame.line,
                escaped(&frame.name)
            );
            let is_cell = is_cell(&frame.file);
            self.print(entry).await;
            let source = source.trim();
            if source.is_empty() && is_cell {
                self.print(format!("[{NO_SOURCE}]\n")).await;
            }
            if !source.is_empty() {
                self.print("-> ").await;
                self.code(source).await;
            }
        }
        Ok(())
    }

    async fn code(&mut self, line: &str) {
        let line: String = escaped(line.trim_end())
            .chars()
            .take(MAX_LINE_CHARS)
            .collect();
        self.put(Piece::Code(line)).await;
        self.print("\n").await;
    }

    pub(super) async fn up(&mut self, count: &str) -> Result<(), PdbError> {
        let oldest = self.stack.len().saturating_sub(1);
        if self.current >= oldest {
            return Err(PdbError::refused("Oldest frame"));
        }
        let count = frames(count)?.unwrap_or(usize::MAX);
        let older = self.current.saturating_add(count);
        Ok(self.select(older.min(oldest)).await?)
    }

    pub(super) async fn down(&mut self, count: &str) -> Result<(), PdbError> {
        if self.current <= self.hidden {
            return Err(PdbError::refused("Newest frame"));
        }
        let count = frames(count)?.unwrap_or(usize::MAX);
        let newer = self.current.saturating_sub(count);
        Ok(self.select(newer.max(self.hidden)).await?)
    }

    async fn select(&mut self, index: usize) -> Result<(), Lost> {
        self.current = index;
        self.listed = None;
        self.print_entry(index).await
    }

    pub(super) async fn list(&mut self, text: &str) -> Result<(), PdbError> {
        "list".clone_into(&mut self.last);
        let frame = self.selected()?.clone();
        let around = i64::from(frame.line.saturating_sub(5).max(1));
        let (first, last) = match (span(text), self.listed) {
            (None, _) => return Err(bad_argument(text)),
            (Some(Span::Lines(first, last)), _) => {
                (first, last.unwrap_or(first.saturating_add(10)))
            }
            (Some(Span::On), Some(listed)) => (i64::from(listed) + 1, i64::from(listed) + 11),
            (Some(Span::On | Span::Around), _) => (around, around + 10),
        };
        let lines = self.whole(&frame.file).await?;
        let bound = |line: i64| usize::try_from(line).unwrap_or_default();
        let (from, to) = (
            bound(first.saturating_sub(1)).min(lines.len()),
            bound(last).min(lines.len()),
        );
        let breaks = self.table.lines(&frame.file);
        let visible = lines.get(from..to).unwrap_or_default();
        self.print_lines(visible, from + 1, &breaks, Some(frame.line))
            .await;
        self.listed = u32::try_from(bound(last).min(lines.len())).ok();
        if lines.len() < bound(last) {
            self.print("[EOF]\n").await;
        }
        Ok(())
    }

    async fn print_lines(
        &mut self,
        lines: &[String],
        first: usize,
        breaks: &BTreeSet<u32>,
        current: Option<u32>,
    ) {
        for (number, line) in (first..).zip(lines) {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let mut head = format!("{number:>3}");
            if head.len() < 4 {
                head.push(' ');
            }
            head.push(if breaks.contains(&number) { 'B' } else { ' ' });
            if current == Some(number) {
                head += "->";
            }
            self.print(head + "\t").await;
            self.code(line).await;
        }
    }

    pub(super) async fn longlist(&mut self) -> Result<(), PdbError> {
        let frame = self.selected()?.clone();
        let breaks = self.table.lines(&frame.file);
        let ask = json!({"op": "longlist"});
        self.print_source(&ask, &breaks, Some(frame.line)).await
    }

    pub(super) async fn source(&mut self, text: &str) -> Result<(), PdbError> {
        let ask = json!({"op": "source", "text": text});
        self.print_source(&ask, &BTreeSet::new(), None).await
    }

    async fn print_source(
        &mut self,
        ask: &Value,
        breaks: &BTreeSet<u32>,
        current: Option<u32>,
    ) -> Result<(), PdbError> {
        let answer: ProbeAnswer = self.probe(ask).await?;
        if answer.failed {
            self.failed = true;
            let text = answer.text.unwrap_or_default();
            self.print(escaped(&text)).await;
        } else if let Some(sentence) = answer.error {
            self.error(&sentence).await;
        } else {
            let first = answer.first.map_or(1, |first| first as usize);
            self.print_lines(&answer.lines, first, breaks, current)
                .await;
        }
        Ok(())
    }

    /// Lines of source, from the worker if it shows them, otherwise from a local file of that name.
    pub(super) async fn lines_at(&mut self, at: &[(String, u32)]) -> Result<Vec<String>, Lost> {
        let answer = self.probe(&json!({"op": "lines", "at": at})).await;
        if let Some(ProbeAnswer { lines, .. }) = if_any(answer)? {
            return Ok(lines);
        }
        let local = at.iter().map(|(file, line)| {
            let lines = self.local(file).unwrap_or_default();
            let index = (*line as usize).wrapping_sub(1);
            lines.get(index).cloned().unwrap_or_default()
        });
        Ok(local.collect())
    }

    /// Lines of a local file, if local files may be used.
    fn local(&self, file: &str) -> Option<Vec<String>> {
        let known = std::fs::metadata(file)
            .ok()
            .filter(|_| self.local_sources)?;
        if !known.is_file() || known.len() > MAX_LOCAL_FILE_BYTES {
            return None;
        }
        let text = String::from_utf8_lossy(&std::fs::read(file).ok()?).into_owned();
        Some(text.lines().map(str::to_owned).collect())
    }

    /// Fetches all lines of a file.
    async fn whole(&mut self, file: &str) -> Result<Arc<[String]>, PdbError> {
        if let Some((lines, _)) = self.sources.get(file) {
            return Ok(Arc::clone(lines));
        }
        if self.sources.len() >= MAX_SOURCES {
            self.sources.clear();
        }
        let (mut lines, mut reserved) =
            (Vec::new(), self.wire.account().empty(MemoryUse::Messages));
        while lines.len() < MAX_SOURCE_LINES {
            let ask =
                json!({"op": "file", "file": file, "from": lines.len(), "count": REQUEST_LINES});
            match self.probe(&ask).await {
                Ok(ProbeAnswer { lines: more, .. }) => {
                    let whole = more.len() < REQUEST_LINES;
                    let size = |line: &String| line.len() + size_of::<String>();
                    let size = reserved.bytes() + more.iter().map(size).sum::<usize>();
                    if reserved.resize(size).is_err() {
                        // The sources of other files can be fetched again.
                        self.sources.clear();
                        let held = reserved.resize(size);
                        held.map_err(|short| PdbError::refused(short.to_string()))?;
                    }
                    lines.extend(more);
                    if whole {
                        break;
                    }
                }
                Err(PdbError::Lost(lost)) => return Err(PdbError::Lost(lost)),
                Err(failure) => {
                    lines = self.local(file).ok_or(failure)?;
                    self.print(format!("[{}: the copy on this machine]\n", escaped(file)))
                        .await;
                    break;
                }
            }
        }
        let lines: Arc<[String]> = lines.into();
        let kept = (Arc::clone(&lines), reserved);
        self.sources.insert(file.to_owned(), kept);
        Ok(lines)
    }

    pub(super) async fn display(&mut self, text: &str) -> Result<(), Lost> {
        let Some(frame) = self.frame().map(|frame| frame.id) else {
            return Ok(());
        };
        if text.is_empty() {
            self.print("Currently displaying:\n").await;
            for (expression, _) in self.displays.get(&frame).cloned().unwrap_or_default() {
                if let Some(value) = self.display_value(&expression).await? {
                    self.print(format!("{}: {value}\n", escaped(&expression)))
                        .await;
                }
            }
            return Ok(());
        }
        let Some(value) = self.display_value(text).await? else {
            return Ok(());
        };
        let known = self.displays.entry(frame).or_default();
        known.retain(|(expression, _)| expression != text);
        if known.len() < MAX_DISPLAYS {
            known.push((text.to_owned(), value.clone()));
        }
        self.print(format!("display {}: {value}\n", escaped(text)))
            .await;
        Ok(())
    }

    /// The value that `display` shows for an expression.
    async fn display_value(&mut self, expression: &str) -> Result<Option<String>, Lost> {
        let ask = json!({"op": "repr", "text": expression, "limit": self.limit});
        match self.probe(&ask).await {
            Ok(ProbeAnswer { text, .. }) => {
                Ok(text.map(|text| cut(&escaped(&text), 4 * self.limit)))
            }
            Err(failure) => self.report(failure).await.map(|()| None),
        }
    }

    pub(super) async fn show_displays(&mut self) -> Result<(), Lost> {
        let Some(frame) = self.frame().map(|frame| frame.id) else {
            return Ok(());
        };
        for (expression, old) in self.displays.get(&frame).cloned().unwrap_or_default() {
            let Some(new) = self.display_value(&expression).await? else {
                continue;
            };
            if new == old {
                continue;
            }
            self.print(format!(
                "display {}: {new}  [old: {old}]\n",
                escaped(&expression)
            ))
            .await;
            let known = self.displays.entry(frame).or_default();
            for one in known.iter_mut().filter(|one| one.0 == expression) {
                one.1.clone_from(&new);
            }
        }
        Ok(())
    }

    pub(super) async fn undisplay(&mut self, text: &str) {
        let Some(frame) = self.frame().map(|frame| frame.id) else {
            return;
        };
        if text.is_empty() {
            self.displays.remove(&frame);
            return;
        }
        let known = self.displays.entry(frame).or_default();
        let before = known.len();
        known.retain(|(expression, _)| expression != text);
        if known.len() == before {
            self.error(&format!("not displaying {text}")).await;
        }
    }

    pub(super) async fn retval(&mut self) {
        match self.returned.clone() {
            Some(value) => self.print(format!("{value}\n")).await,
            None => self.error("Not yet returned!").await,
        }
    }

    /// Prints the exception for which the thread stopped.
    pub(super) async fn exceptions(&mut self) -> Result<(), PdbError> {
        if !self.raised {
            return Err(PdbError::refused("no exception here"));
        }
        let thread = json!({"threadId": self.thread});
        let body = self.ask_soon(Command::ExceptionInfo, thread).await?;
        let raised: RaisedAnswer = into_typed(body);
        let name = raised.exception_id.as_deref().unwrap_or("an exception");
        // The debugger adds a note on the frame to the name.
        let name = name.split_whitespace().next().unwrap_or(name);
        let name = name.strip_prefix("builtins.").unwrap_or(name);
        let line = match raised.description.filter(|text| !text.is_empty()) {
            Some(text) => format!("{name}: {text}"),
            None => name.to_owned(),
        };
        self.print(cut(&escaped(&line), MAX_LINE_CHARS) + "\n")
            .await;
        Ok(())
    }

    async fn all_threads(&mut self) -> Result<Vec<(i64, String)>, Lost> {
        match self.ask_soon(Command::Threads, Value::Null).await {
            Ok(body) => {
                let ThreadsAnswer { threads } = into_typed(body);
                let threads = threads.into_iter();
                Ok(threads
                    .map(|thread| (thread.id, escaped(thread.name.as_deref().unwrap_or("?"))))
                    .collect())
            }
            Err(failure) => self.report(failure).await.map(|()| Vec::new()),
        }
    }

    pub(super) async fn threads(&mut self) -> Result<(), Lost> {
        for (number, (id, name)) in (1..).zip(self.all_threads().await?) {
            let mark = if id == self.thread { '*' } else { ' ' };
            self.print(format!("{mark} {number:>3} {name}\n")).await;
        }
        Ok(())
    }

    pub(super) async fn select_thread(&mut self, text: &str) -> Result<(), PdbError> {
        let threads = self.all_threads().await?;
        let chosen = text
            .trim()
            .parse::<usize>()
            .ok()
            .and_then(|number| threads.get(number.checked_sub(1)?));
        let Some((id, _)) = chosen else {
            return Err(PdbError::refused("a number of `threads` expected"));
        };
        let there = ThreadEvent {
            thread_id: Some(*id),
            ..ThreadEvent::default()
        };
        self.load_stack(&there).await?;
        Ok(self.print_entry(self.current).await?)
    }
}

/// Parses a number of frames; `None`: all.
fn frames(text: &str) -> Result<Option<usize>, PdbError> {
    let count: i64 = match text.trim().parse() {
        _ if text.is_empty() => 1,
        Ok(count) => count,
        Err(_) => {
            let sentence = format!("Invalid frame count ({text})");
            return Err(PdbError::Refused(sentence));
        }
    };
    Ok(usize::try_from(count).ok())
}

pub(super) fn bad_argument(text: &str) -> PdbError {
    PdbError::refused(format!("Error in argument: '{text}'"))
}
