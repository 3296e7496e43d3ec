//! The list of paused tasks, as people see it: from the JSON of `/relay/v1/breakpoints`, in the commands and in the
//! relay.

pub mod browse;
pub mod discovery;
pub mod fold;
pub mod grouped;
mod holds;
pub mod hooks;
pub mod job;
pub mod json;
pub mod menu;
pub mod received;
pub mod row;
pub mod running;
pub mod select;
pub mod shared;
pub mod standing;
pub mod table;
pub mod text;

/// The list if no task is known and a cluster's head does not answer.
pub const NOTHING_KNOWN: &str =
    "No task is known to wait at a breakpoint; this list fills when the head answers again.\n";
