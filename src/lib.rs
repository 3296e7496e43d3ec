//! `ray-relay`: one TCP port into every paused Ray task.
//!
//! The rooms, in the order in which a connection meets them. A room uses those further down, and never one above or beside
//! it; `tests/architecture` holds the layers and fails on an import that points upwards. Below them all are the crates
//! [`ray_relay_view`], [`ray_relay_node`], [`ray_relay_access`], [`ray_relay_ray`], [`ray_relay_debugger`] and [`ray_relay_base`].
//!
//! | room | what it does |
//! |---|---|
//! | [`cli`] | the commands |
//! | [`demo`] | a small real Ray cluster with tasks that stop at breakpoints |
//! | [`deploy`] | agents on every node of a cluster, put there by Ray itself |
//! | [`app`] | composition: validates, binds, starts, drains |
//! | [`listener`] | the one port: accepts, terminates TLS, recognises the protocol of the first bytes, replays them |
//! | [`dap`] | the Debug Adapter Protocol: the relay's own part of a session, and what is rewritten and filtered |
//! | [`http`] | the relay's page and API under `/relay/`, and the Ray dashboard under everything else |
//! | [`lineproto`] | plain lines for a person with `nc`: the list, and a prompt |
//! | `discovery` | Ray clusters that are found by asking the Kubernetes API server |
//! | [`notice`] | tells a webhook of breakpoints that wait too long, and of what became of them |
//! | [`release`] | lets paused tasks run on without a person attaching |
//! | [`reverse`] | workers that dial a user's debugger, which listens elsewhere |
//! | [`upstream`] | the way to a worker's debugger, for a permit |
//! | [`context`] | what every protocol works with |
//! | [`connect`] | connections through `ray-relay connect`, which outlive their network |
//! | [`session`] | what every session is: authorisation, permit, refusal, record, whatever can end it, the table of the live ones |
//! | [`agents`] | the agents of Ray nodes that are linked, who of them may speak for which node, and the streams that they open |
//!
//! # Glossary
//!
//! The words are those of `docs/glossary.md` (`ray-relay help glossary`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod agents;
pub mod app;
pub mod cli;
mod connect;
pub mod context;
pub mod dap;
pub mod demo;
pub mod deploy;
mod discovery;
pub mod http;
pub mod lineproto;
pub mod listener;
pub mod notice;
pub mod release;
pub mod reverse;
pub mod session;
pub mod upstream;
