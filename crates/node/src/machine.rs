//! Properties of its machine that an agent announces.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::system::uname;

const MAX_ADDRESSES: usize = 64;

/// The name of this machine.
pub(super) fn hostname() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

/// The addresses by which others may know this machine: all but loopback and link-local ones. Empty if the system
/// does not show them.
pub(super) fn addresses() -> Vec<IpAddr> {
    let v4 = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = local_v4(&v4).map(IpAddr::from).collect();
    all.extend(local_v6(&v6).map(IpAddr::from));
    all.sort_unstable();
    all.dedup();
    all.truncate(MAX_ADDRESSES);
    all
}

/// Parses lines such as `|-- 10.0.2.15`, each followed by its type: `/32 host LOCAL`.
fn local_v4(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    let of_line = move |line: &str| {
        let line = line.trim();
        if let Some(ip) = line.strip_prefix("|-- ") {
            last = ip.parse::<Ipv4Addr>().ok();
            return None;
        }
        last.filter(|_| line == "/32 host LOCAL")
    };
    let is_routable = |ip: &Ipv4Addr| !ip.is_loopback() && !ip.is_link_local();
    text.lines().filter_map(of_line).filter(is_routable)
}

/// Parses lines such as `20010db8000000000000000000000001 02 40 00 80 eth0`.
fn local_v6(text: &str) -> impl Iterator<Item = Ipv6Addr> {
    let of_line = |line: &str| {
        let digits = line.split_ascii_whitespace().next()?;
        (digits.len() == 32).then_some(())?;
        u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from)
    };
    let is_routable = |ip: &Ipv6Addr| !ip.is_loopback() && !ip.is_unicast_link_local();
    text.lines().filter_map(of_line).filter(is_routable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_read_from_the_kernel_tables() {
        let trie = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.0.2.0/24 2 0 2
        |-- 10.0.2.15
           /32 host LOCAL
        |-- 10.0.2.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
";
        assert_eq!(
            local_v4(trie).collect::<Vec<_>>(),
            [Ipv4Addr::new(10, 0, 2, 15)]
        );
        let inet6 = "\
20010db8000000000000000000000001 02 40 00 80     eth0
fe800000000000000042acfffe110002 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
";
        let expected: Ipv6Addr = "2001:db8::1".parse().unwrap_or(Ipv6Addr::UNSPECIFIED);
        assert_eq!(local_v6(inet6).collect::<Vec<_>>(), [expected]);
        assert_eq!(local_v6("x").count() + local_v4("|-- x").count(), 0);
    }
}
