//! Files of `src` that import each other in a circle: none of them can be read, moved or tested by itself.
//!
//! A path counts for the file that has the item, whatever re-exports it on the way. Macros and methods count for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{ONE_ROOM_CRATES, all_sources, inside, production};

/// The allowed number of files in import cycles. Lower it with each cycle that is removed.
const MAX_CYCLE_FILES: usize = 48;

/// The segments of a module's path.
type Module = Vec<String>;

#[test]
fn import_cycles_do_not_grow() {
    let graph = Graph::of(&all());
    let cycles = graph.cycles();
    let files: usize = cycles.iter().map(BTreeSet::len).sum();
    let descriptions: Vec<_> = cycles.iter().map(|cycle| graph.describe(cycle)).collect();
    let descriptions = descriptions.join("\n\n");
    assert!(
        files <= MAX_CYCLE_FILES,
        "{files} files in circles\n{descriptions}"
    );
}

#[test]
fn import_cycles_are_found_through_reexports() {
    let texts = [
        ("a", "mod b; pub(crate) use b::Thing; use crate::c::made;"),
        ("a::b", "pub(super) fn f() { super::super::c::made(); }"),
        ("c", "use crate::{a::{Thing as Other, b::{self}}, d};"),
        ("d", "mod e; pub(in crate::c) fn f() { e::g(); }"),
        ("d::e", "fn g() {}"),
    ];
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let texts = texts.map(|(name, text)| (module(name), text.to_owned()));
    let cycles = Graph::of(&BTreeMap::from(texts)).cycles();
    assert_eq!(cycles, [BTreeSet::from([module("a::b"), module("c")])]);
}

/// The production code of every module that has a file.
fn all() -> BTreeMap<Module, String> {
    let modules = all_sources().into_iter().filter_map(|file| {
        let inside = inside(&file).with_extension("");
        let mut module: Module = inside
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        module.retain(|part| part != "mod");
        let is_root = matches!(&*module.join("/"), "lib" | "main");
        (!is_root).then(|| (module, production(&fs::read_to_string(&file).unwrap())))
    });
    modules.collect()
}

struct Graph(BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>);

impl Graph {
    /// Which module imports which, and the imported names.
    fn of(texts: &BTreeMap<Module, String>) -> Self {
        let names: BTreeMap<&Module, BTreeMap<String, Module>> = texts
            .iter()
            .map(|(module, text)| (module, brought_in(module, text)))
            .collect();
        let mut graph = BTreeMap::new();
        for (module, text) in texts {
            let edges: &mut BTreeMap<Module, BTreeSet<String>> =
                graph.entry(module.clone()).or_default();
            let text = for_itself(text);
            let mut paths = paths(module, &text);
            paths.extend(of_children(module, &text, texts));
            for path in paths {
                let found = holder(&path, &names, 0).filter(|found| found != module);
                if let Some(found) = found {
                    let name = path.last().unwrap().clone();
                    edges.entry(found).or_default().insert(name);
                }
            }
        }
        Self(graph)
    }

    /// The sets of more than one module each of which leads to all others.
    fn cycles(&self) -> Vec<BTreeSet<Module>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = self
            .0
            .keys()
            .map(|from| (from, self.reached(from)))
            .collect();
        let mut cycles: Vec<BTreeSet<Module>> = Vec::new();
        for (from, reached) in &reach {
            let back = reached.iter().filter(|to| reach[**to].contains(from));
            let cycle: BTreeSet<Module> = back.map(|to| (*to).clone()).collect();
            if cycle.len() > 1 && !cycles.contains(&cycle) {
                cycles.push(cycle);
            }
        }
        cycles
    }

    fn reached(&self, from: &Module) -> BTreeSet<&Module> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<_> = self.0[from].keys().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(self.0[module].keys());
            }
        }
        reached
    }

    /// Finds the imports that form the cycle.
    fn describe(&self, cycle: &BTreeSet<Module>) -> String {
        let mut lines = Vec::new();
        for from in cycle {
            for (to, names) in self.0[from].iter().filter(|(to, _)| cycle.contains(*to)) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                let (from, to) = (from.join("/"), to.join("/"));
                lines.push(format!("{from} uses {} of {to}", names.join(", ")));
            }
        }
        lines.join("\n")
    }
}

