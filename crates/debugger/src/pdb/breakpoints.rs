//! Breakpoints with pdb's numbers, and their form for the debugger. Pure.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ray_relay_base::wire::dap::reattach::StoredBreakpoints;

const MAX_BREAKPOINTS: usize = 1000;

/// The largest number adopted from another prompt.
const MAX_NUMBER: usize = 1_000_000;

/// One breakpoint of the prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptBreakpoint {
    pub number: usize,
    pub file: String,
    /// The line in listings: for a function, that of its `def`.
    pub line: u32,
    /// The line at which the debugger stops.
    pub stop: u32,
    pub temporary: bool,
    pub disabled: bool,
    pub condition: Option<String>,
    pub ignore: u64,
    pub hits: u64,
    /// The commands that run at a hit.
    pub commands: Option<Vec<String>>,
}

impl fmt::Display for PromptBreakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "breakpoint {} at {}:{}",
            self.number, self.file, self.line
        )
    }
}

impl PromptBreakpoint {
    /// The row of the list that `break` prints.
    fn row(&self) -> String {
        let disposition = if self.temporary { "del  " } else { "keep " };
        let enabled = if self.disabled { "no   " } else { "yes  " };
        let mut row = format!(
            "{:<4}breakpoint   {disposition}{enabled} at {}:{}\n",
            self.number, self.file, self.line
        );
        if let Some(condition) = &self.condition {
            row += &format!("\tstop only if {condition}\n");
        }
        if self.ignore > 0 {
            row += &format!("\tignore next {} hits\n", self.ignore);
        }
        if self.hits > 0 {
            let s = if self.hits > 1 { "s" } else { "" };
            row += &format!("\tbreakpoint already hit {} time{s}\n", self.hits);
        }
        row
    }
}

/// All breakpoints of a session. Numbers are never reused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptBreakpoints {
    all: Vec<PromptBreakpoint>,
    last: usize,
}

/// The effect of a stop at a line.
#[derive(Debug, Default, PartialEq)]
pub struct Hit {
    /// The breakpoint that stops; `None`: every one at that line is ignored this time.
    pub stop: Option<PromptBreakpoint>,
    /// Whether it was temporary, so that the debugger must be updated.
    pub deleted: bool,
}

impl PromptBreakpoints {
    /// Adopts those of a previous client: the list that a prompt has [written](Self::written), and others in its
    /// debugger.
    pub(crate) fn adopted(stored: StoredBreakpoints) -> Self {
        let list = stored.list.as_deref().map(serde_json::from_str);
        let mut all: Vec<PromptBreakpoint> = list.and_then(Result::ok).unwrap_or_default();
        // A worker can send anything.
        all.retain(|one| (1..=MAX_NUMBER).contains(&one.number));
        all.sort_by_key(|one| one.number);
        all.dedup_by_key(|one| one.number);
        all.truncate(MAX_BREAKPOINTS);
        let last = all.last().map_or(0, |one| one.number);
        let mut table = Self { all, last };
        for (file, line, condition) in stored.lines {
            let known = |one: &PromptBreakpoint| one.file == file && one.stop == line;
            if !table.all.iter().any(known) {
                table.add(PromptBreakpoint {
                    file,
                    line,
                    stop: line,
                    condition,
                    ..PromptBreakpoint::default()
                });
            }
        }
        table
    }

    /// The list for the next prompt.
    pub fn written(&self) -> String {
        serde_json::to_string(&self.all).unwrap_or_default()
    }

    /// Adds one; `None` if there are too many.
    pub fn add(&mut self, mut breakpoint: PromptBreakpoint) -> Option<&PromptBreakpoint> {
        if self.all.len() >= MAX_BREAKPOINTS {
            return None;
        }
        self.last += 1;
        breakpoint.number = self.last;
        self.all.push(breakpoint);
        self.all.last()
    }

    /// The last number assigned.
    pub fn last(&self) -> usize {
        self.last
    }

    /// The breakpoint with the number in `text`, or pdb's error.
    pub fn named(&mut self, text: &str) -> Result<&mut PromptBreakpoint, String> {
        if text.is_empty() {
            return Err("Breakpoint number expected".to_owned());
        }
        let number: i64 = text
            .trim()
            .parse()
            .map_err(|_| format!("Non-numeric breakpoint number {text}"))?;
        let number = usize::try_from(number)
            .ok()
            .filter(|number| *number <= self.last)
            .ok_or_else(|| format!("Breakpoint number {number} out of range"))?;
        self.all
            .iter_mut()
            .find(|one| one.number == number)
            .ok_or_else(|| format!("Breakpoint {number} already deleted"))
    }

