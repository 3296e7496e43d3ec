//! Sessions, whatever protocol they speak: who may begin one, the way to its worker, and whatever can end it.
//!
//! For the protocols. It must not know what is said in a session.
//!
//! | module | what it does |
//! |---|---|
//! | [`release`] | lets paused tasks run on without a person attaching |
//! | [`reverse`] | workers that dial a user's debugger, which listens elsewhere |
//! | [`upstream`] | the way to a worker's debugger, for a permit |
//! | [`context`] | what every protocol works with |
//! | [`connect`] | connections through `ray-relay connect`, which outlive their network |
//! | [`session`] | what every session is: authorisation, permit, refusal, record, whatever can end it, the table of the live ones |
//! | [`agents`] | the agents of Ray nodes that are linked, who of them may speak for which node, and the streams that they open |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod agents;
pub mod connect;
pub mod context;
pub mod release;
pub mod reverse;
pub mod session;
pub mod upstream;
