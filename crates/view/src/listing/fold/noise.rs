//! What differs between any two processes that run the same, and says nothing: addresses of objects and names of
//! temporary files.
//!
//! Pure. The probe leaves the same out of its checksums (`_quiet` and `_noise_of` in the hook's file).

use std::borrow::Cow;

/// The digits of an address, and how it begins. Any other hexadecimal number is an address only behind ` at `.
const ADDRESS_DIGITS: usize = 12;
const ADDRESS_STARTS: [&str; 3] = ["7f", "55", "56"];

/// Random characters in names of Python's `tempfile`, and of `mktemp`.
const TEMPFILE_CHARS: usize = 8;
const MKTEMP_CHARS: usize = 10;

/// Replaces addresses by `0x…`, and what is random in temporary paths by `…`.
pub(super) fn without_noise(text: &str) -> Cow<'_, str> {
    if !text.contains("0x") && !text.contains("/tmp") {
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
        let is_known = ADDRESS_STARTS.iter().any(|start| hex.starts_with(start));
        let is_address = before.ends_with(" at ") || digits == ADDRESS_DIGITS && is_known;
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
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the run of such characters, which are ASCII, that `text` begins with.
fn run(text: &str, is_of_run: impl Fn(char) -> bool) -> usize {
    text.chars().take_while(|c| is_of_run(*c)).count()
}

/// Whether a number of this name is a port: each process may have one of its own.
/// That of a master is one for all.
pub(super) fn is_port(name: &str) -> bool {
    let words = words(name);
    words.first() != Some(&"master") && matches!(words.last(), Some(&("port" | "ports")))
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
            ("0x1f2e3d4c5b6a7988", "0x1f2e3d4c5b6a7988"),
            ("2026-11-29 11:20:07", "2026-11-29 11:20:07"),
            ("größe: 1-2", "größe: 1-2"),
        ] {
            assert_eq!(without_noise(text), plain, "{text}");
        }
    }

    #[test]
    fn names_of_ports_and_places_are_known() {
        assert!(
            is_port("self.own_port")
                && is_port("c['port']")
                && !is_port("c.master_port")
                && !is_port("self.support")
        );
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
