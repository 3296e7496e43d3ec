//! Sessions of every protocol: who may begin one, the route to its worker, and all causes of its end.
//!
//! Used by the protocols. It must not know the bytes that a session carries.
//!
//! | module | what it does |
//! |---|---|
//! | [`release`] | resumes paused tasks without a user attaching |
//! | [`reverse`] | forwards workers to a user's listening debugger |
//! | [`upstream`] | connects to a worker's debugger, given a permit |
//! | [`context`] | shared state of all protocols |
//! | [`connect`] | connections through `ray-relay connect`, which outlive their network |
//! | [`session`] | common to every session: authorisation, permit, refusal, audit, causes of its end, the table of live sessions |
//! | [`armed`] | lines that are armed in all workers of a job: log messages, and stops |
//! | [`hangs`] | jobs that were seen to hang, with the first verdict on each |
//! | [`agents`] | linked agents of Ray nodes: which may speak for which node, and the streams that they open |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod agents;
pub mod armed;
pub mod connect;
pub mod context;
pub mod hangs;
pub mod release;
pub mod reverse;
pub mod session;
pub mod upstream;
