//! `ray-relay audit`: reads what a relay has recorded. Contacts nobody.

mod replay;
mod show;
mod table;
mod transcript;
mod verify;

use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::failure::{Fails, Failure};
use crate::audit::chain::Hash;
use crate::audit::files::{self, RawLine};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay audit verify /var/log/ray-relay/audit.log
  ray-relay audit show /var/log/ray-relay/audit.log --subject ana --since 1h
  ray-relay audit replay /var/lib/ray-relay/recordings/20261121T105501Z-s3-ana-train.jsonl

Next: `ray-relay audit verify --help` says what verification finds and what it cannot find.";

const VERIFY_AFTER_HELP: &str = "\
Examples:
  ray-relay audit verify /var/log/ray-relay/audit.log
      its rotated files come along, in the order in which they were written
  HEAD=$(ray-relay audit verify --last audit.log)      keep that somewhere else; later:
  ray-relay audit verify audit.log --expect $HEAD
      fails where lines up to that one were cut off the end, which no hash can tell by itself
  kubectl logs ray-relay-0 | ray-relay audit verify --collected -
  ray-relay audit verify audit.log --beginning-removed
      where audit.keep removes the oldest files, or you have

Found are changed, removed, inserted and moved lines, with file and line, and a beginning that is
missing. Not found: lines cut off at the very end (--expect finds those before it; the relay logs its
last hash every ten minutes as `the audit log is here`), and, without a key, a chain that somebody
who may write the file has made anew.

Exit codes: 0 as it was written, 1 it is not, or cannot be read.";

const SHOW_AFTER_HELP: &str = "\
Examples:
  ray-relay audit show audit.log --subject 'ana*' --since 1h
  ray-relay audit show audit.log --job 01000000 --since 2026-11-21 --until 2026-11-21T12:00
  ray-relay audit show audit.log --breakpoint 3k9x7a2q --action command
  ray-relay audit show audit.log --json | jq -r 'select(.action == \"decision\") | .details.outcome'
  ray-relay audit show audit.log --follow

Times are UTC. `ray-relay audit verify` tells whether the lines are as they were written; this does not.";

const REPLAY_AFTER_HELP: &str = "\
Examples:
  ray-relay audit replay RECORDING --no-wait | less
  ray-relay audit replay RECORDING --speed 4
  ray-relay audit replay RECORDING --json | jq -c 'select(.message.command == \"evaluate\")'

A debug session is printed as a transcript: > asked by the client, < said by the worker. A terminal
session is printed as it was seen. Times are waited for only on a terminal.";

/// `audit`
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// What to do.
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check that an audit log is as it was written
    #[command(after_help = VERIFY_AFTER_HELP)]
    Verify(VerifyArgs),
    /// Show who did what: by person, job, breakpoint and time
    #[command(after_help = SHOW_AFTER_HELP)]
    Show(ShowArgs),
    /// Play a recorded session
    #[command(after_help = REPLAY_AFTER_HELP)]
    Replay(ReplayArgs),
}

#[derive(Debug, Args)]
struct VerifyArgs {
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

#[derive(Debug, Args)]
struct ShowArgs {
    /// Audit files, in any order; rotated ones come along; - for standard input
    #[arg(required = true, value_name = "FILE", env = "RAY_RELAY_AUDIT_FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Of this person; * stands for anything
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// About this job or submission; * stands for anything
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// About this breakpoint
    #[arg(long, value_name = "ID")]
    breakpoint: Option<crate::ray::registry::BreakpointId>,
    /// Of this kind: authentication, decision, session_began, command, session_parked,
    /// session_ended, administration, agent, audit
    #[arg(long, value_name = "ACTION", value_parser = action)]
    action: Vec<&'static str>,
    /// From then on: 1h (ago), 2026-11-21 or 2026-11-21T10:55
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<std::time::SystemTime>,
    /// Before then
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<std::time::SystemTime>,
    /// Print the lines as they are
    #[arg(long)]
    json: bool,
    /// Stay, and show lines as they are written; ends with Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

#[derive(Debug, Args)]
struct ReplayArgs {
    /// A recording, from the folder in recording.dir
    #[arg(value_name = "RECORDING", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// So many times faster
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Do not wait between messages
    #[arg(long)]
    no_wait: bool,
    /// Print one object for each message
    #[arg(long)]
    json: bool,
}

/// Why a recording or log is of no use.
#[derive(Debug, thiserror::Error)]
enum AuditError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The path of that file.
        path: PathBuf,
        /// The operating system's error message.
        cause: io::Error,
    },
    /// The file of the key that audit lines are sealed with cannot be used.
    #[error(transparent)]
    Key(#[from] crate::audit::OpenError),
    /// What `verify` found to be altered.
    #[error("the audit log is not as it was written: {0}")]
    Altered(String),
    /// The log that the value names holds no audit lines.
    #[error("there are no audit lines in {0}")]
    Empty(String),
    /// A file that `replay` was given is no recording.
    #[error("{}: {why}", path.display())]
    NoRecording {
        /// The path of that file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Fails for AuditError {}

fn action(word: &str) -> Result<&'static str, String> {
    let mut words = crate::audit::Action::ALL.iter().map(|action| action.word());
    match words.find(|known| *known == word) {
        Some(word) => Ok(word),
        None => {
            let words: Vec<_> = crate::audit::Action::ALL
                .iter()
                .map(|action| action.word())
                .collect();
            Err(format!("it is one of {}", words.join(", ")))
        }
    }
}

fn time(text: &str) -> Result<std::time::SystemTime, String> {
    crate::audit::time::parse(text, std::time::SystemTime::now())
        .ok_or_else(|| "write it as 1h (ago), 2026-11-21 or 2026-11-21T10:55, in UTC".to_owned())
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.01..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("a number from 0.01 to 1000".to_owned()),
    }
}

pub(super) async fn run(args: AuditArgs) -> Result<(), Failure> {
    match args.command {
        AuditCommand::Verify(args) => verify::run(&args),
        AuditCommand::Show(args) => show::run(&args).await,
        AuditCommand::Replay(args) => replay::run(&args).await,
    }
}

/// Gives every line of `paths` to `take`, with the name of its file, until that is false.
fn each_line(
    paths: &[PathBuf],
    mut take: impl FnMut(&Path, RawLine<'_>) -> bool,
) -> Result<(), AuditError> {
    for path in paths {
        let unreadable = |cause| AuditError::Unreadable {
            path: path.clone(),
            cause,
        };
        let mut on = true;
        let take = |line: RawLine<'_>| {
            on = take(path, line);
            on
        };
        if path.as_os_str() == "-" {
            files::each_line(io::stdin().lock(), take).map_err(unreadable)?;
        } else {
            let file = std::fs::File::open(path).map_err(unreadable)?;
            files::each_line(BufReader::with_capacity(64 << 10, file), take).map_err(unreadable)?;
        }
        if !on {
            break;
        }
    }
    Ok(())
}

/// `named` with the rotated files, in the order of writing.
fn in_order(named: &[PathBuf]) -> Result<Vec<PathBuf>, AuditError> {
    if named.iter().any(|path| path.as_os_str() == "-") {
        return Ok(named.to_vec());
    }
    files::in_order(named).map_err(|cause| AuditError::Unreadable {
        path: named.first().cloned().unwrap_or_default(),
        cause,
    })
}

/// Writes a line; the error is kept for the end, because readers of lines cannot pass it on.
fn put(out: &mut impl Write, line: &str, result: &mut io::Result<()>) -> bool {
    if result.is_ok() {
        *result = writeln!(out, "{line}");
    }
    result.is_ok()
}
