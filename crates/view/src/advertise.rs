//! Which address names which breakpoint, by the configured [`Advertise`] mode.
//!
//! Filled by the dashboard rewriting, read back by the DAP side when an attach request echoes
//! the address. Invariants: an address stays with its breakpoint while that lives and is not
//! given to another for [`HOLD`] after; everything is bounded; where no address is left, the
//! breakpoint goes without one (the plain address) instead of taking over another's.
//!
//! A client may see a worker pause before the relay's next poll does. Ids need no poll, so such a
//! worker is *expected*: it has its address at once. Rows of Ray can lie (a lost node's workers
//! stay paused for good), so one that does not turn up within two minutes has it no longer,
//! and those that never did take no more than a part of the addresses.

pub mod host_alias;
mod slots;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::slots::HOLD;
use self::slots::{Confidence, Slots};
use ray_relay_base::config::Advertise;
use ray_relay_ray::ray::registry::{BreakpointId, List, Snapshot};

/// Hosts under which clients reach the relay; the one not used for longest is forgotten.
const MAX_HOSTS: usize = 64;

/// Lists whose addresses are kept as they were given out.
const MAX_LISTED: usize = 4;

/// The place of the id in `advertise.host`.
const PLACE: &str = "{id}";

/// The address with which a client reached the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAddress {
    /// Canonical host without brackets: an IP address as the standard library prints it, or a
    /// name in lower case.
    pub host: String,
    /// Port; 80 where the client named none.
    pub port: u16,
}

/// What a host in an attach request stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The relay, and no breakpoint in particular.
    Plain,
    /// This breakpoint (which may have ended meanwhile).
    Breakpoint(BreakpointId),
    /// The form of an address for one breakpoint, but no client was given it, or long ago.
    Unknown,
}

/// The advertised addresses of this process.
#[derive(Debug)]
pub struct AdvertisedAddresses {
    mode: Advertise,
    state: Mutex<AdvertiserState>,
}

#[derive(Debug, Default)]
struct AdvertiserState {
    /// The slots of each host, by canonical host.
    hosts: HashMap<String, Slots>,
    /// The slots of `ports` mode.
    ports: Slots,
    /// Addresses that were given out for whole lists, the latest last.
    listed: Vec<Arc<Listed>>,
}

/// The addresses of all that one snapshot lists, for clients that reached the relay at one address.
#[derive(Debug)]
pub struct Listed {
    reached: ExternalAddress,
    live: List,
    by_id: HashMap<BreakpointId, (String, u16)>,
}

impl Listed {
    /// The host and port to give out for the breakpoint `id`; `None` where it is not listed.
    pub fn address(&self, id: BreakpointId) -> Option<&(String, u16)> {
        self.by_id.get(&id)
    }

    fn is_of(&self, reached: &ExternalAddress, live: &List) -> bool {
        self.reached == *reached && self.live.is(live)
    }
}

impl AdvertisedAddresses {
    /// An empty table for the configured mode.
    pub fn new(mode: Advertise) -> Self {
        Self {
            mode,
            state: Mutex::default(),
        }
    }

    /// Tells what is alive now, so that addresses of ended breakpoints can be reused in time.
    /// To be called with the snapshot whose breakpoints are about to be advertised under `host`.
    pub fn observe(&self, host: &str, snapshot: &Snapshot) {
        let mut state = self.state.lock();
        let slots = match self.mode {
            Advertise::Single => state.hosts.get_mut(host),
            Advertise::Ports(_) => Some(&mut state.ports),
            Advertise::Host(_) => None,
        };
        if let Some(slots) = slots {
            let live: HashSet<BreakpointId> = snapshot.live.iter().map(|b| b.id).collect();
            slots.observe(&live);
        }
    }

    /// The addresses of all that `snapshot` lists, for a client that reached the relay at `reached`. They stay what they are
    /// while the list does.
    pub fn listed(&self, reached: &ExternalAddress, snapshot: &Snapshot) -> Arc<Listed> {
        let mut state = self.state.lock();
        let mut kept = state.listed.iter();
        if let Some(known) = kept.rposition(|listed| listed.is_of(reached, &snapshot.live)) {
            let listed = state.listed.remove(known);
            state.listed.push(Arc::clone(&listed));
            if let Some(slots) = state.hosts.get_mut(&reached.host) {
                slots.is_used();
            }
            return listed;
        }
        drop(state);
        self.observe(&reached.host, snapshot);
        let ids = snapshot.live.iter().map(|breakpoint| breakpoint.id);
        let listed = Arc::new(Listed {
            reached: reached.clone(),
            live: snapshot.live.clone(),
            by_id: ids
                .map(|id| (id, self.address(reached, Some(id))))
                .collect(),
        });
        let mut state = self.state.lock();
        let forgotten = self.mode == Advertise::Single && !state.hosts.contains_key(&reached.host);
        // One that goes without an address may have it later.
        if !forgotten && !listed.by_id.values().any(|address| reached.is(address)) {
            if state.listed.len() >= MAX_LISTED {
                state.listed.remove(0);
            }
            state.listed.push(Arc::clone(&listed));
        }
        listed
    }

    /// The host and port to give to a client that reached the relay at `reached`: those of the
    /// breakpoint `id`, which the registry lists, or the plain address without one, or where
    /// there is none to spare.
    pub fn address(&self, reached: &ExternalAddress, id: Option<BreakpointId>) -> (String, u16) {
        match id {
            Some(id) => self.address_of(reached, id, Confidence::Listed),
            None => (reached.host.clone(), reached.port),
        }
    }

