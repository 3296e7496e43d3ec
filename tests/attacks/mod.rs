//! Attacks by those who have nothing, or a small credential, and by heads, on the relay as a process of its own: what they may
//! make it hold, and whom they may keep out. Each of them is bounded in number and time, and hundreds of connections are its point.

mod head;
mod relay;
mod shipped;

mod agents;
mod credentials;
mod crowds;
mod debuggers;
mod lists;
mod memory;
