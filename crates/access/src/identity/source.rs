//! The network of a client, as far as it distinguishes clients.

use std::net::IpAddr;

/// The network of a client: an IPv4 address, or the /64 of an IPv6 one, which a single host may own entirely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(u128);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().to_bits()),
            // ::1 has no neighbours either way.
            IpAddr::V6(v6) => Self(v6.to_bits() >> 64 << 64),
        }
    }
}
