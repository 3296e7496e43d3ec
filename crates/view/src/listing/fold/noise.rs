//! What differs between any two processes that run the same, and says nothing: addresses of objects, names of temporary
//! files, times.
//!
//! Pure. The probe leaves the same out of its checksums (`_quiet` and `_noise_of` in the hook's file).

use std::borrow::Cow;

/// Digits of an address: with fewer, a hexadecimal number is an address only behind ` at `.
const ADDRESS_DIGITS: std::ops::RangeInclusive<usize> = 9..=16;

/// Random characters in names of Python's `tempfile`, and of `mktemp`.
const TEMPFILE_CHARS: usize = 8;
const MKTEMP_CHARS: usize = 10;

/// The digits of a time, such as `2026-11-29 11:20:07`.
const TIME: &[u8] = b"0000-00-00 00:00:00";

/// Replaces addresses by `0x…`, and what is random in temporary paths and times by `…`.
pub(super) fn without_noise(text: &str) -> Cow<'_, str> {
    let may_have_time = || text.contains(':') && text.contains('-');
    if !text.contains("0x") && !text.contains("/tmp") && !may_have_time() {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest, mut before) = (String::with_capacity(text.len()), text, "");
    while let Some(first) = rest.chars().next() {
        let (kept, skipped) = noise_at(before, rest).unwrap_or((first.len_utf8(), 0));
        plain += &rest[..kept];
        if skipped > 0 {
            plain.push('…');
        }
        rest = &rest[kept + skipped..];
        before = &text[..text.len() - rest.len()];
    }
    plain.into()
}

/// Whether `rest`, behind `before`, begins with noise: how many of its bytes stay, and how many are replaced.
fn noise_at(before: &str, rest: &str) -> Option<(usize, usize)> {
    let follows_word = before.ends_with(is_word);
    if let Some(hex) = rest.strip_prefix("0x").filter(|_| !follows_word) {
        let digits = run(hex, |c| c.is_ascii_hexdigit());
        let is_address = before.ends_with(" at ") || ADDRESS_DIGITS.contains(&digits);
        let is_whole = !hex[digits..].starts_with(is_word);
        return (is_address && is_whole && digits > 0).then_some((2, digits));
    }
    if let Some(name) = rest.strip_prefix("/tmp") {
        let (from, random, wanted) = match name.strip_prefix('.') {
            Some(random) => (5, run(random, |c| c.is_ascii_alphanumeric()), MKTEMP_CHARS),
            None => {
                let is_random = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                (4, run(name, is_random), TEMPFILE_CHARS)
            }
        };
        let is_whole = !rest[from + random..].starts_with(is_word);
        return (random == wanted && is_whole).then_some((from, random));
    }
    if follows_word || !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let digits = rest.as_bytes().get(..TIME.len())?;
    let fits = |(found, expected): (&u8, &u8)| match expected {
        b'0' => found.is_ascii_digit(),
        b' ' => matches!(found, b' ' | b'T'),
        sign => found == sign,
    };
    digits.iter().zip(TIME).all(fits).then(|| {
        let rest = &rest[TIME.len()..];
        let fraction = match rest.starts_with(['.', ',']) {
            true => run(&rest[1..], |c| c.is_ascii_digit()),
            false => 0,
        };
        let fraction = fraction + usize::from(fraction > 0);
        let zone = match &rest.as_bytes()[fraction..] {
            [b'Z', ..] => 1,
            [b'+' | b'-', zone @ ..] => zone_digits(zone).map_or(0, |digits| 1 + digits),
            _ => 0,
        };
        (0, TIME.len() + fraction + zone)
    })
}

/// The length of the `00:00` or `0000` that `zone` begins with.
fn zone_digits(zone: &[u8]) -> Option<usize> {
    let fits = |pattern: &[u8]| {
        let zone = zone.get(..pattern.len())?;
        let mut both = zone.iter().zip(pattern);
        let fits = both.all(|(found, expected)| {
            found.is_ascii_digit() == (*expected == b'0')
                && (*expected == b'0' || found == expected)
        });
        fits.then_some(pattern.len())
    };
    fits(b"00:00").or_else(|| fits(b"0000"))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the run of such characters, which are ASCII, that `text` begins with.
fn run(text: &str, is_of_run: impl Fn(char) -> bool) -> usize {
    text.chars().take_while(|c| is_of_run(*c)).count()
}

/// Whether a number of this name is a port: each process may have one of its own.
pub(super) fn is_port(name: &str) -> bool {
    matches!(words(name).last(), Some(&("port" | "ports")))
}

/// Whether a value of this name and text says where something is or how it is called, and not what is computed.
pub(super) fn is_identity(name: &str, text: &str) -> bool {
    const NAMES: &[&str] = &[
        "addr",
        "address",
        "cwd",
        "dir",
        "directory",
        "endpoint",
        "file",
        "filename",
        "folder",
        "guid",
        "home",
        "host",
        "hostname",
        "id",
        "ip",
        "path",
        "port",
        "root",
        "socket",
        "uri",
        "url",
        "uuid",
    ];
    let words = words(name);
    let is_named = words.last().is_some_and(|last| NAMES.contains(last));
    let text = text.trim_start_matches(['\'', '"']);
    let is_id = |kind: &str| {
        let rest = text.strip_prefix(kind);
        rest.is_some_and(|rest| rest.ends_with(')'))
    };
    let ids = [
        "ObjectRef(",
        "ActorID(",
        "TaskID(",
        "NodeID(",
        "JobID(",
        "WorkerID(",
        "UUID(",
    ];
    is_named || text.starts_with('/') || text.contains("Path('/") || ids.into_iter().any(is_id)
}

/// The words of the last name in a path: `master` and `port` of `self.config.master_port`.
fn words(path: &str) -> Vec<&str> {
    let name = path.trim_end_matches(['\'', '"', ']']);
    let name = name.rsplit(['.', '[', '\'', '"']).next().unwrap_or(name);
    name.split('_').collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn noise_is_replaced_and_nothing_else() {
        for (text, plain) in [
            ("<M object at 0x7f01>", "<M object at 0x…>"),
            ("[<A at 0x1>, <B at 0x2>]", "[<A at 0x…>, <B at 0x…>]"),
            ("0x7f3a00001234 0xff", "0x… 0xff"),
            ("a0x7f3a00001234", "a0x7f3a00001234"),
            ("'/tmp/tmpab12cd_9/x.pt'", "'/tmp/tmp…/x.pt'"),
            ("/var/tmp/tmp.AbCdEf1234", "/var/tmp/tmp.…"),
            ("'/tmp/tmpdata/a'", "'/tmp/tmpdata/a'"),
            ("at 2026-11-29 11:20:07.25, x", "at …, x"),
            ("2026-11-29T11:20:07+00:00", "…"),
            ("2026-11-29", "2026-11-29"),
            ("größe: 1-2", "größe: 1-2"),
        ] {
            assert_eq!(without_noise(text), plain, "{text}");
        }
    }

    #[test]
    fn names_of_ports_and_places_are_known() {
        assert!(is_port("self.master_port") && is_port("c['port']") && !is_port("self.support"));
        assert!(
            is_identity("self.cfg['data_dir']", "str, 3 characters") && is_identity("x", "'/a'")
        );
        assert!(!is_identity("self.loss", "nan") && !is_identity("grid", "3"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_comes_out_the_same_twice(text in "[a-f0-9x/tmp. :T-]{0,40}|.{0,30}") {
            let once = without_noise(&text).into_owned();
            prop_assert_eq!(without_noise(&once).into_owned(), once);
        }
    }
}
