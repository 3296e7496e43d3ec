//! `ray-relay trace`: log messages of a line in all workers of a running job.

use clap::Args;

use super::Failure;
use super::lines::{self, AtLine, LineArgs};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay trace train.py:26 'loss={loss:.3f}' --job raysubmit_dQ2mRt8bkq1v4xKc
      rank 0  loss=0.693
      rank 1  loss=0.701
  ray-relay trace train.py:26 '{loss:.3f}' --job 01000000 --columns
      rank 0  rank 1
      0.693   0.701
  ray-relay trace train.py:26 '{x.shape}' --job 01000000 --if 'step % 100 == 0' --ranks 0-3
  ray-relay trace train.py:26 '{loss}' --job 01000000 --json
      {\"event\": \"hit\", \"node\", \"pid\", \"rank\", \"thread\", \"time_ms\", \"text\"}
      {\"event\": \"status\", \"node\", \"pid\", \"state\": \"armed\"|\"not_loaded\"|\"ended\", \"at\": [LINE], \"hits\", \"dropped\", \"error\"}
      {\"event\": \"refused\", \"node\", \"pid\", \"reason\"}
      {\"event\": \"gone\", \"node\", \"pid\"}
      {\"event\": \"dropped\", \"messages\"}
      {\"event\": \"ended\", \"reason\", \"error\"}

Prints the message each time that a worker of the job reaches the line, before the line runs. Nothing stops. In braces are Python expressions, as in an f-string; they see the variables of the function, and `ray.rank` is the rank of the process. They run in the task: one that changes something changes the job, and one that copies a tensor from a GPU waits for it. An expression that raises an error is reported once and disarms the line in that worker.

With --columns a row has the next message of each rank. A rank that sends none for a second leaves its place empty. A column has 40 characters.

LINE is the number in the file that the workers run. FILE matches the end of a path: train.py matches every file of that name, model/train.py only those in a folder `model`. If the line has no code, the next one with code is used. A worker that has not imported the file yet is armed when it does, and one that starts later as soon as it starts. --ranks is checked first, then --if; --hit counts what is left.

It ends with Ctrl-C, with the job, or when the relay is lost. The line is then disarmed in every worker, within 15 s if an agent has lost the network. Each worker sends at most 50 messages a second, of up to 2,000 characters. With --json, `status` counts those that are dropped.

It needs Python 3.12 or newer in the workers, the hook in them from their start (`ray-relay help agents`), and an agent on each node (`ray-relay node`). You need the permissions `debug` and `attach` for the whole job; with the relay's `dap.allow_attach`, `debug` is enough. RAY_RELAY_HOOK=look in a job's environment forbids it.

Exit codes: 0 the job has ended, or Ctrl-C; 66 there is no such job; 69 the relay cannot be reached, or was lost; 77 refused, or the permission has ended.";

/// `trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The line, and where it is armed.
    #[command(flatten)]
    pub line: LineArgs,
    /// Text with Python expressions in braces
    #[arg(value_name = "MESSAGE", help_heading = None)]
    pub message: String,
    /// Print a column for each rank: a row has the next message of each
    #[arg(long, conflicts_with = "json", help_heading = None)]
    pub columns: bool,
}

pub(super) async fn run(args: TraceArgs) -> Result<(), Failure> {
    let at_line = AtLine::Log {
        message: &args.message,
        columns: args.columns,
    };
    lines::run(args.line, at_line).await
}
