//! Commands that resume the program, and the handling of its stops.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::answers::{Child, GotoTargets, RangeAnswer, ScopesAnswer, Variable, VariablesAnswer};
use super::inspect::bad_argument;
use super::line::Task;
use super::request::{if_any, program_output};
use super::{Prompt, PromptEnd, PromptFrame};
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::grammar;
use crate::pdb::output::{Piece, cut};
use crate::pdb::wire::PromptMessage;
use ray_relay_base::wire::dap::message::{ThreadEvent, tells_task_end};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::stack::StackAnswer;
use ray_relay_base::wire::json::into_typed;
use ray_relay_base::wire::stop_frames::is_between;
use ray_relay_base::wire::text::escaped;

/// Most frames to request.
const MAX_FRAMES: usize = 5000;
/// Steps that one command may cause in the debugger.
const MAX_STEPS: usize = 10_000;

/// The location of the program when it was resumed.
struct Before {
    depth: usize,
    name: String,
    frame: i64,
}

/// A frame's name without the debugger's mark at an exception.
fn function(name: &str) -> String {
    name.strip_suffix(" (Current frame)")
        .unwrap_or(name)
        .to_owned()
}

/// The outcome of a run.
enum Ran {
    /// The program stopped.
    Stopped(ThreadEvent),
    Ended(PromptEnd),
    /// The debugger did not resume it.
    Refused(String),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    pub(super) async fn next(&mut self) -> Result<Option<PromptEnd>, Lost> {
        let above = self.current;
        self.stepping(above, Some(Command::Next)).await
    }

    /// pdb steps from the program's location, whatever frame is selected.
    pub(super) async fn step(&mut self) -> Result<Option<PromptEnd>, Lost> {
        let above = self.hidden;
        self.stepping(above, Some(Command::StepIn)).await
    }

    pub(super) async fn return_(&mut self) -> Result<Option<PromptEnd>, Lost> {
        let above = self.current + 1;
        self.stepping(above, None).await
    }

    pub(super) async fn continue_(&mut self) -> Result<Option<PromptEnd>, Lost> {
        loop {
            let stop = match self.run(Command::Continue, None).await? {
                Ran::Stopped(stop) => stop,
                other => return self.not_stopped(other).await,
            };
            if self.arrive(stop).await? {
                return Ok(None);
            }
        }
    }

    /// Steps out of `above` frames, then takes one more step; a stop for another reason ends it.
    async fn stepping(
        &mut self,
        above: usize,
        then: Option<Command>,
    ) -> Result<Option<PromptEnd>, Lost> {
        let before = self.before();
        let commands = std::iter::repeat_n(Command::StepOut, above).chain(then);
        let mut last = None;
        for command in commands {
            match self.run(command, None).await? {
                Ran::Stopped(stop) => {
                    let planned = stop.reason == "step";
                    last = Some(stop);
                    if !planned {
                        break;
                    }
                }
                other => return self.not_stopped(other).await,
            }
        }
        self.after_steps(&before, last).await
    }

    pub(super) async fn until(&mut self, text: &str) -> Result<Option<PromptEnd>, PdbError> {
        let frame = self.selected()?.clone();
        let target = match text.parse::<u32>() {
            _ if text.is_empty() => frame.line.saturating_add(1),
            Ok(line) if line <= frame.line => {
                return Err(PdbError::refused(
                    "\"until\" line number is smaller than current line number",
                ));
            }
            Ok(line) => line,
            Err(_) => return Err(bad_argument(text)),
        };
        let RangeAnswer { mut lines } = self.probe(&json!({"op": "range"})).await?;
        lines.retain(|line| *line >= target);
        let before = self.before();
        let depth = self.stack.len() - self.current;
        let mut last = None;
        let mut above = self.current;
        for _ in 0..MAX_STEPS {
            let there = if above > 0 { Vec::new() } else { lines.clone() };
            let ran = self
                .run(Command::StepOut, Some((&frame.file, &there)))
                .await?;
            let Ran::Stopped(stop) = ran else {
                self.send_breakpoints(&frame.file, &[]).await?;
                return Ok(self.not_stopped(ran).await?);
            };
            self.load_stack(&stop).await?;
            let here = self.stack.first().cloned();
            let planned = stop.reason == "step"
                || here.as_ref().is_some_and(|at| {
                    at.file == frame.file
                        && there.contains(&at.line)
                        && !self.table.lines(&at.file).contains(&at.line)
                });
            last = Some(stop);
            let Some(here) = here.filter(|_| planned) else {
                break;
            };
            match self.stack.len() {
                now if now > depth => above = now - depth,
                now if now == depth && here.line < target => above = 0,
                _ => break,
            }
        }
        self.send_breakpoints(&frame.file, &[]).await?;
        Ok(self.after_steps(&before, last).await?)
    }

