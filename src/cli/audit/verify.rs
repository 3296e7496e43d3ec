//! `ray-relay audit verify`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::lines::{AuditError, each_line, in_order};
use crate::cli::failure::Failure;
use ray_relay_access::audit::chain::Hash;
use ray_relay_access::audit::chain::Hashing;
use ray_relay_access::audit::hashing;
use ray_relay_access::audit::verify::{Report, Verifier};
use ray_relay_base::wire::text::replaced;

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Audit files, in any order; - for standard input
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// The key of the chain, as in audit.key_file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// A hash that one of the lines has to have
    #[arg(long, value_name = "HASH")]
    expect: Option<Hash>,
    /// Print the hash of the last line and nothing else
    #[arg(long)]
    last: bool,
    /// The lines were collected from standard output or syslog: look past what stands before them,
    /// and let every start of the relay begin a chain
    #[arg(long)]
    collected: bool,
    /// The oldest files were removed on purpose (audit.keep): a log that begins in the middle is whole
    #[arg(long)]
    beginning_removed: bool,
}

pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let hashing = hashing(args.key_file.as_deref()).map_err(AuditError::from)?;
    let files = in_order(&args.files)?;
    let mut verifier = Verifier::new(&hashing)
        .collected(args.collected)
        .beginning_removed(args.beginning_removed)
        .expecting(args.expect);
    let mut now: Option<PathBuf> = None;
    each_line(&files, |path, line| {
        if now.as_deref() != Some(path) {
            verifier.file(&replaced(&path.display().to_string()));
            now = Some(path.to_owned());
        }
        verifier.line(line);
        true
    })?;
    let report = verifier.finish();
    let mut out = io::stdout().lock();
    if report.lines == 0 {
        let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        return Err(AuditError::Empty(replaced(&names.join(", ")).into_owned()).into());
    }
    if report.found > 0 {
        for finding in &report.findings {
            writeln!(out, "{finding}")?;
        }
        return Err(AuditError::Altered(count(report.found, "finding")).into());
    }
    match (args.last, report.last) {
        (true, Some(last)) => writeln!(out, "{}", last.hash)?,
        _ => out.write_all(summary(&report, files.len(), &hashing).as_bytes())?,
    }
    Ok(())
}

fn summary(report: &Report, files: usize, hashing: &Hashing) -> String {
    let mut text = format!(
        "as it was written: {} in {}\n",
        count(report.lines, "line"),
        count(files as u64, "file")
    );
    if let (Some(first), Some(last)) = (report.first, report.last) {
        text += &format!("  numbers    {first} to {}\n", last.seq);
        text += &format!("  last hash  {}\n", last.hash);
        if first > 1 {
            text += &format!(
                "  note       lines before number {first} are missing, as --beginning-removed permits\n"
            );
        }
    }
    for location in &report.torn {
        text += &format!(
            "  note       {location} is torn: the relay died while writing it, and recorded that at its next start\n"
        );
    }
    if report.restarts > 0 {
        text += &format!(
            "  note       the chain begins again {}: lines missing before it are not detected\n",
            count(report.restarts, "time")
        );
    }
    if matches!(hashing, Hashing::Plain) {
        text += "  note       without a key (audit.key_file), anyone with write access to these files could have made them anew\n";
    }
    text
}

fn count(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
