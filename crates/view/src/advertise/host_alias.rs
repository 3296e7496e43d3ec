//! One host, many spellings: `127.0.0.1`, `0177.0.00.01` and `0x7f.0.0x00.0x1` are the same address to every
//! resolver, and a client sends back the spelling it was given. So a spelling can name a breakpoint while host and
//! port stay the same for all of them.
//!
//! Pure functions, called by [`crate::advertise`]. Invariants: every spelling of a host resolves to that host,
//! distinct slots of a host give distinct texts, and [`read`] returns the host and the slot. Slot 0 is the plain
//! spelling, which names no breakpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most slots that any host has: 16 bits, of which slot 0 is the plain spelling.
pub(crate) const MAX_SLOTS: u32 = 1 << 16;

/// Number of choices for the leading zeros of an IPv4 octet: none to seven.
const LEADING_ZERO_CHOICES: u32 = 8;

/// Returns how many spellings `host` (canonical, without brackets) has, including the plain one: 65536 for IPv4. IPv6
/// has as many as leading zeros of its groups allow, and a name two for each letter. 1 if the host has no other
/// spelling.
pub fn capacity(host: &str) -> u32 {
    match host.parse() {
        Ok(IpAddr::V4(_)) => MAX_SLOTS,
        Ok(IpAddr::V6(ip)) => ip
            .segments()
            .iter()
            .fold(1u32, |all, group| (all * choices(*group)).min(MAX_SLOTS)),
        Err(_) if is_name(host) => 1 << letters(host).count().min(16),
        Err(_) => 1,
    }
}

/// Spells `host` for slot `slot`, without brackets. Slots from [`capacity`] on give the plain spelling.
pub fn spell(host: &str, slot: u32) -> String {
    if slot == 0 || slot >= capacity(host) {
        return host.to_owned();
    }
    match host.parse() {
        Ok(IpAddr::V4(ip)) => spell_v4(ip, slot),
        Ok(IpAddr::V6(ip)) => spell_v6(ip, slot),
        Err(_) => spell_name(host, slot),
    }
}

/// Returns the canonical host of `dialed` (brackets allowed), and the slot that its spelling names, or 0. A text that
/// is no host is returned as it is, with slot 0.
pub fn read(dialed: &str) -> (String, u32) {
    let text = dialed
        .strip_prefix('[')
        .and_then(|t| t.strip_suffix(']'))
        .unwrap_or(dialed);
    if text.parse::<Ipv4Addr>().is_ok() {
        // The standard library accepts only the plain spelling.
        return (text.to_owned(), 0);
    }
    if let Some(ip) = parse_ipv4(text) {
        return (ip.to_string(), read_v4(text));
    }
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return (ip.to_string(), read_v6(text, ip));
    }
    if !is_name(text) {
        return (text.to_owned(), 0);
    }
    let host = text.to_ascii_lowercase();
    let slot = letters(text)
        .take(16)
        .enumerate()
        .filter(|(_, letter)| letter.is_ascii_uppercase())
        .fold(0, |slot, (i, _)| slot | 1 << i);
    (host, slot)
}

/// Parses an IPv4 address as `inet_aton` (and so every resolver) does: one to four numbers in decimal, octal (`0`) or
/// hexadecimal (`0x`), the last one filling the remaining bytes.
pub fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 || leading.iter().any(|octet| *octet > 255) {
        return None;
    }
    let free = 32 - 8 * leading.len() as u32;
    if free < 32 && *last >> free != 0 {
        return None;
    }
    let high = leading
        .iter()
        .enumerate()
        .fold(0u32, |bits, (i, octet)| bits | octet << (24 - 8 * i));
    Some(Ipv4Addr::from(high | last))
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // `from_str_radix` accepts a sign, `inet_aton` does not.
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

