//! `ray-relay break`: stops on a line in all workers of a running job.

use clap::Args;

use super::Failure;
use super::lines::{self, LineArgs};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay break train.py:26 --job raysubmit_dQ2mRt8bkq1v4xKc
      rank 3  stops at train.py:26: ray-relay debug 3kfz0q8m
  ray-relay break train.py:26 --job 01000000 --if 'loss != loss' --ranks 0-3
  ray-relay break train.py:26 --job 01000000 --json
      {\"event\": \"stop\", \"node\", \"pid\", \"rank\", \"breakpoint\"}
      {\"event\": \"full\", \"full\": true|false, \"tasks\"}
      and the others of `ray-relay trace`

Each task of the job that reaches the line stops on it, before the line runs, as at a `breakpoint()` in the code. It is in the list, and `debug`, an editor, `park` and `release` take it as usual. The job need not be submitted again. FILE, LINE, --if, --hit and --ranks are as in `ray-relay trace`, which prints and stops nothing.

It ends with Ctrl-C, with the job, or when the relay is lost. The line is then disarmed in every worker, within 15 s if an agent has lost the network. A task that stands on it stays there until somebody lets it run on: `ray-relay release`.

At most 256 tasks of the job stand on the line, and a few that arrive at that moment. Then no further one stops until one of them has gone on. `ray-relay sessions` lists the armed lines, those of editors as well, and `sessions end` disarms one.

It takes what `ray-relay trace` takes: Python 3.12, the hook in the workers, an agent on each node, `debug` and `attach`. The workers also need debugpy.

Exit codes: 0 the job has ended, or Ctrl-C; 66 there is no such job; 69 the relay cannot be reached, or was lost; 77 refused, or the permission has ended.";

/// `break`
#[derive(Debug, Args)]
pub struct BreakArgs {
    /// The line, and where it is armed.
    #[command(flatten)]
    pub line: LineArgs,
}

pub(super) async fn run(args: BreakArgs) -> Result<(), Failure> {
    lines::run(args.line, None).await
}
