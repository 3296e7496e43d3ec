//! Where a client comes from, as far as that tells clients apart.

use std::net::IpAddr;

/// A network from which a client comes: an IPv4 address, or the /64 of an IPv6 one, all of which one host may have.
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
