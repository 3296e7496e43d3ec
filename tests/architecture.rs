//! The layers of `src`: a room may use those below it, and never one above or beside it.
//!
//! What a room uses is read off its source: every path that begins with `crate::`, in production code. Tests look wherever
//! they have to.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the top. Rooms on one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["main", "fuzzing"],
    &["cli"],
    &["demo", "deploy"],
    &["app"],
    &["listener"],
    &["dap", "http", "lineproto"],
    &["discovery", "notice"],
    &["release"],
    &["upstream", "reverse"],
    &["context"],
    &["takeover", "connect"],
    &["session"],
    &["agents"],
    &["recording"],
    &["connection", "audit"],
    &["identity"],
    &["doctor"],
    &["advertise", "listing"],
    &["masking", "node"],
    &["policy", "tls"],
    &["telemetry"],
    &["ray"],
    &["config"],
    &["debugger"],
    &["pdb", "dial"],
    &["wire"],
    &["memory", "moment", "shutdown", "key_mode", "fault"],
];

#[test]
fn no_room_uses_one_above_or_beside_it() {
    let floor: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(floor, rooms)| rooms.iter().map(move |room| (*room, floor)))
        .collect();
    let mut wrong = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for file in sources(&root()) {
        let room = room_of(&file);
        if room == "lib" {
            continue;
        }
        let Some(own) = floor.get(&*room) else {
            wrong.insert(format!("{room} is in no layer: add it to LAYERS"));
            continue;
        };
        seen.insert(room.clone());
        let text = production(&fs::read_to_string(&file).unwrap());
        for used in rooms_used(&text) {
            if used == room {
                continue;
            }
            match floor.get(&*used) {
                Some(below) if below > own => {}
                Some(_) => {
                    let file = file.strip_prefix(root()).unwrap().display().to_string();
                    wrong.insert(format!("{file} uses {used}, which is not below {room}"));
                }
                None => {
                    wrong.insert(format!("{used} is in no layer: add it to LAYERS"));
                }
            }
        }
    }
    let named: BTreeSet<String> = floor.keys().map(|room| (*room).to_owned()).collect();
    for gone in named.difference(&seen) {
        wrong.insert(format!("{gone} is in LAYERS, and there is no such room"));
    }
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Both are in `ray`, which is one room to all others.
#[test]
fn a_head_does_not_know_the_registry() {
    for file in sources(&root().join("ray/head")) {
        let text = production(&fs::read_to_string(&file).unwrap());
        assert!(!text.contains("registry::"), "{}", file.display());
    }
}

#[test]
fn paths_are_read_off_every_form_of_an_import() {
    let text = "
        use crate::registry::{Breakpoint, query};
        use crate::{
            audit::{self, Entry},
            wire::dap::codec, config,
        };
        // use crate::comment::Only;
        fn f() { crate::moment::Moment::now(); } // crate::trailing::Comment
        #[cfg(test)]
        use crate::only_in_tests::Thing;
        #[cfg(test)]
        mod tests { use crate::also_only_in_tests::Thing; }
    ";
    let used: Vec<_> = rooms_used(&production(text)).into_iter().collect();
    assert_eq!(used, ["audit", "config", "moment", "registry", "wire"]);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Files of production code. Files of tests have names or folders that say so.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let of_tests = matches!(&*name, "tests" | "testing");
        if path.is_dir() && !of_tests {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") && !of_tests {
            all.push(path);
        }
    }
    all
}

/// `ray` of `src/ray/registry/state/mod.rs`, `app` of `src/app.rs`.
fn room_of(file: &Path) -> String {
    let inside = file.strip_prefix(root()).unwrap();
    let first = inside.iter().next().unwrap().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// Without comments and without what is compiled for tests alone.
fn production(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let mut kept = String::new();
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept += line;
            kept.push('\n');
            continue;
        }
        // The item that follows: to its semicolon, or to the end of its braces.
        let mut depth = 0_usize;
        for line in lines.by_ref() {
            depth += line.matches('{').count();
            depth = depth.saturating_sub(line.matches('}').count());
            let ends = line.trim_end().ends_with([';', '}', ',']);
            if depth == 0 && ends {
                break;
            }
        }
    }
    kept
}

/// First segments of all paths that begin with `crate::`.
fn rooms_used(text: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, start) in text.match_indices("crate::") {
        let rest = &text[at + start.len()..];
        match rest.strip_prefix('{') {
            Some(group) => used.extend(first_segments(group)),
            None => {
                used.extend(word(rest));
            }
        }
    }
    used
}

/// Of a group, up to its closing brace: the first word of every member.
fn first_segments(group: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut depth, mut starts) = (0, true);
    for (at, one) in group.char_indices() {
        match one {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts = true,
            _ if starts && !one.is_whitespace() => {
                found.extend(word(&group[at..]));
                starts = false;
            }
            _ => {}
        }
    }
    found
}

/// The name at the beginning of `text`, where it is that of a room and not of an item of the crate's root.
fn word(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = &text[..end.unwrap_or(text.len())];
    let is_room = name.starts_with(|c: char| c.is_ascii_lowercase());
    is_room.then(|| name.to_owned())
}
