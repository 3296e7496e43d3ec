//! The agent of a Ray node: it dials out to relays, and opens the node's debuggers to them.
//!
//! For `ray-relay node`. It must not know what a relay does with a debugger, and who its clients are.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod node;
