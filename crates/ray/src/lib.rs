//! Ray as the relay sees it: the heads, their jobs, the registry of what is paused, and who holds which worker.
//!
//! For all crates that show, open or end breakpoints. It must not know who a client is or what a session does.
//!
//! | module | what it does |
//! |---|---|
//! | [`ray::registry`] | polls the heads and keeps one immutable [`ray::registry::Snapshot`] of all paused workers |
//! | [`ray::head`] | HTTP to a Ray head: the State API and everything else behind port 8265, with Ray's own token |
//! | [`ray::jobs`] | Ray's Jobs API: jobs, their packages and output |
//! | [`hold`] | who has which worker, merged from sessions here, agents, and other processes |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod hold;
pub mod ray;