    /// The same for a breakpoint that the registry does not list yet, although Ray has a row of it.
    pub fn address_expected(&self, reached: &ExternalAddress, id: BreakpointId) -> (String, u16) {
        self.address_of(reached, id, Confidence::Expected)
    }

    fn address_of(
        &self,
        reached: &ExternalAddress,
        id: BreakpointId,
        standing: Confidence,
    ) -> (String, u16) {
        let host = match &self.mode {
            Advertise::Single => self.spelling(&reached.host, id, standing),
            Advertise::Host(template) => template.replace(PLACE, &id.to_string()),
            Advertise::Ports(_) => {
                let port = self.port(id, standing).unwrap_or(reached.port);
                return (reached.host.clone(), port);
            }
        };
        (host, reached.port)
    }

    fn spelling(&self, host: &str, id: BreakpointId, standing: Confidence) -> String {
        // Slot 0 is the plain spelling.
        let range = 1..=host_alias::capacity(host) - 1;
        let mut state = self.state.lock();
        if !state.hosts.contains_key(host) && state.hosts.len() >= MAX_HOSTS {
            let oldest = state.hosts.iter().min_by_key(|(_, slots)| slots.used());
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                state.hosts.remove(&oldest);
                state.listed.retain(|listed| listed.reached.host != oldest);
            }
        }
        let slots = state.hosts.entry(host.to_owned()).or_default();
        match slots.assign(id, range, standing) {
            Some(slot) => host_alias::spell(host, slot),
            None => host.to_owned(),
        }
    }

    fn port(&self, id: BreakpointId, standing: Confidence) -> Option<u16> {
        let Advertise::Ports(range) = &self.mode else {
            return None;
        };
        let range = u32::from(*range.start())..=u32::from(*range.end());
        let port = self.state.lock().ports.assign(id, range, standing)?;
        port.try_into().ok()
    }

    /// What `dialed`, the host of an attach request, stands for.
    pub fn resolve(&self, dialed: &str) -> Resolved {
        match &self.mode {
            Advertise::Ports(_) => Resolved::Plain,
            Advertise::Host(template) => match id_in(template, dialed) {
                None => Resolved::Plain,
                Some(text) => text.parse().map_or(Resolved::Unknown, Resolved::Breakpoint),
            },
            Advertise::Single => {
                let (host, slot) = host_alias::read(dialed);
                if slot == 0 {
                    return Resolved::Plain;
                }
                let state = self.state.lock();
                let Some(slots) = state.hosts.get(&host) else {
                    // Under this host nothing was advertised. People write names in mixed case;
                    // addresses are not written with odd zeros.
                    let name = host.parse::<IpAddr>().is_err();
                    return if name {
                        Resolved::Plain
                    } else {
                        Resolved::Unknown
                    };
                };
                slots
                    .get(slot)
                    .map_or(Resolved::Unknown, Resolved::Breakpoint)
            }
        }
    }

    /// The breakpoint that `port` was given to, in `ports` mode.
    pub fn breakpoint_at(&self, port: u16) -> Option<BreakpointId> {
        self.state.lock().ports.get(u32::from(port))
    }

    /// `host` is a name that the `host` mode gives out, or the domain below which they all are.
    pub fn covers(&self, host: &str) -> bool {
        let Advertise::Host(template) = &self.mode else {
            return false;
        };
        let domain = template
            .strip_prefix(PLACE)
            .and_then(|rest| rest.strip_prefix('.'));
        domain.is_some_and(|domain| domain.eq_ignore_ascii_case(host))
            || id_in(template, host).is_some_and(|id| id.parse::<BreakpointId>().is_ok())
    }
}

/// What stands in the place of the id where `host` has the form of `template`.
fn id_in(template: &str, host: &str) -> Option<String> {
    let template = template.to_ascii_lowercase();
    let (before, after) = template.split_once(PLACE)?;
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let id = host.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('.')).then(|| id.to_owned())
}

impl ExternalAddress {
    /// `host[:port]` as in a `Host` header; `None` where it is no such thing. IP addresses may be
    /// spelled in any way that a resolver takes.
    pub fn parse(authority: &str) -> Option<Self> {
        Self::with_default(authority, 80)
    }

    /// The same, with the port that stands for none.
    pub fn with_default(authority: &str, default: u16) -> Option<Self> {
        let (host, port) = split_port(authority)?;
        let port = match port {
            None | Some("") => default,
            Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok()?,
            Some(_) => return None,
        };
        let bracketed = host.starts_with('[');
        // The dot of the DNS root, which may follow an address as well.
        let (host, _) = host_alias::read(host.strip_suffix('.').unwrap_or(host));
        let ip = host.parse::<IpAddr>().ok();
        let name = host_alias::is_name(&host) && !host.ends_with('.');
        if bracketed != matches!(ip, Some(IpAddr::V6(_))) || (ip.is_none() && !name) {
            return None;
        }
        Some(Self { host, port })
    }

    fn is(&self, (host, port): &(String, u16)) -> bool {
        self.host == *host && self.port == *port
    }

    /// The host is an IP address.
    pub fn is_ip(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }
}

fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if authority.starts_with('[') {
        let (host, rest) = authority.split_at(authority.find(']')? + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}
#[cfg(test)]
#[path = "advertise/tests.rs"]
mod tests;
