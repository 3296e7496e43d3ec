//! The faults of the campaign.

use std::thread::sleep;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use rustix::process::Signal;

use super::field::{Field, NARROWED, NODES, Refuge, WITH_CONNECT};
use crate::cuts::cable::{Kind, Link};

/// How long a graceful shutdown of the relay may take, with its drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A link that is cut, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    link: Link,
    kind: Kind,
    lasts: Duration,
}

#[derive(Debug)]
pub(super) enum Fault {
    /// A relay is killed; the next one comes after so long.
    Kill(usize, Duration),
    /// A relay shuts down gracefully, and the next one starts.
    Drain(usize),
    /// A relay is suspended for this long.
    Stop(usize, Duration),
    /// The agent of a node is killed, and another one comes.
    Agent(&'static str),
    /// The agent of a node is suspended for this long.
    StopAgent(&'static str, Duration),
    /// The keeper is killed, and another one comes.
    Keeper,
    /// The keeper is suspended for this long.
    StopKeeper(Duration),
    /// A link is cut.
    Cut(Cut),
    /// The disk of a relay's record is full for so long, and meanwhile a link is cut.
    Full(usize, Duration, Cut),
    /// A user's token is revoked.
    Revoke(&'static str),
    /// A user's `ray-relay connect` is killed and restarted.
    Connect(&'static str, usize),
    /// A user's `ray-relay connect` is suspended for this long, as on a sleeping laptop.
    StopConnect(&'static str, usize, Duration),
    /// The head's dashboard is suspended for this long, during another fault.
    Head(Duration, Box<Self>),
    /// The policy permits a user nothing for this long, during another fault.
    Policy(&'static str, Duration, Box<Self>),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kill(relay, away) => write!(f, "relay {relay} is killed, and away for {away:?}"),
            Self::Drain(relay) => write!(f, "relay {relay} is told to end"),
            Self::Stop(relay, lasts) => write!(f, "relay {relay} stands still for {lasts:?}"),
            Self::Agent(node) => write!(f, "the agent of {node} is killed"),
            Self::StopAgent(node, lasts) => {
                write!(f, "the agent of {node} stands still for {lasts:?}")
            }
            Self::Keeper => write!(f, "the keeper is killed"),
            Self::StopKeeper(lasts) => write!(f, "the keeper stands still for {lasts:?}"),
            Self::Cut(cut) => write!(f, "{cut}"),
            Self::Full(relay, lasts, cut) => {
                write!(
                    f,
                    "the disk of relay {relay} is full for {lasts:?}, and {cut}"
                )
            }
            Self::Revoke(person) => write!(f, "{person}'s token is revoked"),
            Self::Connect(person, relay) => {
                write!(f, "{person}'s connect to relay {relay} is killed")
            }
            Self::StopConnect(person, relay, lasts) => {
                let what = format!("{person}'s connect to relay {relay}");
                write!(f, "{what} stands still for {lasts:?}")
            }
            Self::Head(lasts, besides) => {
                write!(f, "the dashboard stands still for {lasts:?}, and {besides}")
            }
            Self::Policy(person, lasts, besides) => {
                write!(f, "{person} may do nothing for {lasts:?}, and {besides}")
            }
        }
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (link, kind) = (self.link.name(), self.kind.name());
        write!(f, "{link} is cut for {:?} ({kind})", self.lasts)
    }
}

fn millis(chance: &mut StdRng, max_ms: u64) -> Duration {
    Duration::from_millis(chance.random_range(100..max_ms))
}

impl Cut {
    fn by_chance(refuge: Refuge, chance: &mut StdRng) -> Self {
        let links: &[_] = match refuge {
            Refuge::Agents => &[Link::Client, Link::Agent, Link::Head],
            // By the address for the head it reaches the workers of that node.
            Refuge::Keeper => &[Link::Client],
        };
        Self {
            link: links[chance.random_range(0..links.len())],
            kind: Kind::ALL[chance.random_range(0..Kind::ALL.len())],
            lasts: millis(chance, 8000),
        }
    }

    fn happen(self, field: &Field<'_>) {
        field.cables.cut(self.link, self.kind);
        sleep(self.lasts);
        field.cables.mend(self.link, self.kind);
    }
}

impl Fault {
    pub(super) fn by_chance(refuge: Refuge, chance: &mut StdRng) -> Self {
        let relay = chance.random_range(0..refuge.relays());
        let person = WITH_CONNECT[chance.random_range(0..WITH_CONNECT.len())];
        match chance.random_range(0..30) {
            0..20 => Self::of_processes(refuge, chance),
            20 => Self::Revoke(person),
            21..23 => Self::Connect(person, relay),
            23..26 => Self::StopConnect(person, relay, millis(chance, 8000)),
            26..28 => {
                let lasts = millis(chance, 5000);
                Self::Head(lasts, Box::new(Self::of_processes(refuge, chance)))
            }
            _ => {
                let (lasts, user) = (millis(chance, 5000), chance.random_range(0..NARROWED.len()));
                let besides = Self::of_processes(refuge, chance);
                Self::Policy(NARROWED[user], lasts, Box::new(besides))
            }
        }
    }

    /// Picks a fault of relays, agents, the keeper, disks and links.
    fn of_processes(refuge: Refuge, chance: &mut StdRng) -> Self {
        let relay = chance.random_range(0..refuge.relays());
        let node = NODES[chance.random_range(0..NODES.len())];
        match chance.random_range(0..19) {
            0..4 => Self::Kill(relay, millis(chance, 3000)),
            4..9 => Self::Drain(relay),
            9..11 => Self::Stop(relay, millis(chance, 6000)),
            11 if refuge == Refuge::Keeper => Self::Keeper,
            12..14 if refuge == Refuge::Keeper => Self::StopKeeper(millis(chance, 6000)),
            11 => Self::Agent(node),
            12..14 => Self::StopAgent(node, millis(chance, 6000)),
            14..17 => Self::Cut(Cut::by_chance(refuge, chance)),
            _ => {
                let lasts = millis(chance, 3000);
                Self::Full(relay, lasts, Cut::by_chance(refuge, chance))
            }
        }
    }

    /// Lets it happen, and returns once it is over.
    pub(super) fn happen(&self, field: &Field<'_>) {
        match self {
            &Self::Kill(relay, away) => {
                field.relay(relay, |relay| {
                    relay.signal(Signal::KILL);
                    relay.wait_exit(DRAIN_TIMEOUT);
                });
                field.ended(relay);
                sleep(away);
                field.start(relay);
            }
            &Self::Drain(relay) => {
                let code = field.relay(relay, |relay| {
                    relay.signal(Signal::TERM);
                    relay.wait_exit(DRAIN_TIMEOUT).code()
                });
                assert_eq!(code, Some(0), "relay {relay} did not end in order");
                field.ended(relay);
                field.start(relay);
            }
            &Self::Stop(relay, lasts) => {
                field.relay(relay, |relay| relay.signal(Signal::STOP));
                sleep(lasts);
                field.relay(relay, |relay| relay.signal(Signal::CONT));
            }
            &Self::Agent(node) => field.replace_agent(node),
            &Self::Keeper => field.replace_keeper(),
            &Self::StopKeeper(lasts) => {
                field.signal_keeper(Signal::STOP);
                sleep(lasts);
                field.signal_keeper(Signal::CONT);
            }
            &Self::StopAgent(node, lasts) => {
                let agents = field.cluster.processes(node, ".*/ray-relay node .*");
                for signal in ["STOP", "CONT"] {
                    for pid in &agents {
                        field.cluster.signal(node, *pid, signal);
                    }
                    if signal == "STOP" {
                        sleep(lasts);
                    }
                }
            }
            &Self::Cut(cut) => cut.happen(field),
            &Self::Full(relay, lasts, cut) => {
                field.fill_disk(relay);
                cut.happen(field);
                sleep(lasts);
                field.clear_disk(relay);
            }
            &Self::Revoke(person) => field.revoke(person),
            &Self::Connect(person, relay) => field.replace_connect(person, relay),
            &Self::StopConnect(person, relay, lasts) => {
                field.signal_connect(person, relay, Signal::STOP);
                sleep(lasts);
                field.signal_connect(person, relay, Signal::CONT);
            }
            Self::Head(lasts, besides) => {
                field.signal_dashboard("STOP");
                besides.happen(field);
                sleep(*lasts);
                field.signal_dashboard("CONT");
            }
            Self::Policy(person, lasts, besides) => {
                field.permit(Some(person));
                besides.happen(field);
                sleep(*lasts);
                field.permit(None);
            }
        }
    }
}
