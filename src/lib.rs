//! `ray-relay`: one TCP port into every paused Ray task.
//!
//! The modules, in the order in which a connection meets them:
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | defaults < file < environment < flags, every problem reported at once |
//! | [`validate`] | a configuration, checked by all parts that have something to say about it |
//! | [`telemetry`] | logs and metrics |
//! | [`head`] | HTTP to a Ray head: the State API and everything else behind port 8265, with Ray's own token |
//! | [`registry`] | polls the heads and keeps one immutable [`registry::Snapshot`] of all paused workers |
//! | [`tls`] | encryption on the one port, and client certificates |
//! | [`listener`], [`tcp`] | the one port: accepts, recognises the protocol of the first bytes, replays them |
//! | [`identity`] | who a client is: tokens, certificates, tickets |
//! | [`policy`] | what a principal may do, with which breakpoints |
//! | [`masking`] | hides secrets in what a debugger or a terminal shows |
//! | [`audit`] | the record of what was decided and done |
//! | [`recording`] | what was said in sessions whose policy wants that kept |
//! | [`session`] | live sessions, and the permit without which no worker is reached |
//! | [`upstream`] | the connection to a worker, for a permit, and how it is led to its end |
//! | [`dap`] | the Debug Adapter Protocol: the relay's own part of a session, and what must be rewritten |
//! | [`moment`] | a time to show and a time to measure by |
//! | `listing` | the list of what waits, as people see it |
//! | [`pdb`] | a pdb prompt, spoken to a worker's debugger as DAP |
//! | [`release`] | lets paused tasks run on without a person attaching |
//! | [`terminal`] | plain lines for a person with `nc`: the list, and a prompt |
//! | [`http`] | the relay's API under `/relay/`, and the Ray dashboard under everything else |
//! | [`wire`] | protocols alone: frames and messages of DAP; texts and times made fit for people |
//! | [`app`], [`shutdown`] | composition: binds, starts, drains |
//! | [`cli`] | the commands |
//! | [`demo`] | a small real Ray cluster with tasks that stop at breakpoints |
#![forbid(unsafe_code)]

pub mod app;
pub mod audit;
pub mod cli;
pub mod config;
pub mod dap;
pub mod demo;
pub mod head;
pub mod http;
pub mod identity;
mod key_mode;
pub mod listener;
mod listing;
pub mod masking;
pub mod moment;
pub mod pdb;
pub mod policy;
pub mod recording;
pub mod registry;
pub mod release;
pub mod session;
pub mod shutdown;
pub mod tcp;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod upstream;
pub mod validate;
pub mod wire;