// Four bits for each octet: hexadecimal or octal, and the number of extra zeros. Octal zero has
// no digits beyond its prefix, so slot 0 of 0.0.0.0 is its plain spelling.
fn spell_v4(ip: Ipv4Addr, slot: u32) -> String {
    let mut text = String::with_capacity(48);
    for (i, octet) in ip.octets().into_iter().enumerate() {
        let choice = slot >> (12 - 4 * i) & 15;
        if i > 0 {
            text.push('.');
        }
        text.push_str(if choice >= LEADING_ZERO_CHOICES {
            "0x"
        } else {
            "0"
        });
        text.extend(std::iter::repeat_n(
            '0',
            (choice % LEADING_ZERO_CHOICES) as usize,
        ));
        text.push_str(&digits_v4(octet, choice >= LEADING_ZERO_CHOICES));
    }
    text
}

fn digits_v4(octet: u8, hex: bool) -> String {
    match (octet, hex) {
        (_, true) => format!("{octet:x}"),
        (0, false) => String::new(),
        (_, false) => format!("{octet:o}"),
    }
}

fn read_v4(text: &str) -> u32 {
    let octets: Vec<&str> = text.split('.').collect();
    if octets.len() != 4 {
        return 0;
    }
    octets
        .into_iter()
        .try_fold(0u32, |slot, octet| Some(slot << 4 | choice_v4(octet)?))
        .unwrap_or(0)
}

fn choice_v4(text: &str) -> Option<u32> {
    let value = u8::try_from(number(text)?).ok()?;
    let (hex, rest) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('0')?),
    };
    let zeros = (rest.len() - digits_v4(value, hex).len()) as u32;
    (zeros < LEADING_ZERO_CHOICES).then_some(if hex {
        LEADING_ZERO_CHOICES + zeros
    } else {
        zeros
    })
}

/// Number of choices for the leading zeros of a group of up to four digits.
fn choices(group: u16) -> u32 {
    4 - (u32::from(group).max(1).ilog2() / 4)
}

// Mixed radix, the last group first. All groups are written out: a text with `::` is plain.
fn spell_v6(ip: Ipv6Addr, slot: u32) -> String {
    let mut rest = slot;
    let mut groups: Vec<String> = ip
        .segments()
        .iter()
        .rev()
        .map(|group| {
            let zeros = rest % choices(*group);
            rest /= choices(*group);
            format!("{}{group:x}", "0".repeat(zeros as usize))
        })
        .collect();
    groups.reverse();
    groups.join(":")
}

fn read_v6(text: &str, ip: Ipv6Addr) -> u32 {
    let groups: Vec<&str> = text.split(':').collect();
    if groups.len() != 8 || text.contains("::") || text.contains('.') {
        return 0;
    }
    let slot = groups
        .iter()
        .zip(ip.segments())
        .fold(0u64, |slot, (text, group)| {
            let digits = 5 - choices(group) as usize;
            slot * u64::from(choices(group)) + (text.len() - digits) as u64
        });
    // Slots beyond the cap are spellings that `spell` never gives.
    u32::try_from(slot)
        .ok()
        .filter(|slot| *slot < MAX_SLOTS)
        .unwrap_or(0)
}

fn spell_name(host: &str, slot: u32) -> String {
    let mut seen = 0;
    host.chars()
        .map(|c| {
            if !c.is_ascii_alphabetic() {
                return c;
            }
            seen += 1;
            if seen <= 16 && slot >> (seen - 1) & 1 == 1 {
                c.to_ascii_uppercase()
            } else {
                c
            }
        })
        .collect()
}

fn letters(host: &str) -> impl Iterator<Item = char> + '_ {
    host.chars().filter(char::is_ascii_alphabetic)
}

