//! Reads lines from a user, or from a pipe.
//!
//! A dedicated thread reads them: on a terminal with line editing, history and completion, else plainly. It reads one
//! line for each [`Input::ask`], so that in between the terminal is in its normal mode and Ctrl-C is a signal. The
//! thread ends with the process.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::{Arc, mpsc as sync};
use std::time::Duration;

use parking_lot::Mutex;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use tokio::sync::mpsc;

use super::history;

/// Time limit for the worker to answer Tab.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum length of a line from a pipe, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Input from a user or a pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C was typed.
    Interrupt,
    /// Ctrl-D, or the end of the pipe.
    End,
}

/// A completion request from Tab.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) line: String,
    /// Byte position of the cursor.
    pub(super) at: usize,
    pub(super) answer: sync::Sender<(usize, Vec<String>)>,
}

/// A request to the thread that reads the terminal.
struct LineRequest {
    prompt: String,
    /// Whether the answer belongs in the history, and Tab completes.
    code: bool,
}

/// A line being typed.
type Edited = Arc<Mutex<String>>;

/// Reader of lines from a user or a pipe.
pub(super) struct Input {
    requests: sync::Sender<LineRequest>,
    typed: mpsc::Receiver<Typed>,
    completions: mpsc::Receiver<Completion>,
    /// The line being typed; `None` for a pipe.
    edited: Option<Edited>,
    prompt: String,
    awaiting: bool,
}

impl Input {
    pub(super) fn open() -> io::Result<Self> {
        let (requests, received_requests) = sync::channel();
        let (to, typed) = mpsc::channel(1);
        let (complete, completions) = mpsc::channel(1);
        let mut edited = None;
        let thread = std::thread::Builder::new().name("prompt".into());
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            let line = Edited::default();
            let editor = editor(complete, Arc::clone(&line)).map_err(io::Error::other)?;
            edited = Some(line);
            thread.spawn(move || edit(editor, &received_requests, &to))?;
        } else {
            thread.spawn(move || read(&received_requests, &to))?;
        }
        Ok(Self {
            requests,
            typed,
            completions,
            edited,
            prompt: String::new(),
            awaiting: false,
        })
    }

    /// Whether a user is editing a line.
    pub(super) fn is_edited(&self) -> bool {
        self.edited.is_some()
    }

    /// Whether a line is awaited.
    pub(super) fn is_awaiting(&self) -> bool {
        self.awaiting
    }

    /// Requests a line, unless one is already awaited. `code`: a command, for the history.
    pub(super) fn ask(&mut self, prompt: &str, code: bool) {
        if !std::mem::replace(&mut self.awaiting, true) {
            prompt.clone_into(&mut self.prompt);
            // The thread is gone only when there is no more input.
            let _ = self.requests.send(LineRequest {
                prompt: prompt.to_owned(),
                code,
            });
        }
    }

    /// Returns the next line. Cancel safe.
    pub(super) async fn next(&mut self) -> Typed {
        let typed = self.typed.recv().await.unwrap_or(Typed::End);
        self.awaiting = false;
        typed
    }

    /// Returns the next line, or a completion request. Cancel safe.
    pub(super) async fn next_or_completion(&mut self) -> Result<Typed, Completion> {
        tokio::select! {
            biased;
            Some(completion) = self.completions.recv() => Err(completion),
            typed = self.typed.recv() => {
                self.awaiting = false;
                Ok(typed.unwrap_or(Typed::End))
            }
        }
    }

    /// Writes above the line being typed, and redraws that. (rustyline's own printer loses keys that arrive together.)
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match &self.edited {
            Some(line) if self.awaiting => {
                let line = line.lock().clone();
                let text = text.replace('\n', "\r\n");
                write!(out, "\r\u{1b}[J{text}{}{line}", self.prompt)?;
            }
            _ => out.write_all(text.as_bytes())?,
        }
        out.flush()
    }
}

fn editor(
    complete: mpsc::Sender<Completion>,
    line: Edited,
) -> rustyline::Result<Editor<Completing, MemHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(history::MAX_LINES)?
        .auto_add_history(false)
        .build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Completing {
        complete,
        active: false,
        line,
    }));
    for line in history::load() {
        editor.add_history_entry(line)?;
    }
    Ok(editor)
}

fn edit(
    mut editor: Editor<Completing, MemHistory>,
    requests: &sync::Receiver<LineRequest>,
    to: &mpsc::Sender<Typed>,
) {
    while let Ok(request) = requests.recv() {
        if let Some(helper) = editor.helper_mut() {
            helper.active = request.code;
            helper.keep("");
        }
        let typed = match editor.readline(&request.prompt) {
            Ok(line) => {
                if request.code
                    && !line.trim().is_empty()
                    && editor.add_history_entry(&line).unwrap_or(false)
                {
                    history::append(&line);
                }
                Typed::Line(line)
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupt,
            Err(_) => Typed::End,
        };
        if to.blocking_send(typed).is_err() {
            return;
        }
    }
}

fn read(requests: &sync::Receiver<LineRequest>, to: &mpsc::Sender<Typed>) {
    while let Ok(request) = requests.recv() {
        let mut out = io::stdout().lock();
        let _ = out
            .write_all(request.prompt.as_bytes())
            .and_then(|()| out.flush());
        drop(out);
        let mut line = Vec::new();
        let read = io::stdin()
            .lock()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        let typed = match read {
            Ok(0) | Err(_) => Typed::End,
            Ok(_) => Typed::Line(
                String::from_utf8_lossy(&line)
                    .trim_end_matches(['\r', '\n'])
                    .to_owned(),
            ),
        };
        if to.blocking_send(typed).is_err() {
            return;
        }
    }
}

/// Passes Tab on to the session.
struct Completing {
    complete: mpsc::Sender<Completion>,
    active: bool,
    line: Edited,
}

impl Completing {
    fn keep(&self, line: &str) {
        line.clone_into(&mut self.line.lock());
    }
}

impl Completer for Completing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let (answer, answered) = sync::channel();
        let completion = Completion {
            line: line.to_owned(),
            at,
            answer,
        };
        if !self.active || self.complete.blocking_send(completion).is_err() {
            return Ok((at, Vec::new()));
        }
        Ok(answered
            .recv_timeout(COMPLETION_TIMEOUT)
            .unwrap_or((at, Vec::new())))
    }
}

impl Hinter for Completing {
    type Hint = String;
}

impl Highlighter for Completing {
    // Called at each key: records the current line.
    fn highlight_char(&self, line: &str, _: usize, _: CmdKind) -> bool {
        self.keep(line);
        false
    }
}
impl Validator for Completing {}
impl Helper for Completing {}
