//! Spellings of a host: each is read back as its host and slot, whatever the host.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;

use ray_relay_view::advertise::ExternalAddress;
use ray_relay_view::advertise::host_alias::{capacity, parse_ipv4, read, spell};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    ip: IpAddr,
    text: &'a str,
    slot: u32,
}

fn round_trip(host: &str, slot: u32) {
    let slot = slot % capacity(host);
    let spelled = spell(host, slot);
    assert_eq!(read(&spelled), (host.to_owned(), slot), "{spelled}");
    assert_eq!(parse_ipv4(&spelled), host.parse().ok(), "{spelled}");
}

fuzz_target!(|input: Input<'_>| {
    round_trip(&input.ip.to_string(), input.slot);
    let (host, _) = read(input.text);
    if capacity(&host) > 1 {
        round_trip(&host, input.slot);
    }
    if let Some(reached) = ExternalAddress::parse(input.text) {
        let host = match reached.host.contains(':') {
            true => format!("[{}]", reached.host),
            false => reached.host.clone(),
        };
        let again = format!("{host}:{}", reached.port);
        assert_eq!(ExternalAddress::parse(&again), Some(reached), "{again}");
    }
});
