//! Tests that every edit of a log is found, and that an unedited log has no findings.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::audit::files::each_line;

const AUDIT: &str = r#"{"action":"audit","details":{"event":"started"}}"#;

fn key() -> Hashing {
    Hashing::new(Some(&[7; 32])).unwrap()
}

/// A log of `names.len() + 1` lines.
fn log(hashing: &Hashing, names: &[String]) -> Vec<u8> {
    let mut head = ChainHead::START;
    let mut text = head.seal(hashing, "2026-11-21T10:55:01.123Z", AUDIT);
    for name in names {
        let members = serde_json::json!({"action": "decision", "name": name}).to_string();
        text += &head.seal(hashing, "2026-11-21T10:55:01.123Z", &members);
    }
    text.into_bytes()
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("task {i}")).collect()
}

fn verify_files(hashing: &Hashing, files: &[&[u8]], anchor: Option<Hash>) -> Report {
    all(Verifier::new(hashing).expecting(anchor), files)
}

/// Returns the findings of `verifier` in `files`, under the names `f0`, `f1` and so on.
fn all(mut verifier: Verifier<'_>, files: &[&[u8]]) -> Report {
    for (i, file) in files.iter().enumerate() {
        verifier.file(&format!("f{i}"));
        let verified = each_line(*file, |line| {
            verifier.line(line);
            true
        });
        verified.unwrap();
    }
    verifier.finish()
}

fn verify(hashing: &Hashing, log: &[u8]) -> Report {
    verify_files(hashing, &[log], None)
}

fn lines(log: &[u8]) -> Vec<&[u8]> {
    log.split_inclusive(|byte| *byte == b'\n').collect()
}

fn sentences(report: &Report) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn unmodified_log_verifies() {
    for hashing in [Hashing::Plain, key()] {
        let report = verify(&hashing, &log(&hashing, &names(5)));
        assert_eq!((report.found, report.lines, report.first), (0, 6, Some(1)));
        assert_eq!(report.last.unwrap().seq, 6);
    }
}

#[test]
fn removed_moved_repeated_or_inserted_lines_are_named() {
    let log = log(&Hashing::Plain, &names(6));
    let all = lines(&log);
    let check = |lines: Vec<&[u8]>, sentence: &str| {
        let report = verify(&Hashing::Plain, &lines.concat());
        let found = sentences(&report);
        let first = found.first().map_or("", |first| first);
        assert!(first.starts_with(sentence), "{sentence}: {found:?}");
    };
    let without = |from: usize, to: usize| [&all[..from], &all[to..]].concat();
    check(
        without(2, 3),
        "f0 line 3: line number 3 is missing before it",
    );
    check(
        without(2, 5),
        "f0 line 3: 3 lines are missing before it, number 3 to 5",
    );
    check(without(0, 1), "f0 line 1: no file begins with such a line");
    let mut moved = all.clone();
    moved.swap(2, 3);
    check(moved, "f0 line 3: line number 3 is missing");
    check(
        [&all[..3], &all[2..]].concat(),
        "f0 line 4: line number 3 stands where",
    );
    for inserted in [&b"\n"[..], b"{}\n"] {
        let lines = [&all[..3], &[inserted], &all[3..]].concat();
        check(lines, "f0 line 4: this is no audit line");
    }
    // A line of another chain, with the right number.
    let names: Vec<_> = names(6).iter().map(|n| n.to_uppercase()).collect();
    let other = super::tests::log(&Hashing::Plain, &names);
    let mut exchanged = all.clone();
    exchanged[3] = lines(&other)[3];
    check(
        exchanged,
        "f0 line 4: this line does not follow the one before it",
    );
    check(
        vec![&log[..log.len() - 5]],
        "f0 line 7: the last line is torn",
    );
    // Only an anchor shows that the end is missing.
    let head = chain::open(&Hashing::Plain, all[5].strip_suffix(b"\n").unwrap())
        .unwrap()
        .head;
    let short = all[..5].concat();
    assert_eq!(verify(&Hashing::Plain, &short).found, 0);
    let report = verify_files(&Hashing::Plain, &[&short], Some(head.hash));
    assert_eq!(report.findings, [Violation::NoAnchor(head.hash)]);
    let complete = verify_files(&Hashing::Plain, &[&log], Some(head.hash));
    assert_eq!(complete.found, 0);
}

