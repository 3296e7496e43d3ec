//! `[advertise]`: how breakpoints are told apart in rewritten dashboard answers.

use std::ops::RangeInclusive;

use crate::config::address::is_host_name;
use crate::config::kind::{ValueKind, choice, quoted};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::resolver::Resolver;
use crate::config::resolver::Section;

/// `[advertise]`: how breakpoints are told apart in rewritten dashboard answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Advertise {
    /// `mode = "single"`: one host and port, the host spelled differently for each breakpoint.
    #[default]
    Single,
    /// `mode = "ports"`, `ports = "5700-5731"`: a port for each breakpoint, on the listen address.
    Ports(RangeInclusive<u16>),
    /// `mode = "host"`, `host = "{id}.debug.example.com"`.
    Host(String),
}

settings! {
    /// The keys from which an [`Advertise`] is built.
    struct Keys = "advertise" {
        /// How breakpoints are told apart in dashboard answers: `single`, `ports` or `host`.
        mode: AdvertiseMode = AdvertiseMode::Single, choice();
        /// The ports of mode `ports`, one for each breakpoint.
        ports: RangeInclusive<u16> = 5700..=5731, ValueKind::new(ports, |ports| quoted(&display_range(ports)));
        /// The host name of mode `host`, in which `{id}` stands for the id of the breakpoint.
        host: String = String::new(), ValueKind::new(host_template, quoted).without_default();
    }
}

words! {
    /// A word for each variant of [`Advertise`].
    #[derive(clap::ValueEnum)]
    pub(in crate::config) enum AdvertiseMode {
        /// One host and port; the host is spelled differently for each breakpoint.
        Single = "single",
        /// A port of advertise.ports for each breakpoint.
        Ports = "ports",
        /// A host name from advertise.host for each breakpoint (needs wildcard DNS).
        Host = "host",
    }
}

/// Expected form of `host`, for messages.
const HOST: &str = "a host name with {id} once in it, such as \"{id}.debug.example.com\"";

impl Section for Advertise {
    const NAME: &'static str = Keys::NAME;
    const KEYS: &'static [&'static str] = Keys::KEYS;

    fn read(&mut self, resolver: &mut Resolver) {
        let mut keys = Keys::default();
        keys.read(resolver);
        *self = match keys.mode {
            AdvertiseMode::Single => Self::Single,
            AdvertiseMode::Ports => Self::Ports(keys.ports),
            AdvertiseMode::Host => Self::Host(keys.host),
        };
        if keys.mode == AdvertiseMode::Host && !resolver.is_given(Self::NAME, "host") {
            resolver.problem(
                "advertise.host",
                "nothing, although advertise.mode is \"host\"",
                HOST,
                "every name of that form has to lead to this relay (wildcard DNS)",
            );
        }
    }
}

fn display_range(ports: &RangeInclusive<u16>) -> String {
    format!("{}-{}", ports.start(), ports.end())
}

/// Reads a range of ports, such as `5700-5731`.
fn ports(value: &RawValue) -> Read<RangeInclusive<u16>> {
    /// More would be more open sockets than a person can tell apart.
    const MAX_PORTS: u16 = 1024;
    let text = read::text(value, "").unwrap_or_default();
    let range = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first > 0 && first <= last && last - first < MAX_PORTS).then_some(first..=last)
    });
    let wrong = || {
        Wrong::expected(format!(
            "a range of at most {MAX_PORTS} ports, such as \"5700-5731\""
        ))
    };
    match (range, value) {
        (Some(range), _) => Ok(range),
        (None, RawValue::Integer(_)) => Err(wrong().hint("for one port write \"5700-5700\"")),
        (None, _) => Err(wrong()),
    }
}

/// Reads a host name template with one placeholder, such as `{id}.debug.example.com`.
fn host_template(value: &RawValue) -> Read<String> {
    let template = read::text(value, HOST)?;
    let fits = template.matches("{id}").count() == 1
        && is_host_name(&template.replace("{id}", "00000000"));
    match fits {
        true => Ok(template),
        false => {
            Err(Wrong::expected(HOST)
                .hint("{id} stands for the eight characters of a breakpoint's id"))
        }
    }
}