/// Resolves the names that `module` imports.
fn brought_in(module: &Module, text: &str) -> BTreeMap<String, Module> {
    let mut names = BTreeMap::new();
    for (import, _) in imports(text) {
        let is_absolute = ["crate::", "super::", "self::"]
            .iter()
            .any(|start| import.starts_with(start));
        let import = match is_absolute {
            true => import.to_owned(),
            false => format!("self::{import}"),
        };
        for path in paths(module, &import) {
            names.insert(path.last().unwrap().clone(), path);
        }
    }
    names
}

/// Returns the imports of `text`, and whether they are re-exports, which the module itself may not need.
fn imports(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.match_indices("use ").filter_map(|(at, word)| {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        let end = text[at..].find(';')?;
        let is_import = before.is_empty() || before.ends_with([';', ')']) || before == "pub";
        is_import.then(|| (&text[at + word.len()..at + end], before.contains("pub")))
    })
}

/// `text` without what it imports for others.
fn for_itself(text: &str) -> String {
    let mut own = text.to_owned();
    for (import, _) in imports(text).filter(|(_, is_for_others)| *is_for_others) {
        own = own.replace(&format!("use {import};"), "");
    }
    own
}

/// All paths in `text`, a part of `module`, that begin with `crate`, `super` or `self`, from the crate's root.
fn paths(module: &Module, text: &str) -> Vec<Module> {
    let mut all = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            let is_visibility = text[..at].ends_with("pub(in ");
            let is_part = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
            if !is_visibility && !is_part {
                expand(&[], &text[at..], &mut all);
            }
        }
    }
    all.iter()
        .filter_map(|path| absolute(module, path))
        .collect()
}

/// Adds the paths that `text` begins with, behind `prefix`: several where it has a group.
fn expand(prefix: &[String], text: &str, all: &mut Vec<Module>) {
    let mut path = prefix.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            for member in members(group) {
                expand(&path, member, all);
            }
            return;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        // `self` in a group is the group's own path.
        if !word.is_empty() && (word != "self" || path.is_empty()) {
            path.push(word.to_owned());
        }
        match behind.strip_prefix("::") {
            Some(next) if !word.is_empty() => rest = next,
            _ => break,
        }
    }
    if path.len() > 1 {
        all.push(path);
    }
}

/// The members of a group, up to its closing brace.
fn members(group: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, one) in group.char_indices() {
        match one {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// From the crate's root; `None` where the path names a room alone.
fn absolute(module: &Module, path: &[String]) -> Option<Module> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let base = match &*path[0] {
        "crate" if ONE_ROOM_CRATES.contains(&&*module[0]) => &module[..1],
        "crate" => &[],
        "self" => module.as_slice(),
        _ => &module[..module.len().checked_sub(ups)?],
    };
    let rest = &path[ups.max(1)..];
    (!rest.is_empty()).then(|| [base, rest].concat())
}

/// Paths that begin with a module below `module`.
fn of_children(module: &Module, text: &str, texts: &BTreeMap<Module, String>) -> Vec<Module> {
    let below = texts
        .keys()
        .filter(|other| other.split_last().is_some_and(|(_, up)| up == module));
    let mut all = Vec::new();
    for child in below {
        let name = format!("{}::", child.last().unwrap());
        for (at, _) in text.match_indices(&name) {
            let before = text[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                expand(module, &text[at..], &mut all);
            }
        }
    }
    all
}

/// Returns the module that defines the item at `path`.
fn holder(
    path: &[String],
    names: &BTreeMap<&Module, BTreeMap<String, Module>>,
    depth: usize,
) -> Option<Module> {
    let mut ends = (1..=path.len()).rev();
    let end = ends.find(|end| names.contains_key(&path[..*end].to_vec()))?;
    let module = path[..end].to_vec();
    let brought = path.get(end).and_then(|name| names[&module].get(name));
    // Imports from another crate have no module here.
    let further = brought.filter(|_| depth < 6).and_then(|brought| {
        let whole = [brought.as_slice(), &path[end + 1..]].concat();
        holder(&whole, names, depth + 1)
    });
    Some(further.unwrap_or(module))
}
