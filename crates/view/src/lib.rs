//! Presentation of the relay's data: the list of paused tasks, many tasks folded into one answer, findings, and the
//! manual.
//!
//! For the protocols and the commands. It must not know sessions: callers pass in all data.
//!
//! | module | contents |
//! |---|---|
//! | [`listing`] | the list of paused tasks: rows as JSON, and as text |
//! | [`group`] | many paused tasks as one: their members, one prompt for all, and their answers folded |
//! | [`doctor`] | findings about the chain from a client to a worker's debugger |
//! | [`advertise`] | the addresses given out for breakpoints |
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
