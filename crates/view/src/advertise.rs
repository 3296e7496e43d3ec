//! Maps addresses to breakpoints, by the configured [`Advertise`] mode.
//!
//! The dashboard rewriting assigns addresses, and the DAP side resolves them when an attach request echoes one.
//! Invariants: an address stays with its breakpoint while that lives, and goes to no other for [`RESERVATION_PERIOD`] after.
//! Everything is bounded. If no address is left, the breakpoint gets the plain address instead of another's.
//!
//! A client may see a worker pause before the relay's next poll does. Ids need no poll, so such a worker is
//! *expected* and has its address at once. Rows of Ray can be wrong: workers of a lost node stay paused for good. So
//! an expected worker that is not listed within two minutes loses its address, and unlisted workers get only a share
//! of the addresses.

pub mod host_alias;
mod slots;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::slots::RESERVATION_PERIOD;
use self::slots::{Confidence, Slots};
use ray_relay_base::config::Advertise;
use ray_relay_ray::ray::registry::{BreakpointId, List, Snapshot};

/// Hosts under which clients reach the relay. The least recently used one is dropped.
const MAX_HOSTS: usize = 64;

/// Lists whose addresses are cached.
const MAX_CACHED_LISTS: usize = 4;

/// The placeholder of the id in `advertise.host`.
const ID_PLACEHOLDER: &str = "{id}";

/// The address with which a client reached the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAddress {
    /// Canonical host without brackets: an IP address as the standard library prints it, or a name in lower case.
    pub host: String,
    /// Port; 80 if the client named none.
    pub port: u16,
}

/// The target that a host in an attach request resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The relay, and no breakpoint in particular.
    Plain,
    /// This breakpoint (which may have ended meanwhile).
    Breakpoint(BreakpointId),
    /// The form of an address for one breakpoint, but it was never given out, or too long ago.
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

/// The addresses of all rows of one snapshot, for clients that reached the relay at one address.
#[derive(Debug)]
pub struct Listed {
    reached: ExternalAddress,
    live: List,
    by_id: HashMap<BreakpointId, (String, u16)>,
}

impl Listed {
    /// Returns the host and port to give out for the breakpoint `id`, `None` if it is not listed.
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

    /// Records the live breakpoints, so that addresses of ended ones can be reused in time. Call it with the snapshot
    /// whose breakpoints are about to be advertised under `host`.
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

    /// Returns the addresses of all rows of `snapshot`, for a client that reached the relay at `reached`. They stay
    /// the same while the list does.
    pub fn listed(&self, reached: &ExternalAddress, snapshot: &Snapshot) -> Arc<Listed> {
        let mut state = self.state.lock();
        let mut cached = state.listed.iter();
        if let Some(known) = cached.rposition(|listed| listed.is_of(reached, &snapshot.live)) {
            let listed = state.listed.remove(known);
            state.listed.push(Arc::clone(&listed));
            if let Some(slots) = state.hosts.get_mut(&reached.host) {
                slots.mark_used();
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
        // A breakpoint without an address of its own may get one later, so such a list is not cached.
        if !forgotten && !listed.by_id.values().any(|address| reached.is(address)) {
            if state.listed.len() >= MAX_CACHED_LISTS {
                state.listed.remove(0);
            }
            state.listed.push(Arc::clone(&listed));
        }
        listed
    }

    /// Returns the host and port for a client that reached the relay at `reached`: those of the listed breakpoint
    /// `id`. Without an id, or if no address is left, it is the plain address.
    pub fn address(&self, reached: &ExternalAddress, id: Option<BreakpointId>) -> (String, u16) {
        match id {
            Some(id) => self.address_of(reached, id, Confidence::Listed),
            None => (reached.host.clone(), reached.port),
        }
    }

    /// Like [`Self::address`], for a breakpoint that has a row in Ray but is not in the registry yet.
    pub fn address_expected(&self, reached: &ExternalAddress, id: BreakpointId) -> (String, u16) {
        self.address_of(reached, id, Confidence::Expected)
    }

    fn address_of(
        &self,
        reached: &ExternalAddress,
        id: BreakpointId,
        confidence: Confidence,
    ) -> (String, u16) {
        let host = match &self.mode {
            Advertise::Single => self.spelling(&reached.host, id, confidence),
            Advertise::Host(template) => template.replace(ID_PLACEHOLDER, &id.to_string()),
            Advertise::Ports(_) => {
                let port = self.port(id, confidence).unwrap_or(reached.port);
                return (reached.host.clone(), port);
            }
        };
        (host, reached.port)
    }

    fn spelling(&self, host: &str, id: BreakpointId, confidence: Confidence) -> String {
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
        match slots.assign(id, range, confidence) {
            Some(slot) => host_alias::spell(host, slot),
            None => host.to_owned(),
        }
    }

    fn port(&self, id: BreakpointId, confidence: Confidence) -> Option<u16> {
        let Advertise::Ports(range) = &self.mode else {
            return None;
        };
        let range = u32::from(*range.start())..=u32::from(*range.end());
        let port = self.state.lock().ports.assign(id, range, confidence)?;
        port.try_into().ok()
    }

    /// Resolves `dialed`, the host of an attach request.
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
                    // Nothing was advertised under this host. People write names in mixed case, but not addresses
                    // with odd zeros.
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

    /// Returns the breakpoint that `port` was given to, in `ports` mode.
    pub fn breakpoint_at(&self, port: u16) -> Option<BreakpointId> {
        self.state.lock().ports.get(u32::from(port))
    }

    /// Whether `host` is a name that the `host` mode gives out, or the domain above all of them.
    pub fn covers(&self, host: &str) -> bool {
        let Advertise::Host(template) = &self.mode else {
            return false;
        };
        let domain = template
            .strip_prefix(ID_PLACEHOLDER)
            .and_then(|rest| rest.strip_prefix('.'));
        domain.is_some_and(|domain| domain.eq_ignore_ascii_case(host))
            || id_in(template, host).is_some_and(|id| id.parse::<BreakpointId>().is_ok())
    }
}

/// Returns the text at the placeholder if `host` has the form of `template`.
fn id_in(template: &str, host: &str) -> Option<String> {
    let template = template.to_ascii_lowercase();
    let (before, after) = template.split_once(ID_PLACEHOLDER)?;
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let id = host.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('.')).then(|| id.to_owned())
}

impl ExternalAddress {
    /// Parses `host[:port]` as in a `Host` header, `None` if it is malformed. IP addresses may have any spelling that
    /// a resolver accepts.
    pub fn parse(authority: &str) -> Option<Self> {
        Self::with_default(authority, 80)
    }

    /// Like [`Self::parse`], with this default port.
    pub fn with_default(authority: &str, default: u16) -> Option<Self> {
        let (host, port) = split_port(authority)?;
        let port = match port {
            None | Some("") => default,
            Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok()?,
            Some(_) => return None,
        };
        let bracketed = host.starts_with('[');
        // Strips the dot of the DNS root, which may follow an address as well.
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

    /// Whether the host is an IP address.
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
