//! Metadata of a recording.

use std::net::SocketAddr;
use std::time::SystemTime;

use crate::identity::Principal;
use ray_relay_ray::ray::registry::Breakpoint;

/// Protocol of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Each message is one Debug Adapter Protocol message, without its header.
    Dap,
    /// Bytes of a terminal.
    Terminal,
}

/// Metadata of a session when its recording begins.
#[derive(Debug)]
pub struct Meta<'a> {
    /// When the session began.
    pub began: SystemTime,
    /// Protocol of the messages.
    pub protocol: Protocol,
    /// Number of the session, as in `/relay/v1/sessions`.
    pub session: u64,
    /// The session's owner.
    pub principal: &'a Principal,
    /// The client's address.
    pub peer: SocketAddr,
    /// The client's own name.
    pub client: &'a str,
    /// The breakpoint that the session is attached to.
    pub breakpoint: &'a Breakpoint,
}

/// The state of the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CaptureProgress {
    Opening,
    Running,
    Finished,
    Failed(String),
}
