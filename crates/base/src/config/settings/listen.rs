//! `[listen]`: the address and the limits of the one port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::address::parse_listen;
use crate::config::kind::{SHORTEST, ValueKind, count, duration, flag, path, quoted, size};
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{DAY, GIB, HOUR, MIB, MINUTE, SECOND};

settings! {
    /// `[listen]`: the one port.
    pub struct Listen = "listen" {
        /// The address and port to listen on.
        address: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 5678)), ValueKind::new(address, quoted);
        /// Allows a non-loopback address without authentication.
        insecure_no_auth: bool = false, flag();
        /// Connections at a time; more wait in the kernel's queue.
        max_connections: usize = 1024, count(1..=1_000_000);
        /// The memory that the process may have, in bytes. Absent: the limit of its cgroup, or 2 GiB.
        memory: Option<usize> = None, size(64 * MIB..=1024 * GIB).optional();
        /// The deadline from accept to the first line of a terminal, `attach`, or an HTTP request.
        handshake_timeout: Duration = MINUTE, duration(SHORTEST..=10 * MINUTE);
        /// First probe of an idle client; four more at a quarter of it each. The kernel counts it in whole seconds.
        keepalive: Duration = 15 * SECOND, duration(SECOND..=HOUR);
        /// How long shutdown after SIGTERM waits for sessions.
        drain_timeout: Duration = 30 * SECOND, duration(SHORTEST..=DAY);
        /// The Unix socket of a `ray-relay keeper`, which holds sessions if this process is killed. Absent: the
        /// service manager does, if it can.
        keeper: Option<PathBuf> = None, path("the absolute path of a Unix socket, in a folder of the relay's own");
    }
}

fn address(value: &RawValue) -> Read<SocketAddr> {
    let expected = "an IP address and a port, such as \"127.0.0.1:5678\"";
    parse_listen(&read::text(value, expected)?)
}
