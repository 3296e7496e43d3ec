//! `ray-relay`: one TCP port into every paused Ray task.
//!
//! The modules of the binary, from top to bottom. They build on the crates of the workspace, which CONTRIBUTING.md
//! lists. `tests/architecture` defines the layers and fails on an import that points upwards.
//!
//! | module | what it does |
//! |---|---|
//! | [`cli`] | the commands |
//! | [`demo`] | a small real Ray cluster with tasks that stop at breakpoints |
//! | [`deploy`] | agents on every node of a cluster, started by Ray itself |
//! | [`app`] | composition: validates, binds, starts, drains |
//! | [`listener`] | the one port: accepts, terminates TLS, detects the protocol by the first bytes, replays them |
//! | `discovery` | Ray clusters found through the Kubernetes API server |
//!
//! # Glossary
//!
//! The words are those of `docs/glossary.md` (`ray-relay help glossary`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod app;
pub mod cli;
pub mod demo;
pub mod deploy;
mod discovery;
pub mod listener;
