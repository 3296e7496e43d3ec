//! What is asked and told without a debugger's protocol: HTTP, plain lines, and the webhook.
//!
//! For browsers, scripts, `nc` and the commands. It must not know the Debug Adapter Protocol of a client.
//!
//! | module | what it does |
//! |---|---|
//! | [`http`] | the relay's page and API under `/relay/`, and the Ray dashboard under everything else |
//! | [`lineproto`] | plain lines for a person with `nc`: the list, and a prompt |
//! | [`notice`] | tells a webhook of breakpoints that wait too long, and of what became of them |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod http;
pub mod lineproto;
pub mod notice;
