//! `ray-relay break`: stops on a line in all workers of a running job.

use clap::Args;

use super::Failure;
use super::lines::{self, AtLine, LineArgs};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay break train.py:26 --job raysubmit_dQ2mRt8bkq1v4xKc
      rank 3 stopped at train.py:26; debug it with `ray-relay debug 3kfz0q8m`
  ray-relay break train.py:26 --job 01000000 --if 'loss != loss' --ranks 0-3
  ray-relay break train.py:26 --job 01000000 --json
      {\"event\": \"stop\", \"node\", \"pid\", \"rank\", \"breakpoint\"}
      {\"event\": \"full\", \"full\": true|false, \"tasks\"}
      and the others of `ray-relay trace`

A task of the job stops each time it reaches the line, before the line runs, as at a `breakpoint()` in the code. `--hit 1` stops each worker once. The list shows the task, and `debug`, an editor, `park` and `release` work as usual: use them in a second terminal. Other ranks continue until they wait for a stopped one in a collective. FILE, LINE, --if, --hit and --ranks are as in `ray-relay trace`, which prints and stops nothing.

It ends with Ctrl-C, with the job, or when the relay is lost. The line is then disarmed in every worker, within 15 s if an agent has lost the network. Tasks that are paused stay paused: `ray-relay release` resumes them.

About 256 tasks are paused on the line at most. Others pass it until one resumes. `ray-relay sessions` lists armed lines, those of editors too, and `ray-relay sessions end ID` disarms one.

It needs Python 3.12 or newer and debugpy 1.8 or newer in the workers' environment, the hook in them from their start (`ray-relay help agents`), and an agent on each node. You need the permissions `debug` and `attach` for the whole job; with the relay's `dap.allow_attach`, `debug` is enough.

Exit codes: 0 the job has ended, or Ctrl-C; 66 there is no such job; 69 the relay cannot be reached, or was lost; 77 refused, or the permission has ended.";

/// `break`
#[derive(Debug, Args)]
pub struct BreakArgs {
    /// The line, and where it is armed.
    #[command(flatten)]
    pub line: LineArgs,
}

pub(super) async fn run(args: BreakArgs) -> Result<(), Failure> {
    lines::run(args.line, AtLine::Stop).await
}
