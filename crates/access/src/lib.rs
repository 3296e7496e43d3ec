//! Who may do what at a relay, and what is kept on record of it.
//!
//! For all protocols and commands. It must not know what a session does with a worker.
//!
//! | module | what it does |
//! |---|---|
//! | [`policy`] | rules: which scopes on which breakpoints |
//! | [`visibility`] | what of a program's values a principal sees |
//! | [`identity`] | who a client is: tokens, certificates, tickets |
//! | [`tls`] | TLS on the one port, and client certificates |
//! | [`connection`] | accepted connections: what is known of one, and admission control |
//! | [`audit`] | the audit log: the record of what was decided and done |
//! | [`recording`] | recordings: the messages of sessions whose policy wants them kept |
//! | [`telemetry`] | logs, metrics and traces, ids of requests, the progress of a long preparation |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod audit;
pub mod connection;
pub mod identity;
pub mod policy;
pub mod recording;
pub mod telemetry;
pub mod tls;
pub mod visibility;