    pub(super) async fn jump(&mut self, text: &str) -> Result<(), PdbError> {
        if self.current != self.hidden {
            return Err(PdbError::refused(
                "You can only jump within the bottom frame",
            ));
        }
        let no_line = |_| PdbError::refused("The 'jump' command requires a line number");
        let line = text.trim().parse::<i64>().map_err(no_line)?;
        // Ray's helper has to return first: only the newest frame can jump.
        for _ in 0..self.hidden {
            match self.run(Command::StepOut, None).await? {
                Ran::Stopped(stop) => self.load_stack(&stop).await?,
                other => {
                    self.not_stopped(other).await?;
                    return Ok(());
                }
            }
        }
        let Some(frame) = self.frame().cloned() else {
            return Ok(());
        };
        let targets = json!({"source": {"path": frame.file}, "line": line});
        let found = self.ask_soon(Command::GotoTargets, targets).await?;
        let GotoTargets { targets } = into_typed(found);
        let target = targets.first().map(|target| target.id);
        let goto = json!({"threadId": self.thread, "targetId": target});
        match self.ask_soon(Command::Goto, goto).await {
            Err(PdbError::Refused(sentence)) => {
                self.error(&format!("Jump failed: {sentence}")).await;
                return Ok(());
            }
            answer => answer?,
        };
        if let Some(stop) = self.next_stop().await? {
            self.load_stack(&stop).await?;
            self.print_entry(self.current).await?;
        }
        Ok(())
    }

    fn before(&self) -> Before {
        let frame = self.frame();
        Before {
            depth: self.stack.len() - self.current.min(self.stack.len()),
            name: frame.map(|frame| frame.name.clone()).unwrap_or_default(),
            frame: frame.map_or(0, |frame| frame.id),
        }
    }

    async fn after_steps(
        &mut self,
        before: &Before,
        stop: Option<ThreadEvent>,
    ) -> Result<Option<PromptEnd>, Lost> {
        let Some(stop) = stop else { return Ok(None) };
        self.load_stack(&stop).await?;
        if stop.reason == "step" && self.stack.len() < before.depth {
            self.print_return(&before.name).await?;
            self.displays.remove(&before.frame);
        }
        if self.arrive_loaded(&stop).await? {
            return Ok(None);
        }
        self.continue_().await
    }

    /// pdb stops inside a function that is about to return; the debugger stops in its caller, and knows the value.
    async fn print_return(&mut self, name: &str) -> Result<(), Lost> {
        let variables = self.locals().await?;
        let return_name = format!("(return) {name}");
        let value = variables
            .iter()
            .rev()
            .find(|Variable { name: n, .. }| {
                *n == return_name || n.ends_with(&format!(".{name}")) && n.starts_with("(return) ")
            })
            .map(|variable| escaped(&variable.value));
        let line = match &value {
            Some(value) => format!(
                "--Return-- {}()->{}\n",
                escaped(name),
                cut(value, 1000).trim_end()
            ),
            None => format!("--Return-- {}()\n", escaped(name)),
        };
        self.returned = value.map(|value| cut(&value, self.limit));
        self.print(line).await;
        Ok(())
    }

