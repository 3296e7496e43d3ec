//! `ray-relay trace`: log messages of a line in all workers of a running job.

mod messages;

use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::messages::Messages;
use super::failure::{Exit, Fails, Failure};
use super::job::{self, JobName};
use super::relay_args::RelayArgs;
use super::relay_client::RelayClient;
use super::sse::ServerSentEvent;
use super::terminal::print;
use ray_relay_base::wire::json::{put, typed_at};
use ray_relay_base::wire::text::one_line;
use ray_relay_view::listing::fold::ranks::Ranks;

/// The most ranks that `--ranks` names.
const MAX_RANKS: usize = 256;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay trace train.py:26 'loss={loss:.3f}' --job raysubmit_dQ2mRt8bkq1v4xKc
      rank 0  loss=0.693
      rank 1  loss=0.701
  ray-relay trace train.py:26 '{x.shape}' --job 01000000 --if 'step % 100 == 0' --ranks 0-3
  ray-relay trace train.py:26 '{loss}' --job 01000000 --json
      {\"event\": \"hit\", \"node\", \"pid\", \"rank\", \"thread\", \"time_ms\", \"text\"}
      {\"event\": \"status\", \"node\", \"pid\", \"state\": \"armed\"|\"not_loaded\"|\"ended\", \"at\": [LINE], \"hits\", \"dropped\", \"error\"}
      {\"event\": \"refused\", \"node\", \"pid\", \"reason\"}
      {\"event\": \"gone\", \"node\", \"pid\"}
      {\"event\": \"dropped\", \"messages\"}
      {\"event\": \"ended\", \"reason\", \"error\"}

Prints the message each time that a worker of the job reaches the line, before the line runs. Nothing stops. In braces are Python expressions, as in an f-string; they see the variables of the function, and `ray.rank` is the rank of the process. They run in the task: one that changes something changes the job, and one that copies a tensor from a GPU waits for it. An expression that raises an error is reported once and disarms the line in that worker.

LINE is the number in the file that the workers run. FILE is the end of its path, by whole names: train.py, model/train.py; every file that fits is meant. A line without code stands for the next one that has some. A worker that has not imported the file yet is armed when it does, and one that starts later as soon as it starts. --ranks is checked first, then --if; --hit counts what is left.

It ends with Ctrl-C, with the job, or when the relay is lost. The line is then disarmed in every worker, within 15 s if an agent has lost the network. Each worker sends at most 50 messages a second, of 2,000 characters; the number dropped is reported.

It needs Python 3.12 or newer in the workers, the hook in them from their start (`ray-relay hook`), and an agent on each node (`ray-relay node`). It takes the permissions `debug` and `attach` on the whole job (or the relay's `dap.allow_attach`). RAY_RELAY_HOOK=look in a job's environment forbids it.

Exit codes: 0 the job has ended, or Ctrl-C; 66 there is no such job; 69 the relay cannot be reached, or was lost; 77 refused, or the permission has ended.";

/// `trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The line: train.py:26
    #[arg(value_name = "FILE:LINE")]
    pub place: SourceLine,
    /// Text with Python expressions in braces
    #[arg(value_name = "MESSAGE")]
    pub message: String,
    /// The job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: JobName,
    /// Only where this Python expression is true
    #[arg(long = "if", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Only these hits, counted in each worker: 5 (the fifth), '>= 5', '% 100' (every 100th)
    #[arg(long, value_name = "HITS")]
    pub hit: Option<String>,
    /// Only these ranks, such as 0-7,9
    #[arg(long, value_name = "RANKS")]
    pub ranks: Option<Ranks>,
    /// The cluster, if several have a job of that name
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Print a JSON object a line
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    file: String,
    line: u32,
}

/// The text is no line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is FILE:LINE, such as train.py:26")]
pub struct NoSourceLine;

impl FromStr for SourceLine {
    type Err = NoSourceLine;

    fn from_str(text: &str) -> Result<Self, NoSourceLine> {
        let (file, line) = text.rsplit_once(':').ok_or(NoSourceLine)?;
        let line = line.parse().ok().filter(|line| *line > 0);
        let file = file.strip_prefix("./").unwrap_or(file);
        match (file, line) {
            ("", _) | (_, None) => Err(NoSourceLine),
            (file, Some(line)) => Ok(Self {
                file: file.to_owned(),
                line,
            }),
        }
    }
}

/// Why a trace ended before the user ended it.
#[derive(Debug, thiserror::Error)]
enum TraceEnded {
    #[error("{0}; the line is disarmed")]
    Lost(String),
    #[error("{0}; the line is disarmed")]
    NotPermitted(String),
    #[error("--ranks names more than {MAX_RANKS} ranks")]
    ManyRanks,
}

impl Fails for TraceEnded {
    fn exit(&self) -> Exit {
        match self {
            Self::Lost(_) => Exit::Unreachable,
            Self::NotPermitted(_) => Exit::NotPermitted,
            Self::ManyRanks => Exit::Usage,
        }
    }
}

pub(super) async fn run(args: TraceArgs) -> Result<(), Failure> {
    let payload = payload(&args)?;
    let client = RelayClient::new(args.relay)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut messages = Messages::new(args.json);
    // Dropping the future closes the connection, and the relay disarms the line.
    tokio::select! {
        ended = follow(&client, &payload, &mut messages) => ended?,
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    messages.summarize();
    Ok(())
}

fn payload(args: &TraceArgs) -> Result<Value, TraceEnded> {
    let SourceLine { file, line } = &args.place;
    let mut payload = json!({ "job": &*args.job, "file": file, "line": line, "log": args.message });
    let optional = [
        ("condition", &args.condition),
        ("hit", &args.hit),
        ("cluster", &args.cluster),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            put(&mut payload, key, value.as_str());
        }
    }
    if let Some(ranks) = &args.ranks {
        let numbers = ranks.numbers(MAX_RANKS).ok_or(TraceEnded::ManyRanks)?;
        put(&mut payload, "ranks", numbers);
    }
    Ok(payload)
}

/// Prints the events until the job ends.
async fn follow(
    client: &RelayClient,
    payload: &Value,
    messages: &mut Messages,
) -> Result<(), Failure> {
    let mut feed = client.trace(payload).await.map_err(job::unknown)?;
    if io::stderr().is_terminal() {
        eprintln!("Ctrl-C ends it. The line is armed in each worker of the job as it is found …");
    }
    loop {
        let events = match messages.next_notice() {
            None => feed.next().await,
            Some(at) => match tokio::time::timeout_at(at, feed.next()).await {
                Ok(events) => events,
                Err(_) => {
                    messages.notice();
                    continue;
                }
            },
        };
        for ServerSentEvent { name, data } in events.map_err(TraceEnded::Lost)? {
            let data: Value = serde_json::from_str(&data).map_err(io::Error::from)?;
            if let Some(text) = messages.event(&name, &data) {
                print(&text)?;
            }
            if name == "ended" {
                let sentence = one_line(typed_at::<&str>(&data, "error"));
                return match typed_at(&data, "reason") {
                    "job" => Ok(()),
                    _ => Err(TraceEnded::NotPermitted(sentence).into()),
                };
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_file_is_parsed() {
        let line = |text: &str| text.parse::<SourceLine>();
        let train = SourceLine {
            file: "src/train.py".to_owned(),
            line: 26,
        };
        assert_eq!(line("src/train.py:26"), Ok(train.clone()));
        assert_eq!(line("./src/train.py:26"), Ok(train));
        for text in [
            "",
            "train.py",
            "train.py:",
            ":26",
            "train.py:0",
            "train.py:-1",
            "train.py:x",
        ] {
            assert_eq!(line(text), Err(NoSourceLine), "{text}");
        }
    }
}
