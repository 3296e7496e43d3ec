//! `ray-relay why`: one verdict on what running tasks wait for, or what differs between them.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::{Args, ValueHint};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::failure::{Exit, Failure};
use super::job::{self, JobName};
use super::relay_args::RelayArgs;
use super::relay_client::RelayClient;
use super::snapshot::saved;
use super::terminal::print;
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::json::put;
use ray_relay_view::listing::fold::inspected::InspectedTasks;
use ray_relay_view::listing::fold::verdict::{Judged, Verdict};

/// Time after which a user is told what takes so long.
const QUIET_TIME: Duration = Duration::from_secs(2);

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay why --job raysubmit_dQ2mRt8bkq1v4xKc
  ray-relay why --job 01000000 --json
      {\"verdict\": \"hangs\"|\"slow\"|\"differs\"|\"healthy\"|\"unknown\", \"confidence\": \"certain\"|\"likely\"|\"possible\", \"summary\": TEXT, \"culprits\": [{\"tasks\", \"pid\", \"node_ip\", \"at\", \"reason\", \"still_seconds\"}], \"evidence\": [TEXT], \"waiting\": [...], \"differences\": [...], \"next\": [COMMAND], \"kept\": {\"job_id\", \"ended\", \"first\", \"last\"}, \"clusters\": [{\"name\", \"trouble\", \"complete\"}]}
  ray-relay snapshot --job 01000000 --objects --save hang.json
  ray-relay why hang.json

`why` looks at all processes of the job, without stopping them. It follows what each waits for: a collective or a barrier, ray.get, ray.wait, a lock, the lock of a file, a child process, a socket, time.sleep. It names the process that the others wait for and that waits for none of them, or a cycle of those that wait for each other. With PyTorch's flight recorder on (TORCH_FR_BUFFER_SIZE=2000) it compares the numbers and tensors of collectives. If none waits for another, it compares the variables of the ranks, the lengths of lists, and the versions of loaded packages. Values that differ are read again after a second.

certain: a cycle or Ray itself shows it. likely: all others wait in one collective, and only this rank is elsewhere. possible: there are other explanations. A rank that still runs or moves, or has moved within the last 30 s, is called slow. If the cause is unknown, `why` says so and names the commands that tell more.

With the hook in the workers (`ray-relay hook`) `why` knows for how long each has not moved, where it was before, and which thread holds a lock. Without it, the relay looks a second time after 5 s; what has not moved may hang or not, and the verdict is `unknown`.

It needs the permission `view` on the tasks; without `debug` the text of values is hidden, and the last lines of an actor that has died.

Of a job that has ended after it hung, `why` prints the first verdict that the relay has kept, and when it saw the job hang. That takes `view` on the whole job. For this the relay inspects all running jobs every 20 s, if its configuration has [post_mortem] enabled = true or notices of hangs.

In JSON, `culprits` are those that the others wait for; they are to blame only if the verdict is `hangs`.

Exit codes: 0 there is a verdict, or nothing runs in the job; 1 the saved file is broken; 66 there is no such job or file, 69 the relay cannot be reached, or no head that it asks, 77 refused.";

/// `why`
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// A file of `snapshot --save`, in place of what runs now
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "job")]
    pub file: Option<PathBuf>,
    /// Only tasks of this job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

pub(super) async fn run(args: WhyArgs) -> Result<(), Failure> {
    let judged = match &args.file {
        Some(path) => {
            let saved = saved_answer(path)?;
            Judged {
                verdict: Verdict::of(InspectedTasks::read(&saved)),
                kept: None,
                clusters: saved.get("clusters").cloned().unwrap_or_default(),
            }
        }
        None => of_relay(&args).await?,
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&judged).map_err(io::Error::from)? + "\n",
        false => judged.text(),
    };
    print(&text)?;
    match judged.verdict.is_of_silent_head() {
        true => Err(Failure::reported(Exit::Unreachable as u8)),
        false => Ok(()),
    }
}

fn saved_answer(path: &std::path::Path) -> Result<Value, Failure> {
    let name = path.to_string_lossy();
    match saved::find(&name) {
        Some(saved) => Ok(saved?),
        None => {
            let why = match path.exists() {
                true => format!("{name} is not a file of `ray-relay snapshot --save`"),
                false => format!("there is no file {name}"),
            };
            Err(SessionError::NotFound(why).into())
        }
    }
}

/// Asks the relay for its verdict.
async fn of_relay(args: &WhyArgs) -> Result<Judged, Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let mut payload = json!({});
    if let Some(job) = args.job.as_deref() {
        put(&mut payload, "job", job);
    }
    let mut asking = pin!(client.why(&payload));
    let answer = match timeout(QUIET_TIME, &mut asking).await {
        Ok(answer) => answer,
        Err(_) => {
            if io::stderr().is_terminal() {
                eprintln!(
                    "Inspecting the processes. Where none of them has the hook, this takes 5 s longer …"
                );
            }
            asking.await
        }
    };
    let answer = answer.map_err(job::unknown)?;
    let mut judged = Judged::deserialize(&answer).map_err(io::Error::from)?;
    judged.verdict = judged.verdict.sanitized();
    Ok(judged)
}
