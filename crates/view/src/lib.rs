//! What the relay shows: the list of what waits, many tasks folded into one answer, findings, and the manual.
//!
//! For the protocols and the commands. It must not know sessions: what it shows is given to it.
//!
//! | module | what it does |
//! |---|---|
//! | [`listing`] | the list of what waits: rows as JSON, and as people see them |
//! | [`group`] | many paused tasks as one: who they are, one prompt for all, and their answers folded |
//! | [`doctor`] | findings about the chain from a client to a worker's debugger |
//! | [`advertise`] | which address names which breakpoint |
//! | [`manual`] | the pages of `docs/`, for `ray-relay help` and the page at `/relay/` |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod advertise;
pub mod doctor;
pub mod group;
pub mod listing;
pub mod manual;
