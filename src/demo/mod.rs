//! `ray-relay demo`: a small real Ray cluster with tasks that stop at breakpoints, and the relay
//! in front of it.

pub mod cluster;
pub mod head_api;
pub mod processes;
pub mod progress;
pub mod venv;
