//! A line that is armed in all workers of a running job, for `break` and `trace`.

mod columns;
mod output;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::columns::Columns;
use self::output::{Format, LineToArm, Output};
use super::failure::{Exit, Fails, Failure};
use super::job::{self, JobName};
use super::relay_args::RelayArgs;
use super::relay_client::RelayClient;
use super::sse::ServerSentEvent;
use super::terminal::print;
use ray_relay_base::wire::json::{put, typed_at};
use ray_relay_base::wire::text::one_line;
use ray_relay_base::wire::tunnel::messages::MAX_ARMED_RANKS;
use ray_relay_view::listing::fold::ranks::Ranks;

/// The line, and where it is armed.
#[derive(Debug, Args)]
pub struct LineArgs {
    /// The line: train.py:26
    #[arg(value_name = "FILE:LINE")]
    pub place: SourceLine,
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

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
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

/// Why a line is disarmed before the user ended it.
#[derive(Debug, thiserror::Error)]
enum Disarmed {
    #[error("{0}; the line is disarmed")]
    Lost(String),
    #[error("{0}; the line is disarmed")]
    NotPermitted(String),
    #[error("--ranks names more than {MAX_ARMED_RANKS} ranks")]
    ManyRanks,
}

impl Fails for Disarmed {
    fn exit(&self) -> Exit {
        match self {
            Self::Lost(_) => Exit::Unreachable,
            Self::NotPermitted(_) => Exit::NotPermitted,
            Self::ManyRanks => Exit::Usage,
        }
    }
}

/// The effect of a line on the tasks that reach it.
#[derive(Debug, Clone, Copy)]
pub(super) enum AtLine<'a> {
    Stop,
    /// Print this log message, in columns by rank or as it comes.
    Log {
        message: &'a str,
        columns: bool,
    },
}

/// Arms the line, and prints what happens until the user or the job ends it.
pub(super) async fn run(args: LineArgs, at_line: AtLine<'_>) -> Result<(), Failure> {
    let (log, in_columns) = match at_line {
        AtLine::Stop => (None, false),
        AtLine::Log { message, columns } => (Some(message), columns),
    };
    let payload = payload(&args, log)?;
    let line = LineToArm {
        place: args.place.to_string(),
        job: args.job.to_string(),
        stops: log.is_none(),
    };
    let format = match (args.json, in_columns) {
        (true, _) => Format::Json,
        (false, true) => Format::Columns(Columns::default()),
        (false, false) => Format::Lines,
    };
    let mut output = Output::new(format, line);
    let client = RelayClient::new(args.relay)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    // Dropping the future closes the connection, and the relay disarms the line.
    tokio::select! {
        ended = follow(&client, &payload, &mut output) => ended?,
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    print(&output.rest())?;
    output.summarize();
    Ok(())
}

fn payload(args: &LineArgs, log: Option<&str>) -> Result<Value, Disarmed> {
    let SourceLine { file, line } = &args.place;
    let mut payload = json!({ "job": &*args.job, "file": file, "line": line });
    let optional = [
        ("log", log),
        ("condition", args.condition.as_deref()),
        ("hit", args.hit.as_deref()),
        ("cluster", args.cluster.as_deref()),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            put(&mut payload, key, value);
        }
    }
    if let Some(ranks) = &args.ranks {
        let numbers = ranks.numbers(MAX_ARMED_RANKS).ok_or(Disarmed::ManyRanks)?;
        put(&mut payload, "ranks", numbers);
    }
    Ok(payload)
}

/// Prints the events until the job ends.
async fn follow(client: &RelayClient, payload: &Value, output: &mut Output) -> Result<(), Failure> {
    let mut feed = client.arm(payload).await.map_err(job::unknown)?;
    if io::stderr().is_terminal() {
        eprintln!(
            "Waiting for workers of {}. Press Ctrl-C to disarm the line.",
            output.job()
        );
    }
    loop {
        let events = match output.due() {
            None => feed.next().await,
            Some(at) => match tokio::time::timeout_at(at, feed.next()).await {
                Ok(events) => events,
                Err(_) => {
                    print(&output.when_due())?;
                    continue;
                }
            },
        };
        for ServerSentEvent { name, data } in events.map_err(Disarmed::Lost)? {
            let data: Value = serde_json::from_str(&data).map_err(io::Error::from)?;
            if let Some(text) = output.event(&name, &data) {
                print(&text)?;
            }
            if name == "ended" {
                let sentence = one_line(typed_at::<&str>(&data, "error"));
                return match typed_at(&data, "reason") {
                    "job" => Ok(()),
                    _ => Err(Disarmed::NotPermitted(sentence).into()),
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
