//! Interfaces without a debugger's protocol: HTTP, plain lines, and the webhook.
//!
//! Serves browsers, scripts, `nc` and the commands. It must not know a client's Debug Adapter Protocol.
//!
//! | module | what it does |
//! |---|---|
//! | [`http`] | the relay's page and API under `/relay/`, and the Ray dashboard under everything else |
//! | [`lineproto`] | line protocol for `nc`: the list, and a prompt |
//! | [`notice`] | notifies a webhook of breakpoints that wait too long, of how they ended, and of jobs that hang |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod http;
pub mod lineproto;
pub mod notice;
