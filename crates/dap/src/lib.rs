//! The Debug Adapter Protocol: the relay's own part of a session, and what is rewritten and filtered.
//!
//! For editors. It must not know HTTP, and how a worker is reached.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod dap;