/// Whether a resolver accepts `host` as a name: labels of letters, digits, `-` and `_`.
pub fn is_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    host.len() <= 253
        && labels.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(|o| Ipv4Addr::from(o).to_string()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).to_string()),
            // Groups with few digits, as in real addresses.
            (any::<u128>(), any::<[u8; 8]>()).prop_map(|(bits, keep)| {
                let mut groups = Ipv6Addr::from(bits).segments();
                for (group, keep) in groups.iter_mut().zip(keep) {
                    *group >>= 4 * u32::from(keep % 4);
                }
                Ipv6Addr::from(groups).to_string()
            }),
            "[a-z][a-z0-9-]{0,12}(\\.[a-z][a-z0-9]{0,12}){0,2}",
            Just("localhost".to_owned()),
        ]
    }

    fn same_address(host: &str, text: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => parse_ipv4(text) == Some(ip),
            Ok(IpAddr::V6(ip)) => text.parse() == Ok(ip),
            Err(_) => text.eq_ignore_ascii_case(host),
        }
    }

    proptest! {
        #[test]
        fn every_slot_survives_a_round_trip(host in host(), pick in any::<u32>()) {
            let slot = pick % capacity(&host);
            let text = spell(&host, slot);
            prop_assert!(same_address(&host, &text), "{text} is not {host}");
            prop_assert_eq!(read(&text), (host, slot));
        }

        #[test]
        fn distinct_slots_have_distinct_texts(host in host(), a in any::<u32>(), b in any::<u32>()) {
            let (a, b) = (a % capacity(&host), b % capacity(&host));
            prop_assert_eq!(a == b, spell(&host, a) == spell(&host, b));
        }

        #[test]
        fn any_spelling_is_read_without_panic(text in "\\PC{0,40}", address in "[0-9a-fx:.\\[\\]]{0,40}") {
            read(&text);
            read(&address);
        }
    }

    #[test]
    fn plain_spellings_have_no_slot() {
        for plain in [
            "127.0.0.1",
            "0.0.0.0",
            "::1",
            "fd88::11",
            "localhost",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(read(plain).1, 0, "{plain}");
            assert_eq!(spell(plain, 0), plain);
        }
        assert_eq!(read("[::1]"), ("::1".to_owned(), 0));
        assert_eq!(read("2130706433"), ("127.0.0.1".to_owned(), 0));
        assert_eq!(read("0177.0.0.01"), ("127.0.0.1".to_owned(), 0));
    }

    #[test]
    fn capacity_counts_the_spellings_of_a_host() {
        assert_eq!(capacity("127.0.0.1"), 65536);
        assert_eq!(capacity("::1"), 65536);
        assert_eq!(capacity("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"), 2);
        assert_eq!(capacity("localhost"), 512);
        assert_eq!(capacity("a-1.b"), 4);
        assert_eq!(capacity("a-very-long-name.of.a.host.example.com"), 65536);
        assert_eq!(capacity("no host"), 1);
        assert_eq!(capacity("fe80::1%eth0"), 1);
    }

    #[test]
    fn ipv4_is_parsed_like_inet_aton() {
        for (text, ip) in [
            ("127.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("0x7f.0.0x0.01", "127.0.0.1"),
            ("10.0x10203", "10.1.2.3"),
            ("1.2.772", "1.2.3.4"),
        ] {
            assert_eq!(parse_ipv4(text), ip.parse().ok(), "{text}");
        }
        for text in [
            "",
            "256.0.0.1",
            "1.2.3.4.5",
            "08",
            "1.2.3.",
            "0x",
            "+1",
            "1.2.3.256",
            "a",
        ] {
            assert_eq!(parse_ipv4(text), None, "{text}");
        }
    }

    #[test]
    fn the_resolver_of_this_system_agrees() {
        let hosts = ["127.0.0.1", "10.88.0.200", "255.0.8.64", "::1", "fd88::200"];
        let mut texts = Vec::new();
        for host in hosts {
            for step in 0..64u32 {
                texts.push((host, spell(host, step * 1021 % capacity(host))));
            }
        }
        let script = "import socket,sys\nfor h in sys.argv[1:]:\n print(socket.getaddrinfo(h,80,\
                      type=socket.SOCK_STREAM,flags=socket.AI_NUMERICHOST)[0][4][0])";
        let python = std::process::Command::new("python3")
            .arg("-c")
            .arg(script)
            .args(texts.iter().map(|(_, text)| text))
            .output();
        let Ok(output) = python else {
            eprintln!("not checked against the system's resolver: there is no python3");
            return;
        };
        let resolved = String::from_utf8(output.stdout).unwrap();
        assert_eq!(resolved.lines().count(), texts.len(), "{:?}", output.stderr);
        for ((host, text), resolved) in texts.iter().zip(resolved.lines()) {
            assert_eq!(&resolved, host, "{text}");
        }
    }
}
