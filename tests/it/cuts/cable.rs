//! The cut link, the kind of cut, and its repair. During a cut the two peers cannot exchange packets.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::support::agent::RELAY_AMONG_NODES;
use crate::support::namespaces::{Cluster, HEAD_IP, RELAY_IP};
use crate::support::relay::PORT;

/// Between whom it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// An editor and the relay.
    Client,
    /// `ray-relay connect`, which an editor goes through, and the relay.
    Connect,
    /// The agent of the tasks' node and the relay.
    Agent,
    /// The relay and the head.
    Head,
}

/// The kind of cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Packets are dropped.
    Silent,
    /// Packets are answered with a reset, in both directions.
    Reset,
    /// The dialling side loses its address and gets a new one. Old connections are never answered again.
    Address,
}

impl Link {
    pub(crate) const ALL: [Self; 4] = [Self::Client, Self::Connect, Self::Agent, Self::Head];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client–relay",
            Self::Connect => "connect–relay",
            Self::Agent => "relay–agent",
            Self::Head => "relay–head",
        }
    }

    /// The side that dials, and what.
    fn dialler(self) -> Dialler {
        match self {
            Self::Client | Self::Connect => Dialler {
                node: "client",
                to: (RELAY_IP, PORT),
                network: [10, 88, 1],
                first: 2,
                gateway: None,
            },
            Self::Agent => Dialler {
                node: "w1",
                to: (RELAY_IP, PORT),
                network: [10, 88, 0],
                first: 100,
                gateway: Some(RELAY_AMONG_NODES),
            },
            Self::Head => Dialler {
                node: "relay",
                to: (HEAD_IP, 8265),
                network: [10, 88, 0],
                first: 220,
                gateway: None,
            },
        }
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Silent, Self::Reset, Self::Address];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent drop",
            Self::Reset => "reset",
            Self::Address => "address change",
        }
    }
}

/// The dialling side of the link, with an address for this link alone.
struct Dialler {
    node: &'static str,
    to: (Ipv4Addr, u16),
    network: [u8; 3],
    /// The last number of its first address.
    first: u8,
    gateway: Option<&'static str>,
}

/// The cables of a cluster.
pub(crate) struct Cables<'a> {
    cluster: &'a Cluster,
    /// How often the address of each link's dialling side has changed.
    changes: [AtomicU8; 4],
}

impl<'a> Cables<'a> {
    /// Before the relay and the agents dial: each has an address for that which it can lose.
    pub(crate) fn lay(cluster: &'a Cluster) -> Self {
        let cables = Self {
            cluster,
            changes: Default::default(),
        };
        for link in [Link::Agent, Link::Head] {
            cables.settle(&link.dialler(), link.dialler().first);
        }
        cables
    }

    pub(crate) fn cut(&self, link: Link, kind: Kind) {
        let dialler = link.dialler();
        let (ip, port) = dialler.to;
        let (resets, verdict) = match kind {
            Kind::Silent | Kind::Address => ("drop", "drop"),
            Kind::Reset => ("accept", "reject with tcp reset"),
        };
        self.run(
            &dialler,
            &format!(
                "nft 'add table inet cut;
                 add chain inet cut outgoing {{ type filter hook output priority filter; }};
                 add chain inet cut incoming {{ type filter hook input priority filter; }};
                 add rule inet cut outgoing ip daddr {ip} tcp flags & rst == rst {resets};
                 add rule inet cut outgoing oif lo tcp flags & rst == rst accept;
                 add rule inet cut incoming iif lo tcp flags & rst == rst accept;
                 add rule inet cut outgoing ip daddr {ip} tcp dport {port} {verdict};
                 add rule inet cut incoming ip saddr {ip} tcp sport {port} {verdict}'"
            ),
        );
        if kind == Kind::Address {
            let old = dialler.address(dialler.first + self.changed(link));
            self.run(&dialler, &format!("ip addr del {old}/24 dev eth0"));
        }
    }

    pub(crate) fn mend(&self, link: Link, kind: Kind) {
        let dialler = link.dialler();
        if kind == Kind::Address {
            self.changes[Self::of(link)].fetch_add(1, Ordering::Relaxed);
            self.settle(&dialler, dialler.first + self.changed(link));
        }
        self.run(&dialler, "nft delete table inet cut");
    }

    /// An editor and `connect` have the same address.
    fn of(link: Link) -> usize {
        match link {
            Link::Client | Link::Connect => 0,
            Link::Agent => 1,
            Link::Head => 2,
        }
    }

    fn changed(&self, link: Link) -> u8 {
        self.changes[Self::of(link)].load(Ordering::Relaxed)
    }

    /// Gives it the address that ends so.
    fn settle(&self, dialler: &Dialler, last: u8) {
        let own = dialler.address(last);
        let to = dialler.to.0;
        self.run(dialler, &format!("ip addr add {own}/24 dev eth0"));
        let via = dialler.gateway.map(|gateway| format!("via {gateway}"));
        let via = via.unwrap_or_default();
        self.run(
            dialler,
            &format!("ip route replace {to}/32 {via} dev eth0 src {own}"),
        );
    }

    fn run(&self, dialler: &Dialler, line: &str) {
        let mut command = self.cluster.on_network_of(dialler.node, "sh");
        let output = command.args(["-c", line]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {stderr}");
    }
}

impl Dialler {
    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, last)
    }
}