    async fn locals(&mut self) -> Result<Vec<Variable>, Lost> {
        let Some(frame) = self.stack.first().map(|frame| frame.id) else {
            return Ok(Vec::new());
        };
        let of_frame = json!({"frameId": frame});
        let Some(scopes) = if_any(self.ask_soon(Command::Scopes, of_frame).await)? else {
            return Ok(Vec::new());
        };
        let ScopesAnswer { scopes } = into_typed(scopes);
        let first = scopes.first().map(|scope| scope.variables_reference);
        let locals = json!({"variablesReference": first});
        let body = if_any(self.ask_soon(Command::Variables, locals).await)?;
        let VariablesAnswer { variables } = body.map(into_typed).unwrap_or_default();
        Ok(variables)
    }

    async fn not_stopped(&mut self, ran: Ran) -> Result<Option<PromptEnd>, Lost> {
        match ran {
            Ran::Ended(end) => Ok(Some(end)),
            Ran::Refused(sentence) => {
                self.error(&sentence).await;
                Ok(None)
            }
            Ran::Stopped(_) => Ok(None),
        }
    }

    /// Resumes the program until it stops; with `lines`, sets breakpoints for this run only.
    async fn run(&mut self, command: Command, lines: Option<(&str, &[u32])>) -> Result<Ran, Lost> {
        if let Some((file, lines)) = lines {
            self.send_breakpoints(file, lines).await?;
        }
        self.events.clear();
        self.listed = None;
        let thread = json!({"threadId": self.thread});
        match self.ask_soon(command, thread).await {
            Ok(_) | Err(PdbError::Interrupted) => {}
            Err(PdbError::Refused(sentence)) => return Ok(Ran::Refused(sentence)),
            Err(PdbError::Lost(lost)) => return Err(lost),
        }
        self.resumed
            .send_modify(|times| *times = times.wrapping_add(1));
        let mut interrupts = self.interrupts.clone();
        let mut task_ends = self.task_ends.clone();
        task_ends.mark_unchanged();
        let mut interrupted = false;
        loop {
            tokio::select! {
                stop = self.next_stop() => return Ok(match stop? {
                    Some(stop) => Ran::Stopped(stop),
                    // The end of the session may arrive in one read with the end of the task.
                    None if task_ends.has_changed().unwrap_or_default() => {
                        Ran::Ended(PromptEnd::TaskEnded)
                    }
                    None => Ran::Ended(PromptEnd::Terminated),
                }),
                // The senders live as long as the prompt.
                _ = interrupts.changed() => self.interrupts.mark_unchanged(),
                _ = task_ends.changed() => match self.table.files().is_empty() {
                    true => {
                        self.leave().await;
                        return Ok(Ran::Ended(PromptEnd::TaskEnded));
                    }
                    false => {
                        self.print("[the task has ended; a later one of this worker may come to your breakpoints. Ctrl-C twice leaves]\n").await;
                        continue;
                    }
                },
            }
            if std::mem::replace(&mut interrupted, true) {
                self.leave().await;
                return Ok(Ran::Ended(PromptEnd::Left));
            }
            self.print("\n[interrupting: the task stops at its next line of Python; Ctrl-C again leaves it running]\n").await;
            let thread = self.thread;
            self.wire
                .send(Command::Pause, json!({"threadId": thread}))
                .await?;
        }
    }

    /// Waits for the next `stopped` event; `None`: the process or the session ended. Prints output as it arrives.
    /// Cancel safe except for one piece of output.
    pub(super) async fn next_stop(&mut self) -> Result<Option<ThreadEvent>, Lost> {
        loop {
            let (name, body) = match self.events.pop_front() {
                Some((name, body, _)) => (Some(name), body),
                None => match self.wire.read().await? {
                    PromptMessage::Event { name, body } => (name, body),
                    PromptMessage::Answer { .. } | PromptMessage::Other => continue,
                },
            };
            match name {
                Some(Event::Stopped) => {
                    self.worked = 0;
                    return Ok(Some(into_typed(body)));
                }
                Some(Event::Terminated | Event::Exited) => return Ok(None),
                Some(Event::Output) if tells_task_end(&body) => self.interrupter.task_ended(),
                Some(Event::Output) => {
                    if let Some(piece) = program_output(&body) {
                        self.put(piece).await;
                    }
                }
                Some(Event::DebugpyAttach) => self.print_child(body).await,
                _ => {}
            }
        }
    }

