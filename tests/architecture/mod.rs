//! The layers of the workspace: a module may use those below it, never one above or at its own level.
//!
//! Cargo enforces the order of crates; these tests enforce that of the modules inside them. The imports are read from the
//! source: every path that begins with `crate::` or a crate of the workspace, in production code. Tests may import anything.

mod cycles;
mod indexing;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the top. Rooms on one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["cli"],
    &["demo", "deploy"],
    &["app"],
    &["listener"],
    &["dap", "http", "lineproto"],
    &["discovery", "notice"],
    &["release"],
    &["upstream", "reverse", "armed"],
    &["context"],
    &["connect"],
    &["session"],
    &["agents"],
    &["hangs", "recording"],
    &["connection", "audit"],
    &["identity"],
    &["doctor", "group"],
    &["advertise", "listing"],
    &["visibility", "node", "cluster"],
    &["policy", "tls"],
    &["telemetry"],
    &["ray"],
    &["hold"],
    &["config"],
    &["debugger", "kube"],
    &["keeper", "pdb", "dial"],
    &["wire"],
    &[
        "memory",
        "timestamp",
        "shutdown",
        "key_mode",
        "fault",
        "manual",
    ],
];

#[test]
fn no_module_imports_upwards_or_sideways() {
    let floor: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(floor, rooms)| rooms.iter().map(move |room| (*room, floor)))
        .collect();
    let mut wrong = BTreeSet::new();
    let mut found_rooms = BTreeSet::new();
    for file in all_sources() {
        let room = room_of(&file);
        if room == "lib" {
            continue;
        }
        let Some(own) = floor.get(&*room) else {
            wrong.insert(format!("{room} is in no layer: add it to LAYERS"));
            continue;
        };
        found_rooms.insert(room.clone());
        let text = production(&fs::read_to_string(&file).unwrap());
        for used in rooms_used(&room, &text) {
            if used == room {
                continue;
            }
            match floor.get(&*used) {
                Some(below) if below > own => {}
                Some(_) => {
                    let file = inside(&file).display().to_string();
                    wrong.insert(format!("{file} uses {used}, which is not below {room}"));
                }
                None => {
                    wrong.insert(format!("{used} is in no layer: add it to LAYERS"));
                }
            }
        }
    }
    let named: BTreeSet<String> = floor.keys().map(|room| (*room).to_owned()).collect();
    for stale in named.difference(&found_rooms) {
        wrong.insert(format!("{stale} is in LAYERS, and there is no such room"));
    }
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Both are in `ray`, which is one room to all others.
#[test]
fn head_does_not_depend_on_the_registry() {
    for file in sources(&room("ray/head")) {
        let text = production(&fs::read_to_string(&file).unwrap());
        assert!(!text.contains("registry::"), "{}", file.display());
    }
}

/// A handler is called by the table of routes, and needs nothing of it.
#[test]
fn http_handlers_do_not_depend_on_their_callers() {
    for file in sources(&room("http")) {
        let name = file.file_stem().unwrap().to_string_lossy();
        if matches!(&*name, "mod" | "connection") {
            continue;
        }
        let text = production(&fs::read_to_string(&file).unwrap());
        for caller in ["super::connection", "super::routes", "http::routes"] {
            assert!(!text.contains(caller), "{} uses {caller}", file.display());
        }
    }
}

/// A new command touches nothing that all of them use.
#[test]
fn failures_do_not_depend_on_commands() {
    let text = production(&fs::read_to_string(room("cli/failure.rs")).unwrap());
    for (at, path) in text.match_indices("use super::") {
        let used = word(&text[at + path.len()..]);
        assert_eq!(used.as_deref(), Some("relay_client"), "failure.rs uses it");
    }
}

