//! Breakpoints at the pdb prompt: what `break` is asked for is read as it was written, a number names what was given
//! it as long as that is there, and the debugger is told each line once.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_debugger::pdb::breakpoints::{PromptBreakpoint, PromptBreakpoints};
use ray_relay_debugger::pdb::location::{Location, read};

const FILE: &str = "/a.py";

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Break {
        text: &'a str,
        temporary: bool,
    },
    Spelled {
        name: &'a str,
        line: u32,
        blanks: u8,
        condition: &'a str,
    },
    Name(&'a str),
    Disable(u8),
    Ignore(u8, u8),
    Remove(u8),
    Hit(u8),
}

fn spelled(name: &str, line: u32, blanks: u8, condition: &str) {
    let (name, condition) = (name.trim(), condition.trim());
    if name.is_empty() || name.contains(',') {
        return;
    }
    let blanks = " ".repeat(usize::from(blanks % 4));
    let text = format!("{name}{blanks}:{blanks}{line}{blanks},{blanks}{condition}");
    let wanted = Some(condition).filter(|text| !text.is_empty());
    let file = Location::File {
        name,
        line: Ok(line),
    };
    assert_eq!(read(&text), (file, wanted), "{text}");
    let text = format!("{line}{blanks},{condition}");
    assert_eq!(read(&text), (Location::Line(line), wanted), "{text}");
}

fn added(
    table: &mut PromptBreakpoints,
    text: &str,
    temporary: bool,
) -> Option<(usize, PromptBreakpoint)> {
    let (location, condition) = read(text);
    let line = match location {
        Location::File { name, line } => {
            assert!(text.contains(name));
            line.ok()?
        }
        Location::Line(line) => line,
        Location::Function(name) => {
            assert!(text.contains(name));
            return None;
        }
    };
    let breakpoint = PromptBreakpoint {
        file: FILE.to_owned(),
        line,
        stop: line,
        temporary,
        condition: condition.map(str::to_owned),
        ..PromptBreakpoint::default()
    };
    let last = table.last();
    let added = table.add(breakpoint)?.clone();
    assert_eq!(added.number, last + 1);
    Some((added.number, added))
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut table = PromptBreakpoints::default();
    let mut there: BTreeMap<usize, PromptBreakpoint> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Break { text, temporary } => there.extend(added(&mut table, text, temporary)),
            Step::Spelled {
                name,
                line,
                blanks,
                condition,
            } => {
                spelled(name, line, blanks, condition);
            }
            Step::Name(text) => {
                let number = text.trim().parse::<usize>().ok();
                let known = number.filter(|number| there.contains_key(number));
                let named = table.named(text).map(|one| one.number);
                assert_eq!(named.ok(), known, "{text}");
            }
            Step::Disable(number) => {
                if let Ok(one) = table.named(&number.to_string()) {
                    one.disabled = !one.disabled;
                    there.insert(one.number, one.clone());
                }
            }
            Step::Ignore(number, times) => {
                if let Ok(one) = table.named(&format!(" {number} ")) {
                    one.ignore = times.into();
                    there.insert(one.number, one.clone());
                }
            }
            Step::Remove(number) => {
                let number = usize::from(number);
                let gone = table.remove(|one| one.number == number);
                assert_eq!(gone.len(), usize::from(there.remove(&number).is_some()));
            }
            Step::Hit(line) => {
                let line = line.into();
                let able = |one: &PromptBreakpoint| one.stop == line && !one.disabled;
                let mut able: Vec<&mut PromptBreakpoint> =
                    there.values_mut().filter(|one| able(one)).collect();
                let hit = table.hit(FILE, line);
                assert_eq!(hit.is_some(), !able.is_empty());
                let stops = able.iter().position(|one| one.ignore == 0);
                let passed = stops.unwrap_or(able.len());
                for one in able.iter_mut().take(passed) {
                    one.ignore -= 1;
                }
                let number = stops.map(|at| able[at].number);
                let stop = hit.as_ref().and_then(|hit| hit.stop.as_ref());
                assert_eq!(stop.map(|one| one.number), number);
                if hit.is_some_and(|hit| hit.deleted) {
                    let gone = number.and_then(|number| there.remove(&number));
                    assert!(gone.expect("it counted").temporary);
                }
            }
        }
    }
    let told = table.request(FILE, &[]);
    let told = told["breakpoints"].as_array().expect("a list");
    let told: Vec<u64> = told.iter().filter_map(|one| one["line"].as_u64()).collect();
    let able = there.values().filter(|one| !one.disabled);
    let lines: BTreeSet<u64> = able.map(|one| one.stop.into()).collect();
    assert_eq!(told, lines.into_iter().collect::<Vec<_>>());
    assert_eq!(table.listing().is_empty(), there.is_empty());
});
