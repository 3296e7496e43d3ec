#![allow(clippy::unwrap_used)]

use std::io::Write;

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn subject(name: &str, issued_before: u64) -> Revocation {
    Revocation {
        what: Revoked::Subject {
            subject: name.to_owned(),
            at: at(issued_before),
        },
        until: None,
    }
}

fn credential(id: &str, until: Option<u64>) -> Revocation {
    Revocation {
        what: Revoked::CredentialId(id.to_owned()),
        until: until.map(at),
    }
}

#[test]
fn subject_revocation_covers_earlier_credentials_only() {
    let mut list = RevocationList::default();
    list.add(subject("ada", 100)).unwrap();
    list.add(subject("ada", 50)).unwrap();
    let revokes_ada = |issued: Option<u64>| list.revokes("ada", "x", issued.map(at));
    let issued = [Some(99), Some(100), Some(101), None];
    assert_eq!(issued.map(revokes_ada), [true, true, false, true]);
    assert!(!list.revokes("bob", "x", None));
}

/// An entry that is dropped too early would make a revoked credential valid again.
#[test]
fn longer_of_two_revocations_wins_in_either_order() {
    let merged_until = |first: Option<u64>, second: Option<u64>| {
        let mut list = RevocationList::default();
        for until in [first, second] {
            list.add(credential("x", until)).unwrap();
            let subject_revocation = Revocation {
                until: until.map(at),
                ..subject("ada", 100)
            };
            list.add(subject_revocation).unwrap();
        }
        list.iter().map(|one| one.until).collect::<Vec<_>>()
    };
    let (later, never) = ([Some(at(200)); 2], [None; 2]);
    for (first, second) in [(Some(100), Some(200)), (Some(200), Some(100))] {
        assert_eq!(merged_until(first, second), later);
    }
    for (first, second) in [(Some(100), None), (None, Some(100))] {
        assert_eq!(merged_until(first, second), never);
    }
}

#[test]
fn changed_file_is_reloaded_without_expired_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revoked");
    let mut file = RevocationFile::new(path.clone());
    let now = at(1000);
    assert!(file.poll(now).is_none(), "none is an empty list");
    append(&path, &[credential("one", None)]).unwrap();
    append(&path, &[credential("old", Some(999))]).unwrap();
    append(&path, &[subject("ada", 5)]).unwrap();
    let (list, problems) = file.poll(now).unwrap();
    assert!(problems.is_none());
    assert_eq!(list.len(), 2);
    assert!(list.revokes("-", "one", None));
    assert!(!list.revokes("-", "old", None));
    assert!(file.poll(now).is_none(), "nothing new");
    std::fs::remove_file(&path).unwrap();
    let (list, problems) = file.poll(now).unwrap();
    assert!(list.is_empty() && problems.is_some());
    assert!(file.poll(now).is_none(), "said once");
}

#[test]
fn invalid_line_is_reported_and_the_others_apply() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revoked");
    std::fs::write(&path, "# by hand\n\n{\"jti\": \"one\"}\n{\"jit\": \"two\"}\n{\"jti\": \"three\", \"note\": \"lost\"}").unwrap();
    let mut file = RevocationFile::new(path.clone());
    let (list, problems) = file.poll(at(0)).unwrap();
    assert_eq!(list.len(), 2);
    assert!(problems.unwrap().to_string().contains("line 4"));
    // The last line had no line feed, and must not swallow the next line.
    append(&path, &[credential("four", None)]).unwrap();
    assert_eq!(file.poll(at(0)).unwrap().0.len(), 3);
}

#[test]
fn concurrent_appends_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revoked");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for i in 0..20 {
                    append(path, &[credential(&format!("{writer}-{i}"), None)]).unwrap();
                }
            });
        }
    });
    let (list, problems) = RevocationFile::new(path).poll(at(0)).unwrap();
    assert!(problems.is_none());
    assert_eq!(list.len(), 160);
}

#[test]
fn revocation_list_is_bounded() {
    let mut list = RevocationList::default();
    for i in 0..MAX_ENTRIES {
        list.add(credential(&i.to_string(), None)).unwrap();
    }
    assert_eq!(list.add(credential("more", None)), Err(Full));
    assert_eq!(list.add(credential("0", None)), Ok(()), "known already");
}

#[test]
fn oversized_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("revoked");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"{}").unwrap();
    file.set_len(33 << 20).unwrap();
    let (list, problems) = RevocationFile::new(path).poll(at(0)).unwrap();
    assert!(list.is_empty() && problems.is_some());
}

proptest! {
    #[test]
    fn appended_entries_are_read_back(name in "[a-z@./: \"\\\\é]{1,20}", issued_before in 0u64..4_000_000_000, until in proptest::option::of(0u64..4_000_000_000)) {
        let name = name.trim().to_owned();
        prop_assume!(!name.is_empty());
        for what in [Revoked::CredentialId(name.clone()), Revoked::Subject { subject: name, at: at(issued_before) }] {
            let revocation = Revocation { what, until: until.map(at) };
            let line = revocation.to_line();
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(Revocation::from_line(&line), Some(revocation));
        }
    }
}
