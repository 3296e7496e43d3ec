//! One worker's debugger: the connection to it and how that is led to its end, a pdb prompt spoken as DAP, and the keeper whose
//! connections outlive the process that made them.
//!
//! For sessions and agents, which have leave to reach a worker. It must not know sessions, people, or which workers there are.
//!
//! | module | what it does |
//! |---|---|
//! | [`debugger`] | the connection to a worker's debugger, and how it is led to its end |
//! | [`pdb`] | a pdb prompt, spoken to a worker's debugger as DAP |
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
