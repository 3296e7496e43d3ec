//! `ray-relay audit`: reads the audit logs and recordings of a relay. Contacts no server.

mod lines;
mod replay;
mod show;
mod table;
mod transcript;
mod verify;

use clap::{Args, Subcommand};

use self::replay::ReplayArgs;
use self::show::ShowArgs;
use self::verify::VerifyArgs;
use super::failure::Failure;

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

Verification finds changed, removed, inserted and moved lines, with file and line, and a missing beginning. It cannot find lines cut off at the very end. --expect HASH does, up to the line with that hash; the relay logs its last hash every ten minutes as `the audit log is here`. Without a key it cannot find a chain that was rewritten by a process with write access to the file.

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

A debug session is printed as a transcript: > asked by the client, < said by the worker. A terminal session is printed as it was seen. Times are waited for only on a terminal.";

/// `audit`
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// The subcommand.
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

pub(super) async fn run(args: AuditArgs) -> Result<(), Failure> {
    match args.command {
        AuditCommand::Verify(args) => verify::run(&args),
        AuditCommand::Show(args) => show::run(&args).await,
        AuditCommand::Replay(args) => replay::run(&args).await,
    }
}
