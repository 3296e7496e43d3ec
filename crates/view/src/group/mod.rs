//! One prompt for many paused tasks, and one command for all of them: members, distribution of commands, and merged
//! answers.
//!
//! Independent of the caller and of the way to the debuggers: commands use the relay's port, the prompt of `nc` runs
//! inside the relay. [`members`] selects the tasks, [`kept`] stores the output of each, and [`answered`] merges the
//! answers to one command. [`live`] is the prompt of one task, and [`prompt`] those of all as one.

pub mod answered;
pub mod kept;
pub mod live;
pub mod members;
pub mod prompt;

/// Sessions that are opened at a time: a relay admits few unauthenticated connections.
pub const MAX_CONCURRENT_OPENS: usize = 32;

/// Bytes of output that a command stores in total.
pub const MAX_OUTPUT_BYTES: usize = 64 << 20;
