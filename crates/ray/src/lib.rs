//! Ray from the relay's view: the heads, their jobs, the registry of paused workers, and their holders.
//!
//! For all crates that show, open or end breakpoints. It must not know the identity of clients or the work of
//! sessions.
//!
//! | module | what it does |
//! |---|---|
//! | [`ray::registry`] | polls the heads and keeps one immutable [`ray::registry::Snapshot`] of all paused workers |
//! | [`ray::head`] | HTTP to a Ray head: the State API and everything else behind port 8265, with Ray's own token |
//! | [`ray::jobs`] | Ray's Jobs API: jobs, their packages and output |
//! | [`hold`] | the holder of each worker, merged from sessions here, agents, and other processes |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod hold;
pub mod ray;