    /// Removes the breakpoints that `which` picks, and returns them.
    pub fn remove(&mut self, which: impl Fn(&PromptBreakpoint) -> bool) -> Vec<PromptBreakpoint> {
        let (gone, kept) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|one| which(one));
        self.all = kept;
        gone
    }

    /// The lines with breakpoints in a file.
    pub fn lines(&self, file: &str) -> BTreeSet<u32> {
        let here = self.all.iter().filter(|one| one.file == file);
        here.map(|one| one.line).collect()
    }

    /// The files that have breakpoints.
    pub fn files(&self) -> BTreeSet<String> {
        self.all.iter().map(|one| one.file.clone()).collect()
    }

    /// The table that `break` prints without an argument.
    pub fn listing(&self) -> String {
        if self.all.is_empty() {
            return String::new();
        }
        let rows: String = self.all.iter().map(PromptBreakpoint::row).collect();
        format!("Num Type         Disp Enb   Where\n{rows}")
    }

    /// Arguments of `setBreakpoints` for `file`, with temporary additional lines `more`.
    pub fn request(&self, file: &str, more: &[u32]) -> Value {
        let active = |line: u32| {
            self.all
                .iter()
                .filter(move |one| one.file == file && one.stop == line && !one.disabled)
        };
        let own = self
            .all
            .iter()
            .filter(|one| one.file == file && !one.disabled);
        let lines: BTreeSet<u32> = own
            .map(|one| one.stop)
            .chain(more.iter().copied())
            .collect();
        let breakpoints: Vec<Value> = lines
            .into_iter()
            .map(|line| {
                let conditions: Option<Vec<String>> = active(line)
                    .map(|one| one.condition.as_ref().map(|text| format!("({text})")))
                    .collect();
                match conditions {
                    // The debugger supports one breakpoint for each line.
                    Some(all) if !all.is_empty() && !more.contains(&line) => {
                        json!({"line": line, "condition": all.join(" or ")})
                    }
                    _ => json!({"line": line}),
                }
            })
            .collect();
        json!({"source": {"path": file}, "breakpoints": breakpoints})
    }

    /// Counts a stop at `file:line`; `None` if there is no breakpoint.
    pub fn hit(&mut self, file: &str, line: u32) -> Option<Hit> {
        let mut found = false;
        let mut hit = Hit::default();
        for one in &mut self.all {
            if one.file != file || one.stop != line || one.disabled {
                continue;
            }
            found = true;
            one.hits += 1;
            if one.ignore > 0 {
                one.ignore -= 1;
            } else {
                hit.stop = Some(one.clone());
                break;
            }
        }
        if let Some(stop) = hit.stop.as_ref().filter(|stop| stop.temporary) {
            let number = stop.number;
            self.remove(|one| one.number == number);
            hit.deleted = true;
        }
        found.then_some(hit)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(line: u32) -> PromptBreakpoint {
        PromptBreakpoint {
            file: "/a.py".into(),
            line,
            stop: line,
            ..PromptBreakpoint::default()
        }
    }

    #[test]
    fn breakpoint_number_errors_match_pdb() {
        let mut table = PromptBreakpoints::default();
        table.add(at(3)).unwrap();
        table.add(at(4)).unwrap();
        table.remove(|one| one.number == 1);
        for (number, sentence) in [
            ("1", "Breakpoint 1 already deleted"),
            ("9", "Breakpoint number 9 out of range"),
            ("x", "Non-numeric breakpoint number x"),
        ] {
            assert_eq!(table.named(number).unwrap_err(), sentence);
        }
        assert_eq!(table.add(at(5)).unwrap().number, 3);
    }

    #[test]
    fn hits_are_counted_ignored_and_deleted() {
        let mut table = PromptBreakpoints::default();
        let temporary = PromptBreakpoint {
            ignore: 1,
            temporary: true,
            ..at(3)
        };
        table.add(temporary).unwrap();
        assert_eq!(table.hit("/a.py", 9), None);
        assert_eq!(table.hit("/a.py", 3), Some(Hit::default()));
        let hit = table.hit("/a.py", 3).unwrap();
        assert!(hit.deleted && hit.stop.unwrap().hits == 2);
        assert_eq!(table.listing(), "");
    }

    #[test]
    fn debugger_gets_one_breakpoint_per_line() {
        let mut table = PromptBreakpoints::default();
        for condition in ["x", "y"] {
            let conditional = PromptBreakpoint {
                condition: Some(condition.into()),
                ..at(3)
            };
            table.add(conditional).unwrap();
        }
        let disabled = PromptBreakpoint {
            disabled: true,
            ..at(4)
        };
        table.add(disabled).unwrap();
        let table_text = |table: &PromptBreakpoints, extra: &[u32]| {
            table.request("/a.py", extra)["breakpoints"].take()
        };
        let two_expressions = json!([{"line": 3, "condition": "(x) or (y)"}]);
        assert_eq!(table_text(&table, &[]), two_expressions);
        table.add(at(3)).unwrap();
        assert_eq!(table_text(&table, &[7]), json!([{"line": 3}, {"line": 7}]));
    }

    proptest::proptest! {
        #[test]
        fn breakpoint_numbers_stay_stable(
            steps in proptest::collection::vec((proptest::bool::ANY, 0usize..12), 0..24), text in "[ +-]{0,2}[0-9x]{0,2}[ ]?",
        ) {
            let mut table = PromptBreakpoints::default();
            let mut numbers = BTreeSet::new();
            for (is_added, number) in steps {
                if is_added {
                    numbers.insert(table.add(at(3)).unwrap().number);
                } else {
                    let removed = table.remove(|one| one.number == number);
                    proptest::prop_assert_eq!(removed.len(), usize::from(numbers.remove(&number)));
                }
            }
            let number = text.trim().parse::<usize>().ok().filter(|number| numbers.contains(number));
            proptest::prop_assert_eq!(table.named(&text).ok().map(|one| one.number), number);
        }
    }
}