    pub(super) async fn print_child(&mut self, body: Value) {
        let Child { sub_process_id } = into_typed(body);
        let pid = sub_process_id.map_or_else(|| "not known".to_owned(), |pid| pid.to_string());
        self.put(Piece::Text(format!(
            "[the task started a Python process (pid {pid}), which waits for a debugger of its own: attach an editor, or leave with `q`]\n"
        )))
        .await;
    }

    /// Processes a stop and shows it; `false`: its breakpoint is ignored this time.
    pub(super) async fn arrive(&mut self, stop: ThreadEvent) -> Result<bool, Lost> {
        self.load_stack(&stop).await?;
        self.arrive_loaded(&stop).await
    }

    async fn arrive_loaded(&mut self, stop: &ThreadEvent) -> Result<bool, Lost> {
        let at = self
            .stack
            .first()
            .map(|frame| (frame.file.clone(), frame.line));
        let hit = at.and_then(|(file, line)| Some((self.table.hit(&file, line)?, file)));
        if let Some((hit, file)) = hit {
            if let Some(gone) = hit.stop.as_ref().filter(|_| hit.deleted) {
                self.send_breakpoints(&file, &[]).await?;
                self.print(escaped(&format!("Deleted {gone}\n"))).await;
            }
            match hit.stop {
                None if stop.reason == "breakpoint" => return Ok(false),
                None => {}
                Some(breakpoint) => {
                    if let Some(commands) = breakpoint.commands {
                        self.queue_commands(commands);
                        return Ok(true);
                    }
                }
            }
        }
        if stop.reason == "exception"
            && let Err(failure) = self.exceptions().await
        {
            self.report(failure).await?;
        }
        if stop.reason == "pause" {
            self.print("Program interrupted. (Use 'cont' to resume).\n")
                .await;
        }
        self.show().await?;
        Ok(true)
    }

    fn queue_commands(&mut self, commands: Vec<String>) {
        let silent = commands.iter().any(|line| line == "silent");
        let (last, rest): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .filter(|line| line != "silent")
            .partition(|line| grammar::resumes(&grammar::parse(line)));
        let rest = rest.into_iter().map(Task::Line);
        let show = (!silent).then_some(Task::Show);
        let tasks: Vec<Task> = rest
            .chain(show)
            .chain(last.into_iter().map(Task::Line))
            .collect();
        for task in tasks.into_iter().rev() {
            self.queue.push_front(task);
        }
    }

    /// Shows the location, and changed `display` values.
    pub(super) async fn show(&mut self) -> Result<(), Lost> {
        self.print_entry(self.current).await?;
        self.show_displays().await
    }

    pub(super) async fn load_stack(&mut self, stop: &ThreadEvent) -> Result<(), Lost> {
        if let Some(thread) = stop.thread_id {
            self.thread = thread;
        }
        self.raised = stop.reason == "exception";
        let arguments = json!({"threadId": self.thread, "startFrame": 0, "levels": MAX_FRAMES});
        let body = match self.ask_soon(Command::StackTrace, arguments).await {
            Ok(body) => body,
            Err(failure) => {
                self.stack.clear();
                return self.report(failure).await;
            }
        };
        self.stacked = self.wire.keep();
        let StackAnswer { stack_frames } = into_typed(body);
        self.stack = stack_frames
            .into_iter()
            .take(MAX_FRAMES)
            .map(|frame| PromptFrame {
                id: frame.id,
                name: function(frame.name.as_deref().unwrap_or("<unknown>")),
                file: frame.path().to_owned(),
                line: frame.line.unwrap_or_default(),
            })
            .collect();
        let between = self
            .stack
            .iter()
            .take_while(|frame| is_between(&frame.file));
        self.hidden = between.count();
        if self.hidden == self.stack.len() {
            self.hidden = 0;
        }
        self.current = self.hidden;
        self.listed = None;
        Ok(())
    }

    pub(super) fn frame(&self) -> Option<&PromptFrame> {
        self.stack.get(self.current)
    }

    /// The same for a command that needs a frame.
    pub(super) fn selected(&self) -> Result<&PromptFrame, PdbError> {
        self.frame().ok_or_else(|| PdbError::refused("no frame"))
    }
}
