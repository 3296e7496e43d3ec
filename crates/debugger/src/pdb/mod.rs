//! A pdb prompt, which talks DAP to a worker's debugger.
//!
//! [`Prompt`] takes lines and writes [`Piece`]s into a channel. It owns no terminal, so the client commands and the
//! relay's own terminal both use it:
//!
//! ```text
//! Prompt::open(stream, options, sender) → first location
//! loop { prompt.text()  →  a line  →  prompt.line(&line) → After::Prompt or After::Ended }
//! ```
//!
//! [`mod@snapshot`] inspects a waiting task without releasing it. [`Prompt::idle`] returns on events without input;
//! [`Interrupt`] stops a running task. Where its output differs from CPython's pdb, the reason is in
//! `tests/it/pdb.rs`.

pub mod breakpoints;
mod commands;
mod console;
mod error;
pub mod grammar;
mod help;
pub mod location;
mod output;
mod probe;
mod prompt;
mod renderer;
mod snapshot;
mod structure;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wire;

pub use console::{answer as console_answer, expression as console_expression};
pub use error::{Lost, PromptError};
pub use output::Piece;
pub use probe::interrupt;
pub use prompt::{After, Interrupt, Options, Prompt, PromptEnd};
pub use prompt::{COMMANDS_PROMPT, PROMPT};
pub use snapshot::rank;
pub use snapshot::{SnapshotLimits, snapshot};
pub use snapshot::{busy, expression as snapshot_expression, read as read_snapshot, visit};
pub use structure::{ComparisonKey, Rendering, Visible};
pub use structure::{Open, Opened, OpenedValue};

/// Whether `line` prints the stack, and nothing else.
pub fn shows_stack(line: &str) -> bool {
    grammar::parse(line.trim()) == grammar::PdbCommand::Where
}

/// Whether `line` resumes the task, and so may take for ever.
pub fn resumes(line: &str) -> bool {
    grammar::resumes(&grammar::parse(line.trim()))
}
