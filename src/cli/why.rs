//! `ray-relay why`: one verdict on what running tasks wait for, or what differs between them.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::failure::Failure;
use super::job::{self, JobName};
use super::relay_args::RelayArgs;
use super::relay_client::RelayClient;
use super::snapshot::running::{keyed, looks, process};
use super::snapshot::saved;
use super::terminal::print;
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::json::{list, put, typed_at};
use ray_relay_view::listing::fold::member::Member;
use ray_relay_view::listing::fold::verdict::Verdict;
use ray_relay_view::listing::received::troubles;

/// Pause between two looks where no worker records its positions.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay why --job raysubmit_dQ2mRt8bkq1v4xKc
  ray-relay why --job 01000000 --json
      {\"verdict\": \"hangs\"|\"slow\"|\"differs\"|\"healthy\"|\"unknown\", \"confidence\": \"certain\"|\"likely\"|\"possible\", \"summary\": TEXT, \"culprits\": [{\"tasks\", \"pid\", \"node_ip\", \"at\", \"reason\", \"still_seconds\"}], \"evidence\": [TEXT], \"waiting\": [...], \"differences\": [...], \"next\": [COMMAND]}
  ray-relay snapshot --job 01000000 --objects --save hang.json
  ray-relay why hang.json

`why` looks once at all processes of the job, without stopping them. It follows what each waits for: a collective or a barrier, ray.get, a lock, a child process, a socket, time.sleep. It names the process that the others wait for and that waits for none of them, or a cycle of those that wait for each other. With PyTorch's flight recorder on (TORCH_FR_BUFFER_SIZE=2000) it compares the numbers and tensors of collectives. If none waits for another, it compares the variables of the ranks.

certain: a cycle or Ray itself shows it. likely: all others wait in one collective, and only this rank is elsewhere. possible: there are other explanations. A rank that still runs or moves, or has moved within the last 30 s, is called slow. If the cause is unknown, `why` says so and names the commands that tell more.

With the hook in the workers (`ray-relay hook`) `why` knows for how long each has not moved, where it was before, and which thread holds a lock. Without it, `why` looks a second time after 5 s.

It needs the permission `view` on the tasks; without `debug` the text of values is hidden. It reads no log of the program.

In JSON, `culprits` are those that the others wait for; they are to blame only if the verdict is `hangs`.

Exit codes: 0 there is a verdict, or nothing runs in the job; 1 the saved file is broken; 66 there is no such job or file, 69 the relay cannot be reached, 77 refused.";

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
    let answer = match &args.file {
        Some(path) => saved_answer(path)?,
        None => inspected(&args).await?,
    };
    let verdict = Verdict::of(&answer);
    let text = match args.json {
        true => format!("{:#}\n", verdict.json()),
        false => troubles(&answer) + &verdict.text(),
    };
    Ok(print(&text)?)
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

/// Inspects the selected tasks: twice, if nothing records since when they are where they are.
async fn inspected(args: &WhyArgs) -> Result<Value, Failure> {
    let client = RelayClient::new(args.relay.clone())?;
    let mut payload = json!({ "objects": true });
    if let Some(job) = args.job.as_deref() {
        put(&mut payload, "job", job);
    }
    let first = client.looks(&payload).await.map_err(job::unknown)?;
    let mut seen = looks(&first)
        .iter()
        .filter(|look| look.get("look").is_some());
    if seen.clone().next().is_none() || seen.any(has_history) {
        return Ok(first);
    }
    if io::stderr().is_terminal() {
        let seconds = LOOK_INTERVAL.as_secs();
        eprintln!("No hook in the workers records where they were; looking again in {seconds} s …");
    }
    sleep(LOOK_INTERVAL).await;
    let mut second = client.looks(&payload).await.map_err(job::unknown)?;
    add_history(&first, &mut second);
    Ok(second)
}

/// Whether the hook has recorded a thread of `look`.
fn has_history(look: &Value) -> bool {
    let threads = look
        .get("look")
        .map_or(&[][..], |look| list(look, "threads"));
    threads
        .iter()
        .any(|thread| typed_at::<Option<Value>>(thread, "history").is_some())
}

/// Adds to each process of `second` whether it has moved since `first`.
fn add_history(first: &Value, second: &mut Value) {
    let earlier = keyed(first);
    let is_still = |look: &Value| {
        let before = earlier.get(&process(look))?;
        Some(Member::read(look, false).is_where(before))
    };
    let still: Vec<Option<bool>> = looks(second).iter().map(is_still).collect();
    let entries = second.get_mut("looks").and_then(Value::as_array_mut);
    for (entry, still) in entries.into_iter().flatten().zip(still) {
        let threads = entry.pointer_mut("/look/threads");
        let threads = threads.and_then(Value::as_array_mut);
        let Some(still) = still else { continue };
        let milliseconds = if still {
            LOOK_INTERVAL.as_millis() as u64
        } else {
            0
        };
        for thread in threads.into_iter().flatten() {
            put(thread, "history", json!({ "still_ms": milliseconds }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(lines: [u32; 2]) -> Value {
        let entry = |(worker, line): (usize, u32)| {
            json!({"tasks": [{"cluster": "default", "worker_id": worker.to_string(), "name": "f"}],
                "look": {"pid": 7, "source": "traceback", "threads": [{"id": 1, "is_main": true,
                    "frames": [{"file": "a.py", "line": line, "function": "f"}]}]}})
        };
        let entries: Vec<Value> = lines.into_iter().enumerate().map(entry).collect();
        json!({ "looks": entries })
    }

    #[test]
    fn second_look_says_which_have_moved() {
        let first = answer([1, 1]);
        let mut second = answer([1, 2]);
        assert!(!looks(&second).iter().any(has_history));
        add_history(&first, &mut second);
        let still =
            |at: usize| second["looks"][at]["look"]["threads"][0]["history"]["still_ms"].clone();
        assert_eq!((still(0), still(1)), (json!(5000), json!(0)));
        assert!(looks(&second).iter().all(has_history));
    }
}
