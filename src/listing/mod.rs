//! The list of what waits, as people see it: from the JSON of `/relay/v1/breakpoints`, in the commands and in the relay.

pub(crate) mod browse;
pub(crate) mod discovery;
pub(crate) mod fold;
pub(crate) mod grouped;
mod holds;
pub(crate) mod hooks;
pub(crate) mod json;
pub(crate) mod menu;
pub(crate) mod row;
pub(crate) mod running;
pub(crate) mod select;
pub(crate) mod shared;
pub(crate) mod standing;
pub(crate) mod table;
pub(crate) mod text;

/// The list where nothing waits and a cluster's head does not answer.
pub(crate) const NOTHING_KNOWN: &str =
    "No task is known to wait at a breakpoint; this list fills when the head answers again.\n";
