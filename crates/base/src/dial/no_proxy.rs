//! Exceptions of `NO_PROXY`: hosts, domains with everything below them, addresses, networks, and `*`. Pure.

use std::net::IpAddr;

use ipnet::IpNet;

/// The entries of a `NO_PROXY`. An entry of an unknown form excepts nothing.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    all: bool,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    hosts: ExemptHosts,
    /// `None`: all.
    port: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
enum ExemptHosts {
    /// In lower case, without a dot at either end: the host of that name, and all below it.
    Domain(String),
    Network(IpNet),
}

impl Exceptions {
    /// Entries are separated by commas, as everywhere, or spaces.
    pub(super) fn read(text: &str) -> Self {
        let mut read = Self::default();
        let entries = text.split([',', ' ', '\t']);
        for entry in entries.map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry {
                "*" => read.all = true,
                entry => read.rules.extend(Rule::read(entry)),
            }
        }
        read
    }

    /// Whether `host`, a name or an address without brackets, is excepted as it is written.
    pub(super) fn has(&self, host: &str, port: u16) -> bool {
        if self.all {
            return true;
        }
        if let Ok(address) = host.parse() {
            return self.has_address(address, port);
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.at(port).any(|hosts| match hosts {
            ExemptHosts::Domain(domain) => host
                .strip_suffix(&**domain)
                .is_some_and(|above| above.is_empty() || above.ends_with('.')),
            ExemptHosts::Network(_) => false,
        })
    }

    /// Whether `address` is excepted.
    pub(super) fn has_address(&self, address: IpAddr, port: u16) -> bool {
        self.all
            || self.at(port).any(|hosts| match hosts {
                ExemptHosts::Network(network) => network.contains(&address.to_canonical()),
                ExemptHosts::Domain(_) => false,
            })
    }

    /// Whether the address of a name may be excepted although the name is not. Loopback networks do not count: they
    /// never go through a proxy, and almost every `NO_PROXY` names them.
    pub(super) fn names_networks(&self) -> bool {
        self.rules.iter().any(
            |rule| matches!(rule.hosts, ExemptHosts::Network(network) if !network.addr().is_loopback()),
        )
    }

    fn at(&self, port: u16) -> impl Iterator<Item = &ExemptHosts> {
        let rules = self.rules.iter();
        let at = rules.filter(move |rule| rule.port.is_none_or(|own| own == port));
        at.map(|rule| &rule.hosts)
    }
}

impl Rule {
    fn read(entry: &str) -> Option<Self> {
        if let Some(hosts) = network(entry) {
            return Some(Self { hosts, port: None });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        if let Some(hosts) = network(host) {
            return Some(Self { hosts, port });
        }
        let host = host.strip_prefix('*').unwrap_or(host);
        let domain = host.trim_matches('.').to_ascii_lowercase();
        let hosts = ExemptHosts::Domain(domain);
        (hosts != ExemptHosts::Domain(String::new())).then_some(Self { hosts, port })
    }
}

/// `ADDRESS` or `ADDRESS/BITS`, perhaps in brackets.
fn network(text: &str) -> Option<ExemptHosts> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (text, None),
    };
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = bare.parse().ok()?;
    let network = match bits {
        Some(bits) => IpNet::new(address, bits).ok()?,
        None => address.into(),
    };
    Some(ExemptHosts::Network(network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_common_no_proxy_form_is_supported() {
        let excepts = |list: &str, host: &str| Exceptions::read(list).has(host, 443);
        for (list, host) in [
            ("relay.example.com", "relay.example.com"),
            ("example.com", "relay.example.com"),
            (".example.com", "relay.example.com"),
            (".example.com", "example.com"),
            ("*.example.com", "a.relay.example.com"),
            ("EXAMPLE.com", "Relay.Example.COM."),
            (".svc,.cluster.local", "ray-relay.ray.svc"),
            ("localhost, .svc", "ray-relay.ray.svc"),
            ("a b\t.svc", "x.svc"),
            ("ray-relay", "ray-relay"),
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.0/8", "10.255.1.2"),
            ("10.9.9.9/8", "10.255.1.2"),
            ("10.0.0.0/8", "::ffff:10.1.2.3"),
            ("0.0.0.0/0", "192.0.2.1"),
            ("fd00::/8", "fd88::1"),
            ("[fd88::1]", "fd88::1"),
            ("[fd88::1]:443", "fd88::1"),
            ("relay.example.com:443", "relay.example.com"),
            ("10.0.0.7:443", "10.0.0.7"),
            ("*", "relay.example.com"),
            ("*", "192.0.2.1"),
            ("x,*", "fd88::1"),
        ] {
            assert!(excepts(list, host), "{list} excepts {host}");
        }
        for (list, host) in [
            ("", "relay"),
            (" , ,", "relay"),
            ("example.com", "badexample.com"),
            ("relay.example.com", "example.com"),
            (".svc", "svc.example.com"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.0.0.0/8", "ten.example.com"),
            ("0.0.0.0/0", "fd88::1"),
            ("::/0", "192.0.2.1"),
            ("10.0.0.0/33", "10.0.0.1"),
            ("10.0.0.0/x", "10.0.0.1"),
            ("relay.example.com:80", "relay.example.com"),
            ("10.0.0.7:80", "10.0.0.7"),
            ("relay:port", "relay"),
            ("ex*ple.com", "example.com"),
            (".", "relay"),
            ("*.", "relay"),
        ] {
            assert!(!excepts(list, host), "{list} does not except {host}");
        }
    }

    #[test]
    fn names_are_resolved_only_for_network_exceptions() {
        let names_networks = |list: &str| Exceptions::read(list).names_networks();
        assert!(names_networks(".svc,10.0.0.0/8") && names_networks("192.0.2.1"));
        assert!(!names_networks("localhost,127.0.0.1,::1,.svc,*") && !names_networks(""));
        let networks = Exceptions::read("10.0.0.0/8");
        let is_excepted =
            |address: &str| address.parse().is_ok_and(|ip| networks.has_address(ip, 1));
        assert!(is_excepted("10.0.0.1") && !is_excepted("192.0.2.1"));
    }
}