#[test]
fn several_files_verify_as_one_chain() {
    let mut head = ChainHead::START;
    let mut file = |n: usize| {
        let mut text = head.seal(&Hashing::Plain, "t", AUDIT);
        for _ in 0..n {
            text += &head.seal(&Hashing::Plain, "t", r#"{"action":"decision"}"#);
        }
        text.into_bytes()
    };
    let (a, b, c) = (file(3), file(2), file(4));
    let verify_unanchored = |files: &[&[u8]]| verify_files(&Hashing::Plain, files, None);
    assert_eq!(verify_unanchored(&[&a, &b, &c]).found, 0);
    let later = verify_unanchored(&[&b, &c]);
    assert_eq!(later.first, Some(5));
    assert_eq!(
        sentences(&later),
        [
            "f0 line 1: the log begins with number 5, and 4 lines are missing at its beginning: whole files were removed (`--beginning-removed` where that was on purpose)"
        ]
    );
    let removed = Verifier::new(&Hashing::Plain).beginning_removed(true);
    assert_eq!(all(removed, &[&b]).found, 0);
    assert_eq!(
        sentences(&verify_unanchored(&[&a, &c])),
        ["f1 line 1: 3 lines are missing before it, number 5 to 7"]
    );
    let truncated = lines(&a)[..2].concat();
    assert_eq!(
        sentences(&verify_unanchored(&[&truncated, &b])),
        ["f1 line 1: 2 lines are missing before it, number 3 to 4"]
    );
}

#[test]
fn keyed_chain_needs_its_key() {
    let forged = log(&Hashing::Plain, &names(3));
    assert_eq!(verify(&key(), &forged).found, 4);
    let other_key = Hashing::new(Some(&[8; 32])).unwrap();
    assert_eq!(verify(&other_key, &log(&key(), &names(3))).found, 4);
    assert!(Hashing::new(Some(b"short\n")).is_err());
    let with_newline = Hashing::new(Some(&[&[b'k'; 32][..], b"\n"].concat())).unwrap();
    let without_newline = Hashing::new(Some(&[b'k'; 32])).unwrap();
    assert_eq!(
        verify(&with_newline, &log(&without_newline, &names(1))).found,
        0
    );
}

#[test]
fn collected_lines_may_have_prefixes_and_restart() {
    let one = log(&Hashing::Plain, &names(2));
    let mut text = b"<109>1 2026-11-21T10:55:01.123Z host ray-relay 1 audit - ".to_vec();
    text.extend_from_slice(&one);
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&one);
    let report = all(Verifier::new(&Hashing::Plain).collected(true), &[&text]);
    let counts = (report.found, report.lines, report.restarts);
    assert_eq!(counts, (0, 6, 1), "{report:?}");
    // The relay's own file may not restart in the middle.
    assert!(verify(&Hashing::Plain, &[one.clone(), one].concat()).found > 0);
}

proptest! {
    #[test]
    fn any_edited_byte_is_detected(
        names in proptest::collection::vec(".{0,12}", 1..6), at in any::<prop::sample::Index>(),
        byte in any::<u8>(), keyed in any::<bool>(), edit in 0..3,
    ) {
        let hashing = if keyed { key() } else { Hashing::Plain };
        let log = log(&hashing, &names);
        let at = at.index(log.len());
        let mut edited = log.clone();
        match edit {
            0 => edited[at] = byte,
            1 => edited.insert(at, byte),
            _ => _ = edited.remove(at),
        }
        let report = verify(&hashing, &edited);
        // Only the very last line feed carries no content.
        let harmless = edited == log || (edited.len() + 1 == log.len() && log.starts_with(&edited));
        prop_assert_eq!(report.found == 0, harmless, "{:?}", report);
    }

    #[test]
    fn removed_lines_are_detected_except_at_the_end(n in 3usize..9, from in any::<prop::sample::Index>(), count in 1usize..4) {
        let log = log(&Hashing::Plain, &names(n));
        let all = lines(&log);
        let from = from.index(all.len());
        let to = (from + count).min(all.len());
        let rest = [&all[..from], &all[to..]].concat().concat();
        prop_assert_eq!(verify(&Hashing::Plain, &rest).found == 0, to == all.len());
    }

    #[test]
    fn any_log_is_verified_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = verify(&Hashing::Plain, &bytes);
    }
}
