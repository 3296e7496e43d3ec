//! Tests the agent between stand-ins for a relay, a head and a debugger, on real sockets.
#![allow(clippy::unwrap_used)]

mod arming;
mod engine;
mod failing;
mod inspecting;
mod keeping;
mod links;
mod many;
mod pumping;
mod relays;
mod reverse;
mod sessions;
mod stand_ins;
mod trust;
