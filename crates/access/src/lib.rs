//! Authorization at a relay, and its records.
//!
//! For all protocols and commands. It must not know what a session does with a worker.
//!
//! | module | contents |
//! |---|---|
//! | [`policy`] | rules: which scopes on which breakpoints |
//! | [`visibility`] | the parts of a program's values that a principal sees |
//! | [`identity`] | client identities: tokens, certificates, tickets |
//! | [`tls`] | TLS on the one port, and client certificates |
//! | [`connection`] | accepted connections: their facts, and admission control |
//! | [`audit`] | the audit log: the record of decisions and actions |
//! | [`recording`] | recordings: the messages of sessions whose policy requires them |
//! | [`telemetry`] | logs, metrics and traces, request ids, the progress of a long preparation |
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