/// A new kind of debugger must not compile before every `match` handles it.
#[test]
fn debugger_kinds_are_matched_and_never_compared() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let text = production(&fs::read_to_string(&file).unwrap());
        let file = inside(&file).display().to_string();
        wrong.extend(compared(&text).map(|line| format!("{file}: {line}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn comparisons_of_kinds_are_distinguished_from_exhaustive_matches() {
    let compared = |text: &str| compared(text).count();
    for text in [
        "b.kind == Kind::Pdb",
        "messages::Kind::Debugpy != kind",
        "matches!(kind, Kind::Pdb)",
        "if let Kind::Pdb = kind {}",
        "match kind { Kind::Debugpy => 1,\n _ => 2 }",
        "match kind { Kind::Debugpy | Kind::Pdb if late => 1,\n Kind::Debugpy => 2,\n Kind::Pdb => 3 }",
    ] {
        assert_ne!(compared(text), 0, "{text}");
    }
    for text in [
        "match kind {\n Kind::Debugpy => 1,\n Kind::Pdb => 2\n}",
        "Breakpoint {\n kind: Kind::Pdb,\n}",
        "b.kind == held.kind",
    ] {
        assert_eq!(compared(text), 0, "{text}");
    }
}

/// The lines of `text` that name a kind of debugger otherwise than to make something of it or as one arm of those of all.
fn compared(text: &str) -> impl Iterator<Item = &str> {
    let of = |line: &str, name: &str| line.contains(&format!("Kind::{name}"));
    let arms = |name| {
        let arm = move |line: &&str| of(line, name) && line.contains("=>");
        text.lines().filter(arm).count()
    };
    let uneven = arms("Debugpy") != arms("Pdb");
    text.lines().map(str::trim).filter(move |line| {
        let is_made = line.starts_with("kind: Kind::") && line.ends_with(',');
        let is_arm = line.starts_with("Kind::") && line.contains(" => ") && !line.contains(" if ");
        (of(line, "Debugpy") || of(line, "Pdb")) && !is_made && (!is_arm || uneven)
    })
}

#[test]
fn all_forms_of_imports_are_parsed() {
    let text = "
        use crate::registry::{Breakpoint, query};
        use crate::{
            audit::{self, Entry},
            wire::dap::codec, config,
        };
        // use crate::comment::Only;
        fn f() { ray_relay_base::timestamp::Moment::now(); crate::hold::take(); } // crate::trailing::Comment
        #[cfg(test)]
        use crate::only_in_tests::Thing;
        #[cfg(test)]
        mod tests { use crate::also_only_in_tests::Thing; }
    ";
    let used: Vec<_> = rooms_used("app", &production(text)).into_iter().collect();
    assert_eq!(
        used,
        ["audit", "config", "hold", "registry", "timestamp", "wire"]
    );
}

/// The folders of all crates that hold their sources.
fn roots() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let mut all = vec![root.join("src")];
    all.extend(crates.map(|member| member.unwrap().path().join("src")));
    all
}

/// Crates that are one room: it has the crate's name, and its files are in `src` itself.
const ONE_ROOM_CRATES: [&str; 4] = ["cluster", "dap", "kube", "node"];

/// `ray/registry/mod.rs` of `crates/ray/src/ray/registry/mod.rs`, `dap/mod.rs` of `crates/dap/src/lib.rs`.
fn inside(file: &Path) -> PathBuf {
    let roots = roots();
    let mut stripped = roots.iter().filter_map(|root| {
        let path = file.strip_prefix(root).ok()?;
        let of_crate = root.parent()?.file_name()?.to_str()?;
        Some(match (ONE_ROOM_CRATES.contains(&of_crate), path.to_str()) {
            (true, Some("lib.rs")) => Path::new(of_crate).join("mod.rs"),
            (true, _) => Path::new(of_crate).join(path),
            (false, _) => path.to_path_buf(),
        })
    });
    stripped.next().unwrap()
}

/// The folder or file `path` of a room, in whichever crate it is.
fn room(path: &str) -> PathBuf {
    let mut found = roots().into_iter().map(|root| root.join(path));
    found.find(|found| found.exists()).unwrap()
}

/// All files of production code.
fn all_sources() -> Vec<PathBuf> {
    roots().iter().flat_map(|root| sources(root)).collect()
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
    let inside = inside(file);
    let first = inside.iter().next().unwrap().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// Marks code that is compiled for tests of other crates too.
const TESTING: &str = r#"#[cfg(any(test, feature = "testing"))]"#;

/// Without comments and without what is compiled for tests alone.
fn production(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let mut production = String::new();
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if !matches!(line.trim(), "#[cfg(test)]" | TESTING) {
            production += line;
            production.push('\n');
            continue;
        }
        // The item that follows: to its semicolon, or to the end of its braces.
        let mut depth = 0_usize;
        for line in lines.by_ref() {
            // The last item of its file, whatever braces its literals have.
            if line == "mod tests {" {
                return production;
            }
            depth += line.matches('{').count();
            depth = depth.saturating_sub(line.matches('}').count());
            let ends = line.trim_end().ends_with([';', '}', ',']);
            if depth == 0 && ends {
                break;
            }
        }
    }
    production
}

/// The rooms that `text`, a part of `room`, names: of each path that begins with `crate::` or the name of a crate of the workspace
/// the first segment, or the crate itself where that is one room.
fn rooms_used(room: &str, text: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut groups = Vec::new();
    if !ONE_ROOM_CRATES.contains(&room) {
        let own = text.match_indices("crate::");
        groups.extend(own.map(|(at, start)| at + start.len()));
    }
    for (at, prefix) in text.match_indices("ray_relay_") {
        let Some(name) = word(&text[at..]) else {
            continue;
        };
        let after = at + name.len();
        let of_crate = &name[prefix.len()..];
        match text[after..].starts_with("::") {
            true if ONE_ROOM_CRATES.contains(&of_crate) => {
                used.insert(of_crate.to_owned());
            }
            true => groups.push(after + 2),
            false => {}
        }
    }
    for at in groups {
        let rest = &text[at..];
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
