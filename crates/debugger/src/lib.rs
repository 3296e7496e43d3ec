//! One worker's debugger: the connection to it and its end in order, a pdb prompt that speaks DAP, and the keeper of
//! connections that outlive their process.
//!
//! For sessions and agents, which are allowed to reach a worker. It must not know sessions, users, or the list of
//! workers.
//!
//! | module | what it does |
//! |---|---|
//! | [`debugger`] | the connection to a worker's debugger, and its end in order |
//! | [`pdb`] | a pdb prompt, which talks DAP to a worker's debugger |
//! | [`keeper`] | connections to debuggers that outlive the process that made them |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod debugger;
pub mod keeper;
pub mod pdb;
