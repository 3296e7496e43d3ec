//! What every part of the relay stands on: the configuration, how a server is reached, the protocols alone, and how much memory
//! there is.
//!
//! For all other crates of the workspace. It must not know what a breakpoint, a session or a person is.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | defaults < file < environment < flags, every problem reported at once |
//! | [`dial`] | how a server is reached: TCP, through a proxy, TLS, and HTTP or a WebSocket inside |
//! | [`wire`] | protocols alone, without the relay's part in them |
//! | [`memory`] | how much memory there is, and who has taken how much of it |
//! | [`timestamp`] | a time to show and a time to measure by |
//! | [`shutdown`] | the stages of the end |
//! | [`fault`] | panics on demand, in builds for tests |
//! | [`key_mode`] | who may read a file with a key |
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
