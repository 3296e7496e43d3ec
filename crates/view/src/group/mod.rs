//! One prompt for many paused tasks, and one command for all of them: who they are, what goes to whom, and their answers as one.
//!
//! Who asks, and by which way a debugger is reached, is no matter here: the commands do by the one port, the prompt of `nc` inside the
//! relay. Who is meant is in [`members`], what each has printed in [`kept`], and what all have answered to one command in [`answered`].
//! [`live`] has the prompt of one, and [`prompt`] those of all as one.

pub mod answered;
pub mod kept;
pub mod live;
pub mod members;
pub mod prompt;

/// Sessions that are being opened at a time: a relay lets few connections wait of which it does not know yet who they are.
pub const OPENING: usize = 32;

/// Bytes of all output together that a command keeps.
pub const KEPT: usize = 64 << 20;
