//! A pdb prompt, spoken to a worker's debugger as DAP.
//!
//! [`Prompt`] takes lines and writes [`Piece`]s into a channel; it owns no terminal, so the client commands and the
//! relay's own terminal both stand on it:
//!
//! ```text
//! Prompt::open(stream, options, sender) → first location
//! loop { prompt.text()  →  a line  →  prompt.line(&line) → After::Prompt or After::Ended }
//! ```
//!
//! [`mod@snapshot`] looks at a task that waits, without releasing it. [`Prompt::idle`] tells what happens without input;
//! [`Interrupt`] stops a task that runs. Where its output differs from CPython's pdb, the reason is in `tests/it/pdb.rs`.

#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub))]
pub(crate) mod breakpoints;
mod commands;
mod console;
mod error;
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub))]
pub(crate) mod grammar;
mod help;
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub))]
pub(crate) mod location;
mod output;
mod probe;
mod prompt;
mod renderer;
mod snapshot;
mod structure;
#[cfg(test)]
pub(crate) mod testing;
mod wire;

pub(crate) use console::{answer as console_answer, expression as console_expression};
pub use error::{Lost, PromptError};
pub use output::Piece;
pub(crate) use probe::interrupt;
pub use prompt::{After, Interrupt, Options, Prompt, PromptEnd};
pub(crate) use prompt::{COMMANDS_PROMPT, PROMPT};
pub(crate) use snapshot::rank;
pub use snapshot::{SnapshotLimits, snapshot};
pub(crate) use snapshot::{busy, expression as snapshot_expression, read as read_snapshot, visit};
pub use structure::{ComparisonKey, Rendering, Visible};
pub(crate) use structure::{Open, Opened, OpenedValue};

/// Whether `line` asks for the stack, and for nothing else.
pub(crate) fn shows_stack(line: &str) -> bool {
    grammar::parse(line.trim()) == grammar::PdbCommand::Where
}

/// Whether `line` has the task run, and so may take for ever.
pub(crate) fn resumes(line: &str) -> bool {
    grammar::resumes(&grammar::parse(line.trim()))
}
