//! Attacks by those who have nothing, or a small credential, and by heads, on the relay as a process of its own: what they may
//! make it hold, and whom they
//! may keep out. Each of them is bounded in number and time, and hundreds of connections are its point.

#![allow(clippy::unwrap_used)]

#[path = "attacks/head.rs"]
mod head;
#[path = "attacks/relay.rs"]
mod relay;
#[path = "attacks/shipped.rs"]
mod shipped;

#[path = "attacks/agents.rs"]
mod agents;
#[path = "attacks/credentials.rs"]
mod credentials;
#[path = "attacks/crowds.rs"]
mod crowds;
#[path = "attacks/debuggers.rs"]
mod debuggers;
#[path = "attacks/lists.rs"]
mod lists;
#[path = "attacks/memory.rs"]
mod memory;
