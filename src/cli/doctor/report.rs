//! Output of findings: each as soon as it is known, or all of them as JSON.

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use ray_relay_access::telemetry::logging::colours;
use ray_relay_view::doctor::{self, Finding, Severity};

/// All findings as JSON, with the exit code.
pub(super) fn as_json(relay: &str, findings: &[Finding], exit_code: u8) -> Value {
    json!({ "relay": relay, "findings": findings, "exit_code": exit_code })
}

/// Returns to the start of the line, and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// Collects and prints findings.
pub(super) struct Report {
    findings: Vec<Finding>,
    /// `None`: findings are collected for the JSON at the end.
    lines: Option<ReportLines>,
}

struct ReportLines {
    coloured: bool,
    /// Whether to show progress to a user.
    progress: bool,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        let lines = ReportLines {
            coloured: colours(io::stdout().is_terminal()),
            progress: io::stderr().is_terminal() && io::stdout().is_terminal(),
        };
        Self {
            findings: Vec::new(),
            lines: (!json).then_some(lines),
        }
    }

    /// Creates a report that prints nothing.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self::new(true)
    }

    /// The findings so far.
    #[cfg(test)]
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Shows the current step, until there is a finding.
    pub(super) fn about(&self, what: &str) {
        if self.lines.as_ref().is_some_and(|lines| lines.progress) {
            // Without a terminal no one misses it.
            let _ = write!(io::stderr(), "{CLEAR}... {what}");
        }
    }

    /// Adds and prints `finding`.
    pub(super) fn add(&mut self, finding: Finding) -> io::Result<()> {
        if let Some(lines) = &self.lines {
            lines.clear();
            io::stdout()
                .lock()
                .write_all(rendered(&finding, lines.coloured).as_bytes())?;
        }
        self.findings.push(finding);
        Ok(())
    }

    /// Prints the rest of the report about `relay`, and returns the exit code.
    pub(super) fn end(&self, relay: &str) -> io::Result<u8> {
        let exit_code = doctor::exit_code(&self.findings);
        match &self.lines {
            Some(lines) => lines.clear(),
            None => {
                let report = as_json(relay, &self.findings, exit_code);
                writeln!(io::stdout().lock(), "{report:#}")?;
            }
        }
        Ok(exit_code)
    }
}

impl ReportLines {
    fn clear(&self) {
        if self.progress {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

/// Formats a finding: a line with its mark, and one with the next step.
fn rendered(finding: &Finding, coloured: bool) -> String {
    let (mark, colour) = match finding.severity {
        Severity::Ok => ("ok", "32"),
        Severity::Note => ("note", "36"),
        Severity::Warning => ("warning", "33"),
        Severity::Error => ("error", "1;31"),
    };
    let mark = format!("{mark:<7}");
    let mark = match coloured {
        true => format!("\u{1b}[{colour}m{mark}\u{1b}[0m"),
        false => mark,
    };
    let mut text = format!("{mark}  {:<10}  {}\n", finding.link.word(), finding.says);
    if let Some(next) = &finding.next {
        text += &format!("{:21}{next}\n", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_view::doctor::{ChainLink, Fault};

    #[test]
    fn finding_and_next_step_are_separate_lines() {
        let found =
            Finding::error(ChainLink::Head, Fault::Unreachable, "it is gone").next("start it");
        assert_eq!(
            rendered(&found, false),
            "error    head        it is gone\n                     start it\n"
        );
        let coloured = rendered(&Finding::ok(ChainLink::Tls, "fine"), true);
        assert_eq!(coloured, "\u{1b}[32mok     \u{1b}[0m  tls         fine\n");
    }
}
