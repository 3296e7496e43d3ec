//! The base of all other crates: the configuration, connections to servers, the protocols alone, and the memory
//! budget.
//!
//! It must not know what a breakpoint, a session or a user is.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | defaults < file < environment < flags, every problem reported at once |
//! | [`dial`] | connections to a server: TCP, through a proxy, TLS, and HTTP or a WebSocket inside |
//! | [`wire`] | protocols alone, without the relay's part in them |
//! | [`memory`] | the memory budget, and the share that each user has acquired |
//! | [`timestamp`] | a time to show and a time to measure with |
//! | [`shutdown`] | the stages of the shutdown |
//! | [`fault`] | panics on demand, in builds for tests |
//! | [`key_mode`] | access by other users to files with keys |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod config;
pub mod dial;
pub mod fault;
pub mod key_mode;
pub mod memory;
pub mod shutdown;
pub mod timestamp;
pub mod wire;
